"""The final test: which samples, on which data, and what the model cannot be asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from geonorm.lab.choices import parse_evaluation
from geonorm.lab.data import ImageFiles, Split, Task
from geonorm.lab.evaluate import check_evaluation, evaluate

IMAGES = torch.rand(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) // 20  # sorted by class, as in a folder


def task_of(x: Tensor | ImageFiles, y: Tensor = LABELS) -> Task:
    return Task("t", Split(x, y), Split(x, y), 2, tuple(x.shape[1:]))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))


class Seen(nn.Module):
    """Says class 0, and keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Tensor] = []

    def __deepcopy__(self, memo: object) -> Seen:
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.inputs.append(x)
        return torch.tensor([[1.0, 0.0]]).expand(len(x), 2)


def test_some_samples_are_of_all_classes_and_always_the_same() -> None:
    first, again = Seen(), Seen()
    for model in (first, again):
        found = evaluate(model, task_of(IMAGES), parse_evaluation("clean(samples=20)"), seed=len(model.inputs))
        assert found["total"] == 20
        assert 3 < found["correct"] < 17
    assert torch.equal(first.inputs[0], again.inputs[0])


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    image = pytest.importorskip("PIL.Image")
    for i, pixels in enumerate(IMAGES):
        image.fromarray((255 * pixels).byte().permute(1, 2, 0).numpy()).save(tmp_path / f"{i}.png")
    return ImageFiles([tmp_path / f"{i}.png" for i in range(len(IMAGES))], 8)


@pytest.mark.parametrize(
    "text",
    [
        "clean",
        "noise(std=0.1)",
        "blur(severity=5)",
        "fgsm(eps=0.1)",
        "clean(recalibrated=true)",
        "pruned(rule=outputs, share=0.5)",
    ],
)
def test_images_in_files_are_tested_as_those_in_memory(files: ImageFiles, text: str) -> None:
    how, model = parse_evaluation(text), network()
    in_files, in_memory = task_of(files), task_of(files[torch.arange(40)])
    check_evaluation(in_files, how)
    assert evaluate(model, in_files, how, seed=0) == evaluate(model, in_memory, how, seed=0)


def test_the_worst_group_in_the_place_of_all() -> None:
    groups = torch.stack([LABELS == 0, LABELS == 1], 1)  # Seen is right about the first and wrong about the second
    task = replace(task_of(IMAGES), test=Split(IMAGES, LABELS, groups))
    asked = parse_evaluation("clean(worst_group=true)")
    assert evaluate(Seen(), task, parse_evaluation("clean"), seed=0)["accuracy"] == 0.5
    assert evaluate(Seen(), task, asked, seed=0)["accuracy"] == 0
    with pytest.raises(ValueError, match="data with groups for worst_group=true"):
        check_evaluation(task_of(IMAGES), asked)


def test_a_plain_test_is_not_repeated() -> None:
    model, right = Seen(), torch.arange(40) % 4 == 0
    for text, looked in (("clean", 0), ("clean(worst_group=true)", 0), ("clean(samples=40)", 1), ("noise(std=0)", 2)):
        groups = torch.stack([LABELS == 0, LABELS == 1], 1)
        task = replace(task_of(IMAGES), test=Split(IMAGES, LABELS, groups))
        found = evaluate(model, task, parse_evaluation(text), seed=0, tested=right)
        assert found["correct"] == (20 if looked else 10)
        assert len(model.inputs) == looked


def test_without_running_statistics_there_is_nothing_to_measure() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    plain, again = (
        evaluate(model, task_of(IMAGES), parse_evaluation(text), seed=0)
        for text in ("clean", "clean(recalibrated=true)")
    )
    assert plain == again


def test_rescaled_weights_are_the_same_network() -> None:
    model = network()
    model[1].eps = 1e-12
    model(IMAGES)  # running statistics that are not those of the weights
    text = "fgsm(eps=0.1, {})"
    plain, small, large = (
        evaluate(model, task_of(IMAGES), parse_evaluation(text.format(how)), seed=0)
        for how in ("recalibrated=true", "rescaled=0.125", "rescaled=8")
    )
    assert plain == small == large
    before = model[0].weight.clone()
    evaluate(model, task_of(IMAGES), parse_evaluation("clean(rescaled=8)"), seed=0)
    assert torch.equal(model[0].weight, before)


def test_rescaling_reaches_the_weights() -> None:
    """With an eps that counts, the size of the weights does too."""
    model = network()
    model[1].eps = 1e3
    with torch.no_grad():
        model[4].bias.copy_(torch.tensor([0.05, 0.0]))  # decides where the channels give next to nothing
    small, large = (
        evaluate(model, task_of(IMAGES), parse_evaluation(f"clean(rescaled={factor})"), seed=0)["correct"]
        for factor in (0.001, 1000)
    )
    assert small == 20
    assert large != 20


def test_pruned() -> None:
    model, task = network(), task_of(IMAGES)
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    plain, none, half, all_but_one = (
        evaluate(model, task, parse_evaluation(text), seed=0)
        for text in ("clean", *[f"pruned(rule=gamma, share={share})" for share in (0, 0.5, 0.75)])
    )
    assert plain["correct"] == none["correct"] == half["correct"]
    assert set(none["similarity"]) == {"nearest", "random"}
    assert all_but_one["total"] == 40
    assert not model[1]._forward_hooks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pruned(rule=gama, share=0.1)", "expected rule in .* to be one of gamma, pairs"),
        ("pruned(rule=gamma)", r"expected share in .*, as in pruned\(share=0.1\)"),
        ("clean(rescaled=0)", "expected rescaled in .* a number over 0"),
    ],
)
def test_wrong_arguments(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_evaluation(text)


@pytest.mark.parametrize(
    ("x", "text", "message"),
    [
        (IMAGES * 255, "contrast(severity=1)", r"from 0 to 1 for the evaluation 'contrast' \(got .* to 255"),
        (IMAGES - 0.5, "pgd(eps=0.1)", "from 0 to 1 for the evaluation 'pgd'"),
        (IMAGES.flatten(1), "brightness(severity=1)", r"expected images .*shape \(192,\)"),
        (IMAGES.byte(), "noise(std=0.1)", "floating-point inputs for the evaluation 'noise'"),
    ],
)
def test_what_the_samples_do_not_allow(x: Tensor, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_evaluation(task_of(x), parse_evaluation(text))
    check_evaluation(task_of(x), parse_evaluation("clean(recalibrated=true)"))


@pytest.mark.parametrize(
    "text", ["noise(std=0.1)", "fgsm(eps=0.1)", "blur(severity=1)", "pruned(rule=gamma, share=0.1)"]
)
def test_graphs_are_tested_clean(text: str) -> None:
    graphs = replace(task_of(IMAGES), test=Split([object()] * 40, LABELS))
    with pytest.raises(ValueError, match=r"\(got graphs\); use 'clean'"):
        check_evaluation(graphs, parse_evaluation(text))
