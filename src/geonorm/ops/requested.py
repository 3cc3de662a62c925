"""The backend that the environment requests."""

from __future__ import annotations

import os


def requested() -> str:
    """``GEONORM_BACKEND``. A compiler takes it for a constant: a compiled graph keeps what it was traced with."""
    name = os.environ.get("GEONORM_BACKEND", "auto") or "auto"
    if name not in ("auto", "torch", "native", "triton"):
        raise RuntimeError(f"expected GEONORM_BACKEND to be auto, torch, native or triton (got {name!r})")
    return name
