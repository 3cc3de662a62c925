"""The ends of a symmetric matrix's spectrum from products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Ends(NamedTuple):
    """The ends of a spectrum.

    Attributes:
        largest, smallest: eigenvalues at both ends.
        error: an eigenvalue lies within this distance of each of the two.
        products: number of matrix-vector products.
    """

    largest: float
    smallest: float
    error: float
    products: int


def lanczos(product: Callable[[Tensor], Tensor], start: Tensor, steps: int, tolerance: float) -> Ends:
    """Lanczos with full reorthogonalization, until the residuals of both ends are below tolerance · largest |λ|.

    There is an eigenvalue within ‖Au − θu‖ = β_k |last entry of its vector| of each Ritz value θ, which is known
    without forming u. Without reorthogonalization, rounding errors would bring back copies of converged pairs.

    Args:
        product: v → A·v for a symmetric A.
        start: a random vector; its dtype and device are used throughout.
        steps: the largest number of products.
        tolerance: of the residuals, relative to the largest |λ| found.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    ends = Ends(0.0, 0.0, 0.0, 0)
    for done in range(1, min(steps, start.numel()) + 1):
        image = product(basis[-1])
        if not bool(image.isfinite().all()):
            return Ends(float("nan"), float("nan"), float("nan"), done)
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):  # twice is enough
            for vector in basis:
                image = image - (image @ vector) * vector
        rest = float(image.norm())
        values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, off_diagonal))
        largest_size = float(values.abs().max())
        error = rest * float(torch.maximum(vectors[-1, 0].abs(), vectors[-1, -1].abs()))
        ends = Ends(float(values[-1]), float(values[0]), error, done)
        if error <= tolerance * largest_size or rest <= torch.finfo(start.dtype).eps * largest_size:
            break
        off_diagonal.append(rest)
        basis.append(image / rest)
    return ends


def _tridiagonal(diagonal: list[float], off_diagonal: list[float]) -> Tensor:
    middle = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if off_diagonal:
        above = torch.diag(torch.tensor(off_diagonal, dtype=torch.float64), 1)
        middle = middle + above + above.T
    return middle
