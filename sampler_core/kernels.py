"""The target chain: one Gaussian kernel per step, x' ~ N(a x + b D(x, sigma), r^2 I), with r independent of x.

Every kernel repeats the arithmetic of ComfyUI's sampler of the same family in the same order of operations, so that a
chain without speculation equals it bit for bit. A kernel works in units of its own: `mean` gives the centre and
`perturb` adds the noise, whose spread `spread[i]` is meant in the units of `mean`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .errors import InputError

Coefficients = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """The formulas of one sampler family.

    coefficients(sigma, sigma_next, eta): the scalars of every step, as tensors [N]; "r" is the spread, "draws" says
    whether ComfyUI's sampler draws noise in this step.
    mean(c, x, denoised) and perturb(c, mean, noise): [rows, ...] -> [rows, ...].
    """

    coefficients: Callable[[Tensor, Tensor, float], Coefficients]
    mean: Callable[[Coefficients, Tensor, Tensor], Tensor]
    perturb: Callable[[Coefficients, Tensor, Tensor], Tensor]


def _flow_ancestral(sigma: Tensor, sigma_next: Tensor, eta: float) -> Coefficients:
    downstep_ratio = 1 + (sigma_next / sigma - 1) * eta
    sigma_down = sigma_next * downstep_ratio
    alpha_next = 1 - sigma_next
    alpha_down = 1 - sigma_down
    renoise = (sigma_next**2 - sigma_down**2 * alpha_next**2 / alpha_down**2) ** 0.5
    ratio = sigma_down / sigma
    draws = (sigma_next != 0) & (eta > 0)
    return {"ratio": ratio, "rest": 1 - ratio, "scale": alpha_next / alpha_down, "r": renoise, "draws": draws}


def _flow_ancestral_mean(c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
    return c["scale"] * (c["ratio"] * x + c["rest"] * denoised)


def _add(c: Coefficients, mean: Tensor, noise: Tensor) -> Tensor:
    return mean + noise * c["r"]


def _ancestral(sigma: Tensor, sigma_next: Tensor, eta: float) -> Coefficients:
    if eta:
        up = torch.minimum(sigma_next, eta * (sigma_next**2 * (sigma**2 - sigma_next**2) / sigma**2) ** 0.5)
        down = (sigma_next**2 - up**2) ** 0.5
    else:
        up, down = torch.zeros_like(sigma), sigma_next
    # ComfyUI returns the denoised latent, without noise, whenever sigma_down is 0.
    jump = down == 0
    up = torch.where(jump, 0.0, up)
    return {"sigma": sigma, "dt": down - sigma, "jump": jump, "r": up, "draws": ~jump}


def _ancestral_mean(c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
    return torch.where(c["jump"] > 0, denoised, x + ((x - denoised) / c["sigma"]) * c["dt"])


def _ddpm(sigma: Tensor, sigma_next: Tensor, eta: float) -> Coefficients:
    cumprod = 1 / ((sigma * sigma) + 1)
    cumprod_next = 1 / ((sigma_next * sigma_next) + 1)
    alpha = cumprod / cumprod_next
    shrink = torch.sqrt(1.0 + sigma**2.0)
    grow = torch.sqrt(1.0 + sigma_next**2.0)
    return {
        "sigma": sigma,
        "shrink": shrink,
        "grow": grow,
        "gain": (1.0 / alpha).sqrt(),
        "beta": 1 - alpha,
        "root": (1 - cumprod).sqrt(),
        "r": ((1 - alpha) * (1.0 - cumprod_next) / (1.0 - cumprod)).sqrt(),
        "draws": sigma_next > 0,
    }


def _ddpm_mean(c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
    eps = (x - denoised) / c["sigma"]
    return c["gain"] * (x / c["shrink"] - c["beta"] * eps / c["root"])


def _ddpm_perturb(c: Coefficients, mean: Tensor, noise: Tensor) -> Tensor:
    return (mean + c["r"] * noise) * c["grow"]


def _lcm(sigma: Tensor, sigma_next: Tensor, eta: float) -> Coefficients:
    return {"keep": 1.0 - sigma_next, "r": sigma_next, "draws": sigma_next > 0}


def _flow_lcm_mean(c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
    return c["keep"] * denoised


def _lcm_mean(c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
    return denoised


FAMILIES: dict[str, Family] = {
    "flow_ancestral": Family(_flow_ancestral, _flow_ancestral_mean, _add),
    "ancestral": Family(_ancestral, _ancestral_mean, _add),
    "ddpm": Family(_ddpm, _ddpm_mean, _ddpm_perturb),
    "flow_lcm": Family(_lcm, _flow_lcm_mean, _add),
    "lcm": Family(_lcm, _lcm_mean, _add),
}


class Kernel:
    """The steps of one schedule.

    sigmas: [N + 1], falling, on the latent's device. spread: [N] floats, the r of each step in the units of `mean`
    (0: deterministic, never speculated on). draws: [N] bools, whether the step draws noise. noise: [N] the r of each
    step in the units of the state. ahead: [N] how many steps can be drafted from each on: none without noise, nor the
    last one.
    """

    def __init__(self, family: Family, sigmas: Tensor, eta: float, s_noise: float) -> None:
        self.family = family
        self.sigmas = sigmas
        self.s_noise = s_noise
        self.steps = len(sigmas) - 1
        rows = family.coefficients(sigmas[:-1], sigmas[1:], eta)
        self._names = list(rows)
        self._table = torch.stack([row.to(sigmas) for row in rows.values()])
        self._single: dict[int, Coefficients] = {}
        spread, draws = (self._table[self._names.index(k)].tolist() for k in ("r", "draws"))
        self.spread = [r * s_noise if d else 0.0 for r, d in zip(spread, draws, strict=True)]
        self.draws = [bool(d) for d in draws]
        # Drafting stops at steps without noise, and at the last one.
        stops = np.flatnonzero(np.asarray([*self.spread[:-1], 0.0]) == 0)
        steps = np.arange(self.steps)
        self.ahead = stops[np.searchsorted(stops, steps)] - steps
        # Every kernel is linear: the next state is a x + b D + r z with b >= 0, in the units of the state.
        c = {k: row.cpu().double() for k, row in zip(self._names, self._table, strict=True)}
        zero, one = torch.zeros_like(c["r"]), torch.ones_like(c["r"])
        still = family.perturb(c, zero, one)
        linear = [family.perturb(c, family.mean(c, *pair), zero) for pair in ((one, zero), (zero, one))]
        self._push, self.noise = linear[1].numpy(), (still * s_noise).numpy()
        # A step without noise may have a spread that is rounding, or not even a number.
        noisy = torch.tensor(self.draws)
        self._linear = torch.stack([*linear, torch.where(noisy, still * s_noise, 0.0)]).to(sigmas)
        # The same step by step, [1, 1] each.
        self._one = list(zip(*(row[:, None, None].unbind() for row in self._linear), strict=True))

    def at(self, steps: np.ndarray, ndim: int) -> Coefficients:
        """The coefficients for rows at these steps [rows], shaped to broadcast against latents of `ndim` dimensions."""
        first = int(steps[0])
        if len(steps) == 1 or (steps == first).all():
            if first not in self._single:
                self._single[first] = {k: row[first] for k, row in zip(self._names, self._table, strict=True)}
            return self._single[first]
        index = torch.from_numpy(steps).to(self._table.device)
        shape = (len(steps), *[1] * (ndim - 1))
        return {k: row.reshape(shape) for k, row in zip(self._names, self._table[:, index], strict=True)}

    def sigma(self, steps: np.ndarray) -> Tensor:
        """sigmas[steps], [rows]."""
        return self.sigmas[torch.from_numpy(steps).to(self.sigmas.device)]

    def linear(self, steps: np.ndarray, ndim: int) -> tuple[Tensor, Tensor, Tensor]:
        """(a, b, r) of steps [rows]: a x + b denoised + r noise is the next state. [rows, 1, ...], or [1, 1]."""
        first = int(steps[0])
        if len(steps) > 1 and not (steps == first).all():
            a, b, r = self._linear[:, torch.from_numpy(steps).to(self._linear.device)].unbind()
            shape = (len(steps), *[1] * (ndim - 1))
            return a.reshape(shape), b.reshape(shape), r.reshape(shape)
        a, b, r = self._one[first]
        return a, b, r

    def deltas(self, steps: np.ndarray, norms: np.ndarray) -> np.ndarray:
        """delta [rows] where target and draft differ by `norms` [rows] in their denoised predictions."""
        return norms * self._push[steps] / self.noise[steps]

    def mean(self, c: Coefficients, x: Tensor, denoised: Tensor) -> Tensor:
        """The centre of the kernel, [rows, ...], in the kernel's own units."""
        return self.family.mean(c, x, denoised)

    def perturb(self, c: Coefficients, mean: Tensor, noise: Tensor) -> Tensor:
        """The next state for standard normal noise, all [rows, ...]."""
        if self.s_noise != 1.0:
            noise = noise * self.s_noise
        return self.family.perturb(c, mean, noise)


def build(name: str, sigmas: Tensor, eta: float = 1.0, s_noise: float = 1.0) -> Kernel:
    """The kernel `name` on a schedule sigmas [N + 1].

    Raises InputError for an unknown name, a schedule that rises or reaches 0 early, a negative eta or s_noise, or a
    combination that leaves a step without a real spread. Source: k-diffusion (Euler ancestral), Ho et al. 2020 (DDPM),
    Luo et al. 2023 (LCM), in ComfyUI's forms for flow and for eps / v models.
    """
    if name not in FAMILIES:
        raise InputError(f"kernel: {name!r} is unknown; use one of {', '.join(FAMILIES)}.")
    if sigmas.ndim != 1 or len(sigmas) < 2 or not sigmas.is_floating_point():
        raise InputError(f"sigmas: need a 1-D float tensor of at least 2 values, got shape {tuple(sigmas.shape)}.")
    values = sigmas.tolist()
    if not np.isfinite(values).all() or values[-1] < 0 or values[-2] <= 0:
        raise InputError(f"sigmas: need finite values, positive before the last; got {_short(values)}.")
    for i, (s, t) in enumerate(zip(values, values[1:], strict=False)):
        if t > s:
            raise InputError(
                f"sigmas: the schedule rises at step {i} ({s:.4g} -> {t:.4g}); it must fall. Use a scheduler's output, "
                "or reverse the list."
            )
    for label, value in (("eta", eta), ("s_noise", s_noise)):
        if not np.isfinite(value) or value < 0:
            raise InputError(f"{label}: {value} is not possible; use a value of 0 or more (1 is the usual one).")
    if name.startswith("flow") and values[0] > 1.001:
        raise InputError(f"sigmas: a flow model's schedule starts at 1 or below, got {values[0]:.4g}.")
    kernel = _kept(name, tuple(values), sigmas.dtype, sigmas.device, float(eta), float(s_noise))
    bad = [i for i, r in enumerate(kernel.spread) if not np.isfinite(r)]
    if bad:
        i = bad[0]
        raise InputError(
            f"eta: {eta} leaves step {i} (sigma {values[i]:.4g} -> {values[i + 1]:.4g}) without a real noise level; "
            "use eta 1 or less, or a schedule without repeated sigmas."
        )
    return kernel


@lru_cache(maxsize=16)
def _kept(
    name: str, sigmas: tuple[float, ...], dtype: torch.dtype, device: torch.device, eta: float, s_noise: float
) -> Kernel:
    """Kept from run to run, which mostly share a schedule: a few dozen operations, as many as half a round takes."""
    return Kernel(FAMILIES[name], torch.tensor(sigmas, dtype=dtype).to(device), eta, s_noise)


def _short(values: list[float]) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values[:6]) + (", ..." if len(values) > 6 else "") + "]"
