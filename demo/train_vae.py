"""The autoencoder: ComfyUI's 16-channel TAESD, trained from nothing on crops of all pictures."""

from __future__ import annotations

import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F

import host_path

CROP, BATCH, LATENT_NOISE = 48, 6, 0.08
PEAK_RATE, WARM_UP = 1.5e-3, 150
# Blocks left out during the first part. A block starts as relu(x), so leaving it out changes nothing at first.
SKIP = {"taesd_encoder": {1, 4, 5, 9}, "taesd_decoder": {13, 18}}


def new_vae() -> torch.nn.Module:
    """TAESD whose blocks start as the identity."""
    host_path.use_comfyui()
    from comfy.taesd.taesd import TAESD, Block

    vae = TAESD(latent_channels=16)
    for module in vae.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
    for half in (vae.taesd_encoder, vae.taesd_decoder):
        for module in half:
            if isinstance(module, Block):
                torch.nn.init.zeros_(module.conv[4].weight)
            elif isinstance(module, torch.nn.Conv2d):
                module.weight.data.mul_(0.5)
    torch.nn.init.normal_(vae.taesd_decoder[-1].weight, std=0.02)
    torch.nn.init.constant_(vae.taesd_decoder[-1].bias, 0.7)
    return vae


def run(vae: torch.nn.Module, half: str, x: torch.Tensor, cheap: bool = False) -> torch.Tensor:
    """taesd_encoder: [B, 3, H, W] in 0..1 to raw latents [B, 16, H/8, W/8]; taesd_decoder: back."""
    for i, module in enumerate(getattr(vae, half)):
        x = F.relu(x) if cheap and i in SKIP[half] else module(x)
    return x


def loss_of(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """x, y [B, 3, H, W] in 0..1: the picture and its reconstruction; z: its latents."""
    ink = F.max_pool2d((x.amin(1, keepdim=True) < 0.98).float(), 5, 1, 2)
    weight = 0.35 + 0.65 * ink
    error = y - x
    loss = (weight * error.abs()).mean() + 4 * (weight * error.square()).mean()
    loss = loss + 0.5 * (error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean())
    # Without the next two terms hues come out wrong (green apples turn brown).
    loss = loss + (weight * (error - error.mean(1, keepdim=True)).abs()).mean()
    loss = loss + sum(F.avg_pool2d(error, k).abs().mean() for k in (4, 8))
    mean, std = z.mean((0, 2, 3)), z.std((0, 2, 3))
    return loss + 0.01 * (mean.square() + (std - 1).square()).mean() + 0.002 * F.relu(z.abs() - 2.5).mean()


@torch.no_grad()
def psnr(vae: torch.nn.Module, images: torch.Tensor) -> float:
    """Mean over the images [N, 3, 64, 64] uint8 of the PSNR of a round trip, in dB."""
    total = 0.0
    for part in images.split(32):
        x = part.float() / 255
        y = run(vae, "taesd_decoder", run(vae, "taesd_encoder", x)).clamp(0, 1)
        total += float((-10 * torch.log10((x - y).square().mean((1, 2, 3)))).sum())
    return total / len(images)


def train(named: torch.Tensor, everything: torch.Tensor, seconds: float, work: pathlib.Path) -> torch.nn.Module:
    """Train for so many seconds on one thread (resumes); the averaged weights, scaled for SD3's latent format."""
    torch.set_num_threads(1)
    vae = new_vae().to(memory_format=torch.channels_last)
    finished, checkpoint = work / "vae.pt", work / "vae_training.pt"
    if finished.exists():
        vae.load_state_dict(torch.load(finished))
        return vae
    average = {k: v.clone() for k, v in vae.state_dict().items()}
    weights = [p for name, p in vae.named_parameters() if not name.startswith("vae_")]
    optimizer = torch.optim.AdamW(weights, lr=PEAK_RATE, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
    step, before = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        vae.load_state_dict(saved["vae"])
        optimizer.load_state_dict(saved["optimizer"])
        average, step, before = saved["average"], saved["step"], saved["elapsed"]
    rng = torch.Generator().manual_seed(1 + step)
    low_precision = host_path.bf16_pays()
    probe = named[:: max(1, len(named) // 96)]
    start, told, kept = time.monotonic(), before, before
    while (elapsed := before + time.monotonic() - start) < seconds:
        done = elapsed / seconds
        x = batch(named, everything, done, rng)
        rate = PEAK_RATE * min(1, (step + 1) / WARM_UP) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            z = run(vae, "taesd_encoder", x, cheap=done < 0.4)
            noise = torch.randn(z.shape, generator=rng) * LATENT_NOISE
            y = run(vae, "taesd_decoder", z + noise, cheap=done < 0.4)
        loss = loss_of(x, y.float(), z.float())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        step += 1
        if step % 4 == 0:
            decay = min(0.995, (step / 4 + 1) / (step / 4 + 10))
            for name, value in vae.state_dict().items():
                average[name].lerp_(value, 1 - decay)
        if elapsed - told > 60:
            told = elapsed
            trained = {k: v.clone() for k, v in vae.state_dict().items()}
            vae.load_state_dict(average)
            print(
                json.dumps(
                    {
                        "vae_s": round(elapsed),
                        "step": step,
                        "loss": round(loss.item(), 4),
                        "psnr": round(psnr(vae, probe), 2),
                    }
                ),
                flush=True,
            )
            vae.load_state_dict(trained)
        if elapsed - kept > 120:
            kept = elapsed
            torch.save(
                {
                    "vae": vae.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "average": average,
                    "step": step,
                    "elapsed": elapsed,
                },
                checkpoint,
            )
    vae.load_state_dict(average)
    scale(vae, named)
    torch.save(vae.state_dict(), finished)
    checkpoint.unlink(missing_ok=True)
    print(json.dumps({"vae_s": round(seconds), "step": step, "psnr_named": round(psnr(vae, named), 2)}), flush=True)
    return vae


def batch(named: torch.Tensor, everything: torch.Tensor, done: float, rng: torch.Generator) -> torch.Tensor:
    """[B, 3, H, W] in 0..1: flipped crops, colour channels shuffled; towards the end whole pictures, true colours."""
    whole = done > 0.85
    count, side = (4, 64) if whole else (BATCH, CROP)
    source = named if float(torch.rand((), generator=rng)) < 0.6 else everything
    picks = torch.randint(len(source), (count,), generator=rng).tolist()
    crops = []
    for pick in picks:
        top, left = (8 * torch.randint((64 - side) // 8 + 1, (2,), generator=rng)).tolist()
        chance = torch.rand(2, generator=rng).tolist()
        crop = source[pick, :, top : top + side, left : left + side]
        if chance[0] < 0.5:
            crop = crop.flip(-1)
        if chance[1] < (0.1 if whole else 0.5):
            crop = crop[torch.randperm(3, generator=rng)]
        crops.append(crop)
    return (torch.stack(crops).float() / 255).contiguous(memory_format=torch.channels_last)


def model_latents(vae: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Latents [N, 16, 8, 8] as the diffusion model sees them, of images [N, 3, 64, 64] uint8."""
    from comfy.latent_formats import SD3

    with torch.no_grad():
        return SD3().process_in(encode(vae, images) / vae.vae_scale + vae.vae_shift)


@torch.no_grad()
def encode(vae: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Raw latents [N, 16, 8, 8] of images [N, 3, 64, 64] uint8."""
    return torch.cat([run(vae, "taesd_encoder", part.float() / 255).float() for part in images.split(32)])


def scale(vae: torch.nn.Module, images: torch.Tensor) -> None:
    """Set vae_scale and vae_shift: the diffusion model then sees mean 0, deviation 1 through SD3's latent format."""
    host_path.use_comfyui()
    from comfy.latent_formats import SD3

    form = SD3()
    raw = encode(vae, images)
    vae.vae_scale.data = raw.std() * form.scale_factor
    vae.vae_shift.data = form.shift_factor - raw.mean() / vae.vae_scale.data
