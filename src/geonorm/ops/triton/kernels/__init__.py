"""The kernels. Importing this package imports triton.

Checked in Triton's interpreter and compiled for several GPUs, but never run on one by us.
"""

from .backward import BACKWARD_SUM_ROWS, GRADIENT_ROWS, affine_kernel, dx_kernel, reduce_kernel
from .guard import (
    center_kernel,
    combine_kernel,
    distances_kernel,
    medians_kernel,
    row_moments_kernel,
    usable_kernel,
    verdict_kernel,
)
from .large import (
    FOUND_ROWS,
    STATE_ROWS,
    SUM_ROWS,
    about_kernel,
    finish_kernel,
    output_kernel,
    settle_kernel,
    start_kernel,
    sweep_kernel,
)
from .running import running_kernel
from .segments import segments_backward_kernel, segments_kernel
from .small import small_kernel

__all__ = [
    "BACKWARD_SUM_ROWS",
    "FOUND_ROWS",
    "GRADIENT_ROWS",
    "STATE_ROWS",
    "SUM_ROWS",
    "about_kernel",
    "affine_kernel",
    "center_kernel",
    "combine_kernel",
    "distances_kernel",
    "dx_kernel",
    "finish_kernel",
    "medians_kernel",
    "output_kernel",
    "reduce_kernel",
    "row_moments_kernel",
    "running_kernel",
    "segments_backward_kernel",
    "segments_kernel",
    "settle_kernel",
    "small_kernel",
    "start_kernel",
    "sweep_kernel",
    "usable_kernel",
    "verdict_kernel",
]
