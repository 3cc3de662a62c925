"""All data by name: a description, whether they are at hand, and how to get them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple

from ...nn.specs import unknown
from ..repository import import_beside, import_if_of_studies
from . import cifar, cifar_c, embedded, image_folder, stripes, tu_graphs
from .download import ARCHIVES
from .download import fetch as download
from .errors import DataError
from .places import folders, look
from .task import Task


class Source(NamedTuple):
    """One set of data.

    Attributes:
        name: for ``load``.
        line: a description in one line.
        at_hand: whether it can be loaded now.
        where: the file or folder that was found, or the places where it would be found.
        how: how to get it.
    """

    name: str
    line: str
    at_hand: bool
    where: str
    how: str


class Checked(NamedTuple):
    """The result of reading all of a data set: whether it is good, and a line about it."""

    name: str
    good: bool
    said: str


class _Known(NamedTuple):
    line: str
    load: Callable[..., Task]
    places: tuple[str, ...] = ()
    how: str = ""


_KNOWN: dict[str, _Known] = {
    "digits": _Known("1797 digits of 8×8 pixels (scikit-learn)", embedded.digits),
    "subpopulations": _Known("two Gaussian classes, a spurious feature, a minority", embedded.subpopulations),
    "stripes": _Known("synthetic images of stripes; their direction is the class", stripes.stripes),
    **{
        name: _Known(
            line,
            partial(cifar.cifar, name),
            cifar.PLACES[name],
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
}


def register(name: str, line: str, load: Callable[..., Task], places: tuple[str, ...] = (), how: str = "") -> None:
    """Make data known by a name.

    Args:
        name: for ``load`` and for recipes.
        line: what they are.
        load: gives the task; its arguments are the options of the data.
        places: where they are looked for in a data folder; none for data that need no file.
        how: how to get them.
    """
    _KNOWN[name] = _Known(line, load, places, how)


def sources() -> list[Source]:
    """All data that ``load`` knows; in a clone of the repository, those of the studies too.

    Examples:
        >>> from geonorm.lab.data import sources
        >>> next(source for source in sources() if source.name == "digits").at_hand
        True
    """
    import_beside("studies")
    return [find_source(name) for name in _KNOWN]


def find_source(name: str) -> Source:
    """One set of data, with its current location."""
    check_name(name)
    known = _KNOWN[name]
    if not known.places:
        return Source(name, known.line, True, "part of geonorm[lab]", known.how)
    path = look(known.places)
    where = str(path) if path else f"{' or '.join(known.places)} in {' or '.join(map(str, folders()))}"
    return Source(name, known.line, path is not None, where, known.how)


def fetch(name: str) -> Source:
    """Download data that have a published checksum; does nothing if they are at hand.

    Args:
        name: see ``sources()``.
    """
    source = find_source(name)
    if source.at_hand:
        return source
    if name not in ARCHIVES:
        raise DataError(f"{name} cannot be downloaded automatically. {source.how}")
    download(ARCHIVES[name], folders()[0])
    return find_source(name)


def check(name: str) -> Checked:
    """Read all of a data set; checksums and counts are verified where they are known.

    Args:
        name: see ``sources()``.

    Examples:
        >>> from geonorm.lab.data import check
        >>> check("digits").said
        'good: 1438 samples to train on, 359 to test, 10 classes'
    """
    try:
        task = load(name)
    except (DataError, ImportError, OSError) as error:
        return Checked(name, False, str(error))
    counts = f"good: {len(task.train)} samples to train on, {len(task.test)} to test, {task.classes} classes"
    return Checked(name, True, f"{counts}; {task.note}" if task.note else counts)


def load(name: str, **options: Any) -> Task:
    """Data by name.

    Looked for in the folder that ``GEONORM_DATA`` names, then in the cache; ``docs/data.md`` describes the layouts.

    Args:
        name: see ``sources()``.
        options: of the set, such as ``train_size`` and ``seed``; ``download=True`` if a published checksum is known.

    Examples:
        >>> from geonorm.lab.data import load
        >>> task = load("digits")
        >>> task.train.x.shape, len(task.test), task.classes
        (torch.Size([1438, 1, 8, 8]), 359, 10)
    """
    check_name(name, options)
    return _KNOWN[name].load(**options)


def check_name(name: str, options: Collection[str] = ()) -> None:
    """Raise for an unknown name or option, with the closest known one."""
    if name not in _KNOWN:
        elsewhere = import_if_of_studies("data", name)
        if name not in _KNOWN:
            raise DataError(elsewhere or unknown("data", name, _KNOWN))
    able = list(inspect.signature(_KNOWN[name].load).parameters)
    strange = [option for option in options if option not in able]
    if strange:
        raise DataError(f"{name!r} has no option {strange[0]!r}; it has {', '.join(able) or 'none'}")
