"""The Triton backend: experimental, on request only. ``GEONORM_BACKEND=triton`` selects it for tensors on a GPU.

Numerics are checked in Triton's interpreter, and the kernels compile for several GPUs, but we never ran them on one.
Only ``kernels`` imports triton.
"""

from .normalize import center, guarded_moments, interprets, normalize, normalize_backward, spread, why_not, wrote

__all__ = ["center", "guarded_moments", "interprets", "normalize", "normalize_backward", "spread", "why_not", "wrote"]
