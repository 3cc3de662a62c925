"""COMPAS (ProPublica, 2016), prepared as for DORO (Zhai et al., 2021)."""

from __future__ import annotations

import torch

from geonorm.lab.data.places import find
from geonorm.lab.data.task import Split, Task, statistics
from geonorm.lab.extras import require

from .tables import check_length, column, one_of, read_rows

PLACES = (
    "compas/compas-two-years.csv.xz",
    "compas/compas-scores-two-years.csv",
    "compas-scores-two-years.csv",
)
HOW = (
    "Fetch compas-scores-two-years.csv from the repository propublica/compas-analysis into a folder compas. No "
    "published checksum is known, so nothing is downloaded."
)
ROWS = 7214
_RACES = one_of("African-American", "Caucasian", "Hispanic", "Asian", "Native American", "Other")


def compas(target: str = "is_recid", seed: int = 42) -> Task:
    """7214 people: counts of earlier offences, age, charge, sex and race; did they offend again.

    Eight features as in DORO's code: age in tens of years, race as Caucasian (0) or other (1). 70 % of the samples are
    for training; seed 42 draws the same ones as that code.

    Args:
        target: the column to predict: ``"is_recid"`` as DORO, or ``"two_year_recid"``.
        seed: of the split.
    """
    if target not in ("is_recid", "two_year_recid"):
        raise ValueError(f"expected target to be 'is_recid' or 'two_year_recid' (got {target!r})")
    path = find("compas", PLACES, HOW)
    rows = read_rows(path)
    counts = ("juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
    columns = [column(path, rows, name, float) for name in counts]
    columns.append([age / 10 for age in column(path, rows, "age", float)])
    columns.append([float(charge == "M") for charge in column(path, rows, "c_charge_degree", one_of("F", "M"))])
    columns.append([float(sex == "Male") for sex in column(path, rows, "sex", one_of("Female", "Male"))])
    columns.append([float(race != "Caucasian") for race in column(path, rows, "race", _RACES)])
    labels = [int(text) for text in column(path, rows, target, one_of("0", "1"))]
    check_length(path, labels, ROWS)
    x, y = torch.tensor(columns).T.contiguous(), torch.tensor(labels)
    other, male = x[:, 7] == 1, x[:, 6] == 1
    everyone = Split(x, y, torch.stack([~other, other, ~male, male], 1))
    split = require("sklearn.model_selection", "scikit-learn").train_test_split
    train, test = (everyone.take(torch.tensor(part)) for part in split(range(len(y)), test_size=0.3, random_state=seed))
    mean, std = statistics(train.tensor())
    return Task(
        "compas",
        train,
        test,
        classes=2,
        input_shape=(8,),
        mean=mean,
        std=std,
        group_names=("white", "others", "female", "male"),
        class_names=("no", "yes"),
        official=False,
    )
