"""The list of nodes, and the folders of the model that ships with them."""

from __future__ import annotations

from pathlib import Path

from comfy_api.v0_0_2 import ComfyExtension, io

from .configure import ConfigureDraftTree
from .demo_prompt import DemoPrompt
from .draft_model import DraftFromModel, LoadDraftModel
from .ksampler import SpeculativeKSampler
from .ksampler_advanced import SpeculativeKSamplerAdvanced
from .report import SpeculationReport
from .sampler import SpeculativeSampler

NODES: list[type[io.ComfyNode]] = [
    LoadDraftModel,
    DraftFromModel,
    ConfigureDraftTree,
    SpeculativeKSampler,
    SpeculativeKSamplerAdvanced,
    SpeculativeSampler,
    SpeculationReport,
    DemoPrompt,
]


class DraftTreeExtension(ComfyExtension):
    """The pack, as the host sees it."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        return NODES


async def comfy_entrypoint() -> DraftTreeExtension:
    """Called once by the host when it loads the pack."""
    # Not in on_load: ComfyUI 0.3.75 never calls it.
    _add_demo_models()
    return DraftTreeExtension()


def _add_demo_models() -> None:
    """Let the stock loaders list the tiny model that ships with the pack."""
    import folder_paths

    models = Path(__file__).resolve().parent.parent / "demo" / "models"
    for kind in ("checkpoints", "diffusion_models"):
        folder = models / kind
        if folder.is_dir():
            folder_paths.add_model_folder_path(kind, str(folder))
