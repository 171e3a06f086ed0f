"""DraftTree: exact speculative sampling for ComfyUI. The host finds the nodes through `comfy_entrypoint`."""

from .nodes.extension import comfy_entrypoint

WEB_DIRECTORY = "./web"

__all__ = ["WEB_DIRECTORY", "comfy_entrypoint"]
