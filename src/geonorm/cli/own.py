"""Options for a user's own model and data, shared by several commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .parser import positive_int, sample_shape, where_and_name


def add_model(parser: argparse.ArgumentParser) -> None:
    """Declare ``--model`` and ``--state``."""
    parser.add_argument(
        "--model",
        type=where_and_name,
        required=True,
        metavar="WHERE:NAME",
        help="a function that returns the model: module:name or file.py:name",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="a state_dict to load into it (tensors only)")


def add_data_or_shape(parser: argparse.ArgumentParser) -> None:
    """Declare ``--data``, or ``--input-shape`` and ``--batch-size``."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data", type=where_and_name, metavar="WHERE:NAME", help="a function that returns batches: tensors or (x, y)"
    )
    source.add_argument(
        "--input-shape", type=sample_shape, metavar="3,32,32", help="random inputs of this shape instead of data"
    )
    parser.add_argument("--batch-size", type=positive_int, default=64, help="of random inputs (default: %(default)s)")


def load(chosen: argparse.Namespace) -> tuple[Any, Iterable[Any]]:
    """The model and the batches."""
    from ..lab import loading

    model = loading.load_model(chosen.model, chosen.state)
    if chosen.data is None:
        return model, loading.random_batches(model, chosen.input_shape, chosen.batch_size)
    return model, loading.load_batches(chosen.data)
