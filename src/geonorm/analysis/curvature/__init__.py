"""Curvature of the loss: the largest eigenvalues, gradient noise and conditioning, block by block."""

from .curvature import Block, Curvature, curvature

__all__ = ["Block", "Curvature", "curvature"]
