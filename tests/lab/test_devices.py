"""The lab on a GPU, with a pretended one: what goes where, how often, and the same numbers as on the CPU.

The pretended device computes on the CPU, so its figures must equal those of torch's path there, bit for bit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from geonorm.lab import Recipe, Store, run
from geonorm.lab.batches import in_order
from geonorm.lab.data import ImageFiles, Split, load
from geonorm.lab.ddp_team import Team
from geonorm.lab.devices import DeviceError, check_device, described, find_device, home_of, moved, repeatable, use_one
from geonorm.lab.executors import _work, default_workers, execute
from geonorm.lab.runner import Named, RunsFailed, checkpoint_of
from geonorm.lab.seeded_process import seeded_process
from geonorm.lab.train import Training
from geonorm.ops import using_backend
from helpers.pretend_cuda import Log, OnCuda, pretend_cuda

DIGITS = Recipe(
    norms=("bn", "guardbn"),
    losses=("erm", "cvar_doro(alpha=0.5, eps=0.1)"),
    corruptions=("offset(share=0.1)",),
    evaluations=(
        "clean",
        "noise(std=0.3)",
        "pgd(eps=0.1, steps=2, samples=50)",
        "clean(recalibrated=true)",
        "clean(rescaled=10)",
        "pruned(rule=gamma, share=0.3)",
    ),
    seeds=(0,),
    epochs=2,
    batch_size=256,
)
IMAGES = Recipe(
    data="stripes",
    data_options={"train_size": 96, "test_size": 48, "side": 16},
    model="resnet20",
    model_options={"width": 0.25, "depth": 0.34},
    norms=("guardbn", "pop"),
    augment=("flip", "crop"),
    evaluations=("clean", "blur(severity=2)"),
    seeds=(1,),
    epochs=2,
    batch_size=32,
    clip_inputs=5.0,
    clip_gradients=1.0,
)
OTHERS = [
    Recipe(norms=("diffphi", "robustbn"), model_options={"layers": 1}, seeds=(0,), epochs=1, batch_size=1438),
    replace(IMAGES, norms=("bn",), optimizer="adam", lr=0.01, skip_nonfinite=True),
    replace(IMAGES, norms=("bn",), optimizer="sphere_sgd"),
    replace(DIGITS, norms=("ln",), losses=("erm",), evaluations=("clean",), folds=2, epochs=1),
]
GRAPHS = Recipe(
    data="regular_graphs",
    data_options={"train_size": 24, "test_size": 12},
    model="gin",
    model_options={"layers": 2},
    norms=("graphnorm", "bn"),
    seeds=(0,),
    epochs=1,
    batch_size=8,
    lr=0.01,
)


FORMER_KEY = "4c3ecb293f7c5be5"


@pytest.fixture
def cuda() -> Iterator[Log]:
    with pretend_cuda(number=2) as log:
        yield log


def figures_of(recipe: Recipe, path: Path) -> list[Any]:
    found = run(recipe, path)
    assert len(found.finished()) == len(recipe.runs())
    curves = {one.key: found.store.curve(one.key) for one in found.finished()}
    for curve in curves.values():
        assert curve[0].pop("bytes_kept") > 0  # wrappers of tensors share memory in other ways
    return [[one.choices["norm"], one.figures, curves[one.key]] for one in found.finished()]


def rounded(value: Any) -> Any:
    """Figures that are equal up to the last digits: plain torch adds in another order with another layout."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-4, abs=1e-6)
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


EVERY = [DIGITS, IMAGES, GRAPHS, *OTHERS]


@pytest.mark.skipif(torch.version.cuda is not None, reason="a torch for CUDA looks for the GPU's driver")
@pytest.mark.parametrize("recipe", EVERY, ids=lambda one: f"{one.data}, {one.norms[0]}, {one.optimizer}")
def test_the_whole_path_is_on_the_device(recipe: Recipe, tmp_path: Path) -> None:
    """Training, tests, attacks, recalibration and pruning: an operation on two devices raises, and figures agree."""
    with pretend_cuda() as log, using_backend("torch"):
        there = figures_of(replace(recipe, device="cuda"), tmp_path / "there.sqlite")
    assert log.sent
    with using_backend("torch"):
        here = figures_of(recipe, tmp_path / "here.sqlite")
    if "diffphi" in recipe.norms:  # on a device the search has a fixed number of sweeps
        here, there = ([[norm, one["clean"]["total"]] for norm, one, _ in found] for found in (here, there))
    assert there == rounded(here)


def trainer(device: str, **fields: Any) -> Training:
    (one,) = Recipe(norms=("bn",), seeds=(0,), batch_size=100, device=device, **fields).runs()
    task = Named().task(one)
    torch.manual_seed(0)
    return Training(Named().model(one, task), task, one.choices)


def test_every_batch_is_sent_once_from_pinned_memory(cuda: Log) -> None:
    training = trainer("cuda")
    assert all(isinstance(tensor, OnCuda) for tensor in (*training.model.parameters(), *training.model.buffers()))
    training.epoch()  # the first one also measures the memory of a step
    cuda.sent.clear()
    cuda.pinned = cuda.waits = 0
    training.epoch()
    train, test = len(training.task.train), len(training.task.test)
    images = [tensor for tensor in cuda.sent if tensor.dim() == 4]
    labels = [tensor for tensor in cuda.sent if tensor.dtype == torch.int64]
    assert sum(map(len, images)) == sum(map(len, labels)) == train + test
    assert len(images) == -(-train // 100) + 1
    assert len(images) == len(labels) == cuda.pinned / 2
    # Mean and deviation of the data, which Standardize keeps as numbers, are all else that is sent.
    assert {tensor.numel() for tensor in cuda.sent if tensor.dim() == 1 and tensor.is_floating_point()} == {1}
    # All 15 losses are read together, the number of correct samples among them, and those of the test.
    assert cuda.waits == 1 + 1 + 1
    assert isinstance(training.optimizer.state[next(training.model.parameters())]["momentum_buffer"], OnCuda)


def test_files_are_read_once_in_an_epoch(cuda: Log) -> None:
    """Images in files are decoded when they are taken: every sample once for training and once for the test."""
    training = trainer("cuda")
    read: list[int] = []

    class Counting(ImageFiles):
        def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
            read.extend(index.tolist())
            return torch.zeros(len(index), 1, 8, 8)

    files = Split(Counting([Path()] * 300, 8), torch.zeros(300, dtype=torch.int64))
    training.task = replace(training.task, train=files, test=files)
    training.done = 1  # the first epoch also measures the memory of a step
    training.epoch()
    assert sorted(read) == sorted([*range(300), *range(300)])


def test_nothing_of_this_is_done_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise AssertionError

    for name in ("pin_memory", "cuda"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    for name in ("manual_seed", "use_deterministic_algorithms", "autocast"):
        monkeypatch.setattr(torch, name, torch.manual_seed if name == "manual_seed" else refuse)
    training = trainer("cpu")
    weights = list(training.model.parameters())
    training.epoch()
    assert [id(one) for one in training.model.parameters()] == [id(one) for one in weights]
    with repeatable("cpu"):
        pass


def test_dropout_is_seeded_on_the_device(cuda: Log) -> None:
    training = trainer("cuda")
    cuda.calls.clear()
    for _ in range(2):
        training.epoch()
    assert [call for call in cuda.calls if call[0] == "manual_seed"] == [("manual_seed", 0), ("manual_seed", 1)]


def test_autocast_is_entered_for_every_step_when_asked(cuda: Log) -> None:
    for precision, times in (("float32", 0), ("bf16", 15)):
        training = trainer("cuda", precision=precision)
        training.done = 1
        cuda.calls.clear()
        training.epoch()
        assert cuda.calls.count(("autocast", "cuda", torch.bfloat16)) == times


def test_bf16_computes_in_bf16_and_tests_in_float32() -> None:
    """On the CPU, where torch really casts. Weights and statistics stay in float32."""
    training, seen = trainer("cpu", precision="bf16"), set()

    def look(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        seen.add((module.training, output.dtype))

    training.model.network.head.register_forward_hook(look)
    loss = training.epoch()["loss"]
    assert seen == {(True, torch.bfloat16), (False, torch.float32)}
    assert all(tensor.dtype == torch.float32 for tensor in training.model.parameters())
    plain = trainer("cpu").epoch()["loss"]
    assert loss != plain
    assert loss == pytest.approx(plain, rel=0.02)  # bfloat16 has 8 bits; scores of an epoch differ by about 2^-8


def test_keys_of_recipes_on_the_cpu_are_the_former_ones() -> None:
    """Stored runs keep their keys: these are of the version before devices."""
    recipe = Recipe(norms=("bn",), optimizer="sphere_sgd", seeds=(3,), epochs=2, decay="cosine")
    assert recipe.runs()[0].key == FORMER_KEY
    assert "device" not in recipe.runs()[0].choices
    keys = {replace(recipe, **one).runs()[0].key for one in ({}, {"device": "cuda"}, {"precision": "bf16"})}
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cudaa"}, "did you mean 'cuda'"),
        ({"precision": "fp16"}, "unknown precision 'fp16'"),
        ({"device": "mps", "processes": 2}, "one process with device 'mps'"),
        ({"device": "mps", "evaluations": ("clean(recalibrated=true)",)}, "needs float64, which device 'mps'"),
        ({"device": "mps", "evaluations": ("pruned(rule=gamma, share=0.1)",)}, "needs float64, which device 'mps'"),
    ],
)
def test_mistakes(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


def test_auto_is_the_first_device_that_is_here(cuda: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Recipe(device="auto").device == find_device("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert Recipe(device="auto").device == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert Recipe(device="auto").device == "cpu"
    with pytest.raises(DeviceError, match=r"expected a device 'mps' .* finds none here.*a Mac with an Apple GPU"):
        check_device("mps")


def test_without_the_device_nothing_begins(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    recipe = Recipe(norms=("bn",), seeds=(0,), epochs=1, device="cuda")
    with pytest.raises(DeviceError, match=r"expected a device 'cuda' .* finds none here"):
        run(recipe, tmp_path / "r.sqlite")
    assert not (tmp_path / "r.sqlite").exists()
    with pytest.raises(RunsFailed, match="expected a device 'cuda'"):
        execute(recipe.runs(), Store(tmp_path / "r.sqlite"))


SHORT = Recipe(norms=("bn",), seeds=(0,), epochs=3, batch_size=500, device="cuda")


def interrupted(store: Store, recipe: Recipe = SHORT) -> Path:
    """A run stopped after its first epoch; its saved state."""

    def stop(*news: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(recipe.runs(), store, watch=stop)
    return checkpoint_of(store, recipe.runs()[0])


def test_a_run_resumes_on_the_same_device(cuda: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same numbers; its state can be read anywhere, and the store knows the device."""
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    whole, store = Store(tmp_path / "whole.sqlite"), Store(tmp_path / "r.sqlite")
    execute(SHORT.runs(), whole)
    state = torch.load(interrupted(store), weights_only=True)
    assert all(type(value) is torch.Tensor for value in state["model"].values())
    execute(SHORT.runs(), store)
    (one,), (other,) = whole.finished(), store.finished()
    assert (one.figures, whole.curve(one.key)) == (other.figures, store.curve(other.key))
    assert one.device == other.device == "cuda: a pretended GPU"


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_run_does_not_resume_on_another_gpu(
    keeps_state: bool, cuda: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only its epochs are left: they would be repeated with other numbers."""
    monkeypatch.setattr("geonorm.lab.runner.SAVE_EVERY", 0.0)
    store = Store(tmp_path / "r.sqlite")
    saved = interrupted(store)
    if not keeps_state:
        saved.unlink()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "another GPU")
    message = r"was begun on cuda: a pretended GPU \(1 epochs are stored\), and this process is on cuda: another GPU"
    with pytest.raises(RunsFailed, match=message):
        execute(SHORT.runs(), store)
    assert len(store.curve(SHORT.runs()[0].key)) == 1


def test_a_run_without_epochs_may_begin_on_another_gpu(cuda: Log, tmp_path: Path) -> None:
    store = Store(tmp_path / "r.sqlite")
    key = store.add(SHORT.runs()[0].choices)
    store.keep_device(key, "cuda: an older GPU")
    execute(SHORT.runs(), store)
    assert store.finished()[0].device == "cuda: a pretended GPU"


def test_a_store_of_the_cpu_is_laid_out_as_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "r.sqlite")
    execute(replace(SHORT, device="cpu", epochs=1).runs(), store)
    with sqlite3.connect(store.path) as file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"runs", "claims", "epochs", "results"}
    assert store.finished()[0].device == "cpu"


def test_cuda_is_asked_to_repeat_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with repeatable("cuda"):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark) == before


def test_gpus_are_dealt_out(cuda: Log) -> None:
    """One process for each, the first ones again if there are more processes."""
    assert default_workers(4, "cuda") == 2
    assert default_workers(10**6, "mps") == 1
    for number in range(3):
        use_one("cuda", number)
    use_one("cpu", 1)
    assert cuda.calls == [("set_device", 0), ("set_device", 1), ("set_device", 0)]
    assert torch.zeros(1, device="cuda").device == torch.device("cuda", 0)


def test_a_worker_takes_its_gpu_before_it_works(cuda: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geonorm.lab.executors.allow_interrupts", lambda: None)
    store = Store(tmp_path / "r.sqlite")
    store.add_all(one.choices for one in SHORT.runs())
    _work(1, SHORT.runs(), store.path, Named(), None)
    assert cuda.calls[0] == ("set_device", 1)
    assert {tensor.device.index for tensor in (torch.zeros(1, device="cuda"),)} == {1}
    assert len(store.finished()) == 1


def test_runs_of_two_devices_are_not_mixed(tmp_path: Path) -> None:
    runs = [*SHORT.runs(), *replace(SHORT, device="cpu").runs()]
    with pytest.raises(ValueError, match=r"expected runs of one device \(got cpu, cuda\)"):
        execute(runs, Store(tmp_path / "r.sqlite"))


def test_a_team_has_a_gpu_for_each_process(cuda: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectives of figures go over gloo, those of gradients and statistics over nccl."""
    begun: list[str] = []
    monkeypatch.setattr("torch.distributed.is_torchelastic_launched", lambda: True)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: False)
    monkeypatch.setattr("torch.distributed.init_process_group", begun.append)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 5)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 6)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Team.started("cuda") == Team(5, 6)
    assert cuda.calls == [("set_device", 1)]
    assert Team.started() == Team(5, 6)
    assert begun == ["cpu:gloo,cuda:nccl", "gloo"]
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"a GPU for each process .*got 2 for at least 3.*--nproc-per-node 2"):
        Team.started("cuda")


def test_the_state_of_random_numbers_is_restored_on_gpus_too(cuda: Log) -> None:
    with seeded_process(3):
        cuda.calls.clear()
    assert [call[0] for call in cuda.calls] == ["set_rng_state"]


def test_where_a_model_is(cuda: Log) -> None:
    assert home_of(nn.Flatten()) == torch.device("cpu")
    assert home_of(nn.Linear(2, 2).to("cuda")) == torch.device("cuda", 0)
    statistics = nn.BatchNorm1d(2, affine=False)
    assert home_of(statistics.to("cuda")) == torch.device("cuda", 0)
    assert described("cuda") == "cuda: a pretended GPU"
    moved_batch = moved(next(in_order(load("digits").test, 4)), torch.device("cuda"))
    assert {part.device.type for part in (*moved_batch.inputs, moved_batch.labels)} == {"cuda"}


def test_the_pretended_device_refuses_what_a_real_one_does(cuda: Log) -> None:
    x = torch.ones(3, device="cuda")
    with pytest.raises(AssertionError, match="tensors of the device and of the CPU meet"):
        x + torch.ones(3)
    with pytest.raises(AssertionError, match="tensors of two devices meet"):
        x + torch.ones(3, device="cuda:1")
    assert (x + torch.tensor(1.0)).cpu().tolist() == [2.0, 2.0, 2.0]
