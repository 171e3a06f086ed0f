"""What can go wrong, in words a user can act on."""


class InputError(ValueError):
    """An input that cannot be sampled; the message names it, its value and what would work."""


class NonFiniteError(RuntimeError):
    """The target model returned NaN or infinity."""
