"""The only place that touches private or version-dependent names of ComfyUI."""
