"""The way of the stock KSampler node, with our sampler in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import comfy.sample
import comfy.samplers
import comfy.utils
import latent_preview
import torch
from torch import Tensor

from ...sampler_core.errors import InputError
from ...sampler_core.report import Report
from ..types import AUTO
from . import compat, cost, draft, memory, modes
from .finding import Mode
from .sampler import Settings, SpeculativeSampler, as_json, cost_key, kernel_name, nothing_to_draft, signed

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

    from .compat import Latent


@dataclass(frozen=True)
class Part:
    """What KSampler (Advanced) does of a schedule: the steps from `start` to `end`, on a latent that is given noise, or
    has it (add_noise false). leftover: stop at the noise level of `end`; without it the last step ends at 0.
    """

    add_noise: bool = True
    start: int = 0
    end: int = 10000
    leftover: bool = False

    def of(self, sigmas: Tensor) -> Tensor:
        """The part of sigmas [N + 1] that is sampled; empty for no steps. As comfy.samplers.KSampler.sample cuts it."""
        if self.end < len(sigmas) - 1:
            sigmas = sigmas[: self.end + 1].clone()
            if not self.leftover:
                sigmas[-1] = 0
        return sigmas[self.start :] if self.start < len(sigmas) - 1 else sigmas[:0]


WHOLE = Part()


def sample(
    settings: Settings,
    model: ModelPatcher,
    seed: int,
    steps: int,
    cfg: float,
    scheduler: str,
    positive: Any,
    negative: Any,
    latent: Latent,
    denoise: float = 1.0,
    part: Part = WHOLE,
) -> tuple[Latent, dict[str, Any]]:
    """Denoise a LATENT; returns the new LATENT and the report as plain JSON values."""
    with signed(settings.node):
        samples = compat.fix_latent(model, latent)
        _check(settings, model, samples)
    numbers = latent.get("batch_index")
    if part.add_noise:
        noise = comfy.sample.prepare_noise(samples, seed, numbers)
    else:
        noise = torch.zeros_like(samples, device="cpu")
    sigmas = part.of(schedule(model, steps, settings.sampler_name, scheduler, denoise))
    sampler = SpeculativeSampler(replace(settings, image_numbers=numbers))
    denoised = comfy.sample.sample_custom(
        memory.prepare(model, _rows(settings, model, [*positive, *negative], samples.shape, cfg), settings.draft),
        noise,
        cfg,
        sampler,
        sigmas,
        positive,
        negative,
        samples,
        noise_mask=latent.get("noise_mask"),
        callback=latent_preview.prepare_callback(model, steps),
        disable_pbar=not comfy.utils.PROGRESS_BAR_ENABLED,
        seed=seed,
    )
    if "steps" not in sampler.report:
        reason = "denoise is 0" if denoise == 0 else "start_at_step and end_at_step leave no step"
        sampler.report.update(_no_steps(len(samples), reason))
    return compat.replace_samples(latent, denoised), sampler.report


def schedule(model: ModelPatcher, steps: int, sampler_name: str, scheduler: str, denoise: float) -> Tensor:
    """The sigmas [N + 1] of the stock KSampler; empty for denoise 0."""
    stock = comfy.samplers.KSampler(
        model,
        steps=steps,
        device=model.load_device,
        sampler=sampler_name,
        scheduler=scheduler,
        denoise=denoise,
        model_options=model.model_options,
    )
    return stock.sigmas


def _rows(settings: Settings, model: ModelPatcher, conditioning: list[Any], shape: Sequence[int], cfg: float) -> int:
    """How many latents per image the host should find memory for: one where it is clear that none are drafted."""
    if nothing_to_draft(settings) or not modes.foresee(model, [options for _, options in conditioning]).pays:
        return 1
    costs = cost.known(model.model, cost_key(shape, cfg)) if settings.tree.widths == AUTO else None
    # Memory for rows that a plan will never use could push weights off the device.
    return settings.tree.rows if costs is None or cost.may_pay(costs) else 1


def _check(settings: Settings, model: ModelPatcher, samples: Tensor) -> None:
    """Refuse early what would fail deep inside the model."""
    kernel_name(settings.sampler_name, model.get_model_object("model_sampling"))
    if settings.draft is not None:
        draft.check(model, settings.draft)
    if samples.is_nested:
        return
    wanted = model.get_model_object("latent_format").latent_channels
    if samples.shape[1] != wanted:
        raise InputError(
            f"latent_image has {samples.shape[1]} channels, the model works on {wanted}. "
            "Use the VAE that belongs to this model, or an empty latent."
        )
    if not torch.isfinite(samples).all():
        raise InputError("latent_image holds NaN or infinity. Check the node it comes from, often the VAE's precision.")


def _no_steps(images: int, reason: str) -> dict[str, Any]:
    report = as_json(Report(0, images, mode="plain", reason=reason))
    return report | {"call_mode": Mode.PLAIN.label, "call_reason": reason, "model_calls": 0, "sigmas": []}
