"""All data by name: what they are, whether they are at hand, and how to get them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from . import adult, celeba, cifar, cifar_c, civil_comments, compas, embedded, image_folder, stripes, tu_graphs
from .errors import DataError
from .places import folders, look
from .task import Task


class Source(NamedTuple):
    """One set of data.

    Attributes:
        name: for ``load``.
        line: what it is.
        at_hand: whether it can be loaded now.
        where: the file or folder that was found, or the places inside a data folder where it is looked for.
        how: how to get it.
    """

    name: str
    line: str
    at_hand: bool
    where: str
    how: str


class _Known(NamedTuple):
    line: str
    load: Callable[..., Task]
    places: tuple[str, ...] = ()
    how: str = ""


_KNOWN: dict[str, _Known] = {
    "digits": _Known("1797 digits of 8×8 pixels (scikit-learn)", embedded.digits),
    "subpopulations": _Known("two Gaussian classes, a spurious feature, a minority", embedded.subpopulations),
    "stripes": _Known("images of stripes, made on the spot; their direction is the class", stripes.stripes),
    **{
        name: _Known(
            line,
            partial(cifar.cifar, name),
            (*cifar.OFFICIAL_PLACES.get(name, ()), *cifar.COMPACT_PLACES.get(name, ())),
            cifar.how(name),
        )
        for name, line in (
            ("cifar10", "60000 images of 32×32, 10 classes"),
            ("cifar100", "60000 images of 32×32, 100 classes"),
            ("cifar100_subset", "15000 images of CIFAR-100: a subset, not comparable with published results"),
        )
    },
    "cifar10c": _Known(
        "CIFAR-10, tested on the official corrupted images", cifar_c.cifar10c, cifar_c.PLACES, cifar_c.HOW
    ),
    "celeba": _Known("faces, blond or not, 16 overlapping groups", celeba.celeba, celeba.PLACES, celeba.HOW),
    "image_folder": _Known(
        "images in ImageNet's layout", image_folder.image_folder, image_folder.PLACES, image_folder.HOW
    ),
    **{
        name: _Known(line, partial(tu_graphs.tu_graphs, name), tu_graphs.places(name), tu_graphs.how(name))
        for name, line in (
            ("mutag", "188 molecules as graphs"),
            ("ptc", "344 molecules as graphs, 25.6 nodes each"),
            ("ptc_mr", "344 molecules as graphs, 14.3 nodes each"),
            ("proteins", "1113 proteins as graphs"),
        )
    },
    "compas": _Known("7214 people, will they offend again; as in DORO", compas.compas, compas.PLACES, compas.HOW),
    "adult": _Known("48842 people, income over 50,000 dollars", adult.adult, adult.PLACES, adult.HOW),
    "civilcomments": _Known(
        "comments as given features, toxic or not; as in WILDS",
        civil_comments.civil_comments,
        civil_comments.PLACES,
        civil_comments.HOW,
    ),
}


def sources() -> list[Source]:
    """All data that ``load`` knows.

    Examples:
        >>> from geonorm.lab.data import sources
        >>> next(source for source in sources() if source.name == "digits").at_hand
        True
    """
    found = []
    for name, known in _KNOWN.items():
        path: Path | None = look(known.places) if known.places else None
        if not known.places:
            where = "part of geonorm[lab]"
        else:
            where = str(path) if path else f"{' or '.join(known.places)} in {' or '.join(map(str, folders()))}"
        found.append(Source(name, known.line, path is not None or not known.places, where, known.how))
    return found


def load(name: str, **options: Any) -> Task:
    """Data by name.

    Looked for in the folder that ``GEONORM_DATA`` names, then in the cache; ``docs/data.md`` describes the layouts.

    Args:
        name: see ``sources()``.
        options: of the set, such as ``train_size`` and ``seed``; ``download=True`` where a published checksum is known.

    Examples:
        >>> from geonorm.lab.data import load
        >>> task = load("digits")
        >>> task.train.x.shape, len(task.test), task.classes
        (torch.Size([1438, 1, 8, 8]), 359, 10)
    """
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise DataError(f"unknown data {name!r}; {hint}known are {', '.join(_KNOWN)}")
    loader = _KNOWN[name].load
    able = list(inspect.signature(loader).parameters)
    unknown = [option for option in options if option not in able]
    if unknown:
        raise DataError(f"{name!r} has no option {unknown[0]!r}; it has {', '.join(able) or 'none'}")
    return loader(**options)
