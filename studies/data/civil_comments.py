"""CivilComments as in WILDS (Koh et al., 2021): is a comment toxic, with groups by the identities it mentions."""

from __future__ import annotations

import torch

from geonorm.lab.data.arrays import read_array
from geonorm.lab.data.errors import DataError
from geonorm.lab.data.places import find
from geonorm.lab.data.task import Split, Task, statistics

from .tables import column, one_of, read_rows

PLACES = ("civilcomments_v1.0/all_data_with_identities.csv", "civilcomments/all_data_with_identities.csv")
HOW = (
    "Fetch civilcomments_v1.0 of WILDS, and put features.npy next to all_data_with_identities.csv: one row of float "
    "numbers per comment, in the same order, from any text encoder. No published checksum is known, so nothing is "
    "downloaded."
)
IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")


def civil_comments() -> Task:
    """Comments as precomputed features; 16 overlapping groups: a mentioned identity, toxic or not; WILDS's split."""
    path = find("civilcomments", PLACES, HOW)
    rows = read_rows(path)
    y = torch.tensor([int(value >= 0.5) for value in column(path, rows, "toxicity", float)])
    identities = [torch.tensor([v >= 0.5 for v in column(path, rows, name, _share)]) for name in IDENTITIES]
    groups = torch.stack([member & (y == label) for member in identities for label in (0, 1)], 1)
    part = column(path, rows, "split", one_of("train", "val", "test"))
    given = path.with_name("features.npy")
    features = read_array(given, HOW)
    if features.ndim != 2 or len(features) != len(y) or features.dtype.kind != "f":
        raise DataError(
            f"{given} holds {features.dtype} of shape {features.shape}, expected float of shape ({len(y)}, features), "
            f"one row per comment of {path.name}"
        )
    everything = Split(torch.from_numpy(features).float(), y, groups)
    places = {
        name: torch.tensor([i for i, word in enumerate(part) if word == name]) for name in ("train", "val", "test")
    }
    empty = [name for name, index in places.items() if not len(index)]
    if empty:
        raise DataError(f"{path} has no comments in {', '.join(empty)}: truncated; fetch it again")
    train, valid, test = (everything.take(index) for index in places.values())
    mean, std = statistics(train.tensor())
    return Task(
        "civilcomments",
        train,
        test,
        classes=2,
        input_shape=(features.shape[1],),
        valid=valid,
        mean=mean,
        std=std,
        group_names=tuple(f"{name}, {kind}" for name in IDENTITIES for kind in ("not toxic", "toxic")),
        class_names=("not toxic", "toxic"),
    )


def _share(text: str) -> float:
    """The fraction of readers who agreed; 0 where nobody was asked."""
    return float(text) if text else 0.0
