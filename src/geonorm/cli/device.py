"""The option ``--device`` of the commands that compute."""

from __future__ import annotations

import argparse
from typing import Any

from .parser import Mistake

NAMES = ("auto", "cpu", "cuda", "mps")


def add_device(parser: argparse._ActionsContainer, otherwise: str, **settings: Any) -> None:
    """Declare the option; ``otherwise`` says in words what happens without it."""
    text = f"auto, cpu, cuda or mps; auto is the first of CUDA, MPS and CPU that is here (default: {otherwise})"
    parser.add_argument("--device", choices=NAMES, metavar="NAME", help=text, **settings)


def device_here(name: str) -> str:
    """The device of that name; one that is not here is a mistake on the command line."""
    from ..lab.devices import DeviceError, check_device, find_device

    found = find_device(name)
    try:
        check_device(found)
    except DeviceError as error:
        raise Mistake(error) from error
    return found
