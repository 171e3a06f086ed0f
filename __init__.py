"""DraftTree: exact speculative sampling for ComfyUI. The host finds the nodes through `comfy_entrypoint`."""

from .nodes.extension import comfy_entrypoint

__all__ = ["comfy_entrypoint"]
