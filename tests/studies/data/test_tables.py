"""COMPAS, Adult and CivilComments from small tables."""

import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

from geonorm.lab.data import DataError, load
from helpers import corrupt_files
from studies.data import adult, compas

COMPAS = (
    "id,sex,age,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_charge_degree,is_recid,two_year_recid"
)
PEOPLE = ["Male,40,Caucasian,0,0,1,2,F,1,0", "Female,25,African-American,1,0,0,5,M,0,0", "Male,31,Other,0,2,0,0,M,1,1"]


@pytest.fixture(params=["compas/compas-two-years.csv.xz", "compas/compas-scores-two-years.csv"])
def people(request, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compas, "ROWS", 30)
    path = folder / request.param
    path.parent.mkdir()
    content = "\n".join([COMPAS, *[f"{i},{PEOPLE[i % 3]}" for i in range(30)]]) + "\n"
    path.write_bytes(lzma.compress(content.encode()) if path.suffix == ".xz" else content.encode())
    return path


def test_compas(people: Path) -> None:
    task = load("compas")
    assert (len(task.train), len(task.test), task.input_shape) == (21, 9, (8,))
    rows = {tuple(row) for row in task.train.x.tolist()}
    assert (0.0, 0.0, 1.0, 2.0, 4.0, 0.0, 1.0, 0.0) in rows  # age in tens, charge F, male, Caucasian
    white, others, female, male = task.train.groups.T
    assert torch.equal(white, task.train.x[:, 7] == 0)
    assert torch.equal(male, task.train.x[:, 6] == 1)
    assert torch.equal(others, ~white)
    assert torch.equal(female, ~male)
    assert load("compas", target="two_year_recid").train.y.float().mean() < task.train.y.float().mean()
    with pytest.raises(ValueError, match="expected target to be"):
        load("compas", target="race")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (corrupt_files.truncate, r"truncated"),
        (corrupt_files.flip_bit, r"damaged, truncated or not a table"),
        (corrupt_files.replace_with_web_page, r"has no column|damaged, truncated or not a table"),
        (Path.unlink, r"compas is not at hand: looked for .* Fetch compas-scores-two-years.csv"),
    ],
)
def test_damaged_compas(people: Path, action, message: str) -> None:
    action(people)
    with pytest.raises(DataError, match=message):
        load("compas")


def test_a_wrong_cell_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "compas-scores-two-years.csv").write_text(f"{COMPAS}\n1,Nale,40,Caucasian,0,0,1,2,F,1,0\n")
    with pytest.raises(DataError, match="row 2: 'Nale' is not a valid sex"):
        load("compas")


ADULT = [
    "39, State-gov, 77516, Bachelors, 13, Single, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, US, <=50K",
    "50, ?, 83311, HS-grad, 9, Married, Sales, Husband, Black, Female, 0, 0, 13, Cuba, >50K",
]


@pytest.fixture(params=["", ".xz"])
def census(request, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(adult, "ROWS", (6, 2))
    monkeypatch.setattr(adult, "WORDS", dict.fromkeys(adult.WORDS, 2))
    home = folder / "adult"
    home.mkdir()
    tested = ["|1x3 Cross validator", *[f"{row}." for row in ADULT]]
    for name, rows in (("adult.data", ADULT * 3), ("adult.test", tested)):
        content = ("\n".join(rows) + "\n\n").encode()
        (home / f"{name}{request.param}").write_bytes(lzma.compress(content) if request.param else content)
    return home / f"adult.data{request.param}"


def test_adult(census: Path) -> None:
    task = load("adult")
    assert (len(task.train), len(task.test)) == (6, 2)
    assert task.test.y.tolist() == [0, 1]
    assert task.input_shape == (5 + 8 * 2,)
    assert task.train.x[0, :5].tolist() == [39, 13, 2174, 0, 40]  # not the census weight 77516
    assert (task.train.x[:, 5:].sum(1) == 8).all()
    assert task.test.groups.tolist() == [[True, False, False, True], [False, True, True, False]]
    task = load("adult", groups="sex_and_label")
    assert task.group_names[2] == "male, <=50K"
    assert task.test.groups.tolist() == [[False, False, True, False], [False, True, False, False]]
    with pytest.raises(ValueError, match="one of people, sex_and_label"):
        load("adult", groups="label")


@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (corrupt_files.truncate, "truncated|expected 15 columns"),
        (corrupt_files.flip_bit, "damaged"),
        (corrupt_files.replace_with_web_page, "truncated"),
        (Path.unlink, "is not at hand|is missing"),
    ],
)
def test_damaged_adult(census: Path, name: str, action, message: str) -> None:
    action(census.with_name(census.name.replace("adult.data", name)))
    with pytest.raises(DataError, match=message):
        load("adult")


@pytest.mark.parametrize("folder_file", ["adult.data", "adult.test"])
def test_an_unknown_word_in_adult(census: Path, folder_file: str) -> None:
    path = census.with_name(census.name.replace("adult.data", folder_file))
    is_xz = path.suffix == ".xz"
    content = lzma.decompress(path.read_bytes()) if is_xz else path.read_bytes()
    content = content.replace(b"Sales", b"Salfs", 1)
    path.write_bytes(lzma.compress(content) if is_xz else content)
    with pytest.raises(DataError, match=r"3 different words in column 7, expected 2|unknown word"):
        load("adult")


IDENTITIES = "male,female,LGBTQ,christian,muslim,other_religions,black,white"


@pytest.fixture
def comments(folder: Path) -> Path:
    home = folder / "civilcomments_v1.0"
    home.mkdir()
    rows = [
        f'{i},"a comment, with a comma",{part},{0.8 if i % 2 else 0.1},{"1.0" if i % 3 else ""},0,0,0,0,0,0,0.5'
        for i, part in enumerate(["train"] * 6 + ["val"] * 2 + ["test"] * 4)
    ]
    table = home / "all_data_with_identities.csv"
    table.write_text("\n".join([f",comment_text,split,toxicity,{IDENTITIES}", *rows]) + "\n")
    np.save(home / "features.npy", np.arange(36, dtype=np.float32).reshape(12, 3))
    return table


def test_what_ends_a_line_inside_a_comment_ends_no_row(comments: Path) -> None:
    text = comments.read_text()
    text = text.replace('"a comment, with a comma"', "one\u2028two\x0bthree", 1).replace("a comma", "two\r\nlines", 1)
    comments.write_text(text, encoding="utf-8", newline="")
    assert len(load("civilcomments").train) == 6


def test_civil_comments(comments: Path) -> None:
    task = load("civilcomments")
    assert (len(task.train), len(task.valid), len(task.test)) == (6, 2, 4)
    assert task.test.x[0].tolist() == [24, 25, 26]
    assert task.train.y.tolist() == [0, 1, 0, 1, 0, 1]
    names = dict(zip(task.group_names, task.train.groups.T, strict=True))
    assert len(names) == 16
    assert names["male, toxic"].tolist() == [False, True, False, False, False, True]
    assert names["white, not toxic"].tolist() == [True, False] * 3


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        (
            "all_data_with_identities.csv",
            lambda path: corrupt_files.truncate(path, 0.6),
            r"truncated|expected float of shape",
        ),
        ("all_data_with_identities.csv", corrupt_files.flip_bit, "damaged, truncated or not a table"),
        ("all_data_with_identities.csv", corrupt_files.replace_with_web_page, "has no column 'toxicity'"),
        ("all_data_with_identities.csv", Path.unlink, "civilcomments is not at hand"),
        ("features.npy", corrupt_files.truncate, "features.npy is not an .npy file of numbers, or is damaged"),
        ("features.npy", lambda path: corrupt_files.flip_bit(path, 0), "features.npy is not an .npy file"),
        ("features.npy", corrupt_files.replace_with_web_page, "features.npy is not an .npy file"),
        ("features.npy", lambda path: np.save(path, np.zeros((5, 3))), r"expected float of shape \(12, features\)"),
        ("features.npy", Path.unlink, r"features.npy is missing. .*from any text encoder"),
    ],
)
def test_damaged_civil_comments(comments: Path, name: str, action, message: str) -> None:
    action(comments.with_name(name))
    with pytest.raises(DataError, match=message):
        load("civilcomments")
