"""Adult (Becker and Kohavi, UCI, 1996): does a person earn more than 50,000 dollars a year."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from geonorm.lab.data.errors import DataError
from geonorm.lab.data.places import find
from geonorm.lab.data.task import Split, Task, statistics

from .tables import check_length, read_rows

PLACES = ("adult/adult.data", "adult/adult.data.xz")
HOW = (
    "Fetch adult.data and adult.test of the Adult data set from UCI into a folder adult. No published checksum is "
    "known, so nothing is downloaded."
)
ROWS = (32561, 16281)
# Columns with words, and how many different words the training file has, including "?" for unknown (adult.names).
WORDS = {1: 9, 3: 16, 5: 7, 6: 15, 7: 6, 8: 5, 9: 2, 13: 42}
_NUMBERS = (0, 4, 10, 11, 12)  # 2 is the weight of the row in the census, not a feature of the person
_RACE, _SEX = 8, 9


# Names of the groups, by how they are formed.
GROUPS = {
    "people": ("white", "others", "female", "male"),
    "sex_and_label": ("female, <=50K", "female, >50K", "male, <=50K", "male, >50K"),
}


def adult(groups: str = "people") -> Task:
    """48842 people of the US census of 1994: five numbers and eight words, one feature per word that occurs.

    Args:
        groups: ``"people"`` by race and by sex, as in COMPAS; ``"sex_and_label"`` for the four that do not overlap.
    """
    if groups not in GROUPS:
        raise ValueError(f"expected groups to be one of {', '.join(GROUPS)} (got {groups!r})")
    path = find("adult", PLACES, HOW)
    tested = path.with_name(path.name.replace("adult.data", "adult.test"))
    train_rows, test_rows = _read(path, ROWS[0]), _read(tested, ROWS[1])
    words = {}
    for place, expected in WORDS.items():
        words[place] = sorted({row[place] for row in train_rows})
        if len(words[place]) != expected:
            raise DataError(
                f"{path} has {len(words[place])} different words in column {place + 1}, expected {expected}: damaged; "
                "fetch it again"
            )
    train, test = _split(path, train_rows, words, groups), _split(tested, test_rows, words, groups)
    mean, std = statistics(train.tensor())
    return Task(
        "adult",
        train,
        test,
        classes=2,
        input_shape=(train.tensor().shape[1],),
        mean=mean,
        std=std,
        group_names=GROUPS[groups],
        class_names=("<=50K", ">50K"),
    )


def _read(path: Path, expected: int) -> list[list[str]]:
    rows = [row for row in read_rows(path) if not row[0].startswith("|")]
    check_length(path, rows, expected)
    for number, row in enumerate(rows, 1):
        if len(row) != 15 or row[-1].rstrip(".") not in ("<=50K", ">50K"):
            raise DataError(
                f"{path}, sample {number}: expected 15 columns that end in <=50K or >50K (got {row}); damaged"
            )
    return rows


def _split(path: Path, rows: list[list[str]], words: dict[int, list[str]], groups: str) -> Split:
    try:
        numbers = torch.tensor([[float(row[place]) for place in _NUMBERS] for row in rows])
        parts: list[Tensor] = [numbers]
        for place, known in words.items():
            index = torch.tensor([known.index(row[place]) for row in rows])
            parts.append(torch.nn.functional.one_hot(index, len(known)).float())
    except ValueError as error:
        raise DataError(
            f"{path} has a cell that is not a number, or an unknown word ({error}): damaged; fetch it again"
        ) from error
    y = torch.tensor([int(row[-1].startswith(">50K")) for row in rows])
    white = torch.tensor([row[_RACE] == "White" for row in rows])
    male = torch.tensor([row[_SEX] == "Male" for row in rows])
    if groups == "people":
        members = [white, ~white, ~male, male]
    else:
        members = [(male == is_male) & (y == label) for is_male in (False, True) for label in (0, 1)]
    return Split(torch.cat(parts, 1), y, torch.stack(members, 1))
