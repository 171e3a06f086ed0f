"""Exact speculative sampling for diffusion models: draft a tree, judge it in one call, verify without bias."""

from . import coupling, kernels, noise
from .engine import Progress, sample
from .errors import InputError, NonFiniteError
from .report import Report

__all__ = ["InputError", "NonFiniteError", "Progress", "Report", "coupling", "kernels", "noise", "sample"]
