"""The diffusion model, ComfyUI's SD3 transformer at depth 3, and the draft model, the same at depth 2."""

from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import random
import tempfile
import time

import torch
import torch.distributed
import torch.nn.functional as F

import emoji_data
import host_path
import words

ROWS, PEAK_RATE, WARM_UP, NULL_CHANCE, SHIFT = 64, 1.5e-3, 200, 0.1, 3.0

Weights = dict[str, torch.Tensor]


def new_mmdit(depth: int) -> torch.nn.Module:
    """An SD3.5 transformer of width 64 * depth for the demo's latents and words."""
    host_path.use_comfyui()
    from comfy.ldm.modules.diffusionmodules.mmdit import OpenAISignatureMMDITWrapper

    model = OpenAISignatureMMDITWrapper(
        input_size=None,
        in_channels=16,
        depth=depth,
        adm_in_channels=words.WIDTH,
        context_embedder_config={
            "target": "torch.nn.Linear",
            "params": {"in_features": words.WIDTH, "out_features": 64 * depth},
        },
        qk_norm="rms",
        operations=torch.nn,
    )
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.xavier_uniform_(module.weight)
            torch.nn.init.zeros_(module.bias)
            if "adaLN" in name or name.startswith("final_layer"):
                torch.nn.init.zeros_(module.weight)
            elif name.startswith(("t_embedder", "y_embedder")):
                torch.nn.init.normal_(module.weight, std=0.02)
        elif hasattr(module, "learnable_scale"):
            torch.nn.init.ones_(module.weight)
    patches = model.x_embedder.proj
    torch.nn.init.xavier_uniform_(patches.weight.view(patches.weight.shape[0], -1))
    torch.nn.init.zeros_(patches.bias)
    # The host computes the position table anew in every call; training always has the same one.
    model.cropped_pos_embed = functools.lru_cache(model.cropped_pos_embed)
    return model


def batch(
    latents: torch.Tensor, pictures: list[emoji_data.Picture], chance: random.Random, rng: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x0 [B, 16, 8, 8], t [B] in 0..1, context [B, 8, 128], pooled [B, 128]."""
    picks = [chance.randrange(len(pictures)) for _ in range(ROWS)]
    texts = ["" if chance.random() < NULL_CHANCE else emoji_data.caption(pictures[i], chance) for i in picks]
    contexts, pooleds = zip(*map(_encode, texts), strict=True)
    # Stratified, then logit-normal, then SD3's shift towards noise.
    level = (torch.randperm(ROWS, generator=rng) + torch.rand(ROWS, generator=rng)) / ROWS
    t = torch.sigmoid(torch.special.ndtri(level.clamp(1e-4, 1 - 1e-4)))
    t = SHIFT * t / (1 + (SHIFT - 1) * t)
    return latents[picks], t, torch.cat(contexts), torch.cat(pooleds)


_encode = functools.lru_cache(maxsize=20000)(words.encode)


def learning_rate(step: int, done: float) -> float:
    """As a share of the peak: square-root decay to half time, then linear to 1 %."""
    decay = math.sqrt(1 - done) if done < 0.5 else math.sqrt(0.5) * 2 * (1 - done)
    return min(1, (step + 1) / WARM_UP) * max(0.01, decay)


def train(
    latents: torch.Tensor,
    pictures: list[emoji_data.Picture],
    depth: int,
    seconds: float,
    processes: int,
    work: pathlib.Path,
    teacher: Weights | None = None,
    start: Weights | None = None,
) -> Weights:
    """Train for so many seconds (resumes); the averaged weights. With a teacher: learn its output, not the data.
    With a start: begin at these weights, at a third of the rate."""
    finished = work / f"mmdit{depth}.pt"
    if not finished.exists():
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            arguments = (processes, store, latents, pictures, depth, seconds, work, teacher, start)
            torch.multiprocessing.spawn(_process, arguments, nprocs=processes)
    return torch.load(finished)


def _process(
    rank: int,
    processes: int,
    store: str,
    latents: torch.Tensor,
    pictures: list[emoji_data.Picture],
    depth: int,
    seconds: float,
    work: pathlib.Path,
    teacher_weights: Weights | None,
    start: Weights | None,
) -> None:
    torch.set_num_threads(1)
    if processes > 1:
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.FileStore(store, processes), rank=rank, world_size=processes
        )
    torch.manual_seed(0)  # the same first weights in every process
    model = new_mmdit(depth)
    peak = PEAK_RATE
    if start is not None:
        model.load_state_dict(start)
        peak /= 3
    teacher = None
    if teacher_weights is not None:
        teacher = new_mmdit(teacher_weights["x_embedder.proj.weight"].shape[0] // 64).requires_grad_(False)
        teacher.load_state_dict(teacher_weights)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.99), fused=True)
    average = [p.detach().clone() for p in parameters]
    step, before = 0, 0.0
    checkpoint = work / f"mmdit{depth}_training.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        average, step, before = saved["average"], saved["step"], saved["elapsed"]
    chance = random.Random(1000 * step + rank)
    rng = torch.Generator().manual_seed(1000 * step + rank)
    low_precision = host_path.bf16_pays()
    begun = time.monotonic()
    elapsed = told = kept = before
    losses = []
    while elapsed < seconds:
        for group in optimizer.param_groups:
            group["lr"] = peak * learning_rate(step, elapsed / seconds)
        x0, t, context, pooled = batch(latents, pictures, chance, rng)
        noise = torch.randn(x0.shape, generator=rng)
        x = torch.lerp(x0, noise, t.view(-1, 1, 1, 1))
        target = noise - x0
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            if teacher is not None:
                target = teacher(x, 1000 * t, context, pooled).float()
            v = model(x, 1000 * t, context, pooled)
        loss = F.mse_loss(v.float(), target)
        optimizer.zero_grad()
        loss.backward()
        # One message per step: the gradients, the loss, and the clock, so that all processes agree when to stop.
        shared = torch.cat(
            [p.grad.flatten() for p in parameters] + [torch.tensor([loss.item(), before + time.monotonic() - begun])]
        )
        if processes > 1:
            torch.distributed.all_reduce(shared)
            shared /= processes
        losses.append(float(shared[-2]))
        elapsed = float(shared[-1])
        for p, grad in zip(parameters, shared[:-2].split([p.numel() for p in parameters]), strict=True):
            p.grad.copy_(grad.view_as(p))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        torch._foreach_lerp_(average, [p.detach() for p in parameters], 1 - min(0.9995, (step + 1) / (step + 10)))
        if rank == 0 and elapsed - told > 60:
            told = elapsed
            print(
                json.dumps(
                    {
                        "depth": depth,
                        "s": round(elapsed),
                        "step": step,
                        "rows": step * ROWS * processes,
                        "loss": round(sum(losses) / len(losses), 4),
                    }
                ),
                flush=True,
            )
            losses.clear()
        if rank == 0 and elapsed - kept > 120:
            kept = elapsed
            saved = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "average": average,
                "step": step,
                "elapsed": elapsed,
            }
            torch.save(saved, checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)
    if rank == 0:
        names = [name for name, _ in model.named_parameters()]
        torch.save(dict(zip(names, average, strict=True)), work / f"mmdit{depth}.pt")
        checkpoint.unlink(missing_ok=True)
    if processes > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
