"""What a process group brings with it: corner cases, wrappers, compiled graphs, checkpoints. One group runs all."""

from __future__ import annotations

import copy
import gc
import io
import math
import os
import pickle
import socket
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import geonorm
from geonorm.functional import aug_norm, pop_norm
from helpers.distributed_model_checks import (
    activation_checkpointing,
    bad_weights_are_everybodys_business,
    checkpoints,
    ddp_follows_one_process,
    ddp_two_forwards_and_accumulation,
    ddp_with_parameters_unused_here_and_there,
    fsdp,
    torch_func_is_refused,
)
from helpers.process_group import WORLD_SIZE, assert_refused, count_collectives, run_in_processes, whole_and_part

# Values


def nan_stays_in_its_channel(rank: int) -> None:
    _, x = whole_and_part(rank)
    if rank == 1:
        x[2, 1] = math.nan
    for phi in (1.0, 1.5, 2.0, math.inf):
        for spread in ("rms", "max_abs", "robust"):
            layer = geonorm.AugBatchNorm1d(4, phi=phi, spread=spread, dtype=torch.float64, process_group="world")
            before = layer.running_mean.clone()
            y = layer(x)
            assert y[:, 1].isnan().all(), (phi, spread)
            assert y[:, [0, 2, 3]].isfinite().all(), (phi, spread)
            assert layer.running_mean[1] == before[1]
            assert (layer.running_mean != before).sum() == 3


def nobody_has_a_value(rank: int) -> None:
    for layer in (geonorm.AugBatchNorm1d(4, process_group="world"), geonorm.PopNorm1d(4, process_group="world")):
        assert layer(torch.empty(0, 4)).shape == (0, 4)
        assert layer.num_batches_tracked == 1  # as torch's
        assert bool((layer.running_mean == 0).all())


def one_value_in_all(rank: int) -> None:
    x = torch.ones(1 if rank else 0, 4)
    for kind in (geonorm.AugBatchNorm1d, geonorm.PopNorm1d):
        assert_refused(lambda kind=kind: kind(4, process_group="world")(x), "more than 1 value per channel", ValueError)
        assert kind(4, process_group="world", single_element="identity")(x).equal(x)
        layer = kind(4, process_group="world", single_element="running")
        assert layer(x).shape == x.shape
        assert layer.num_batches_tracked == 0


def one_value_each_is_enough(rank: int) -> None:
    y = geonorm.AugBatchNorm1d(4, phi=2.0, eps=0.0, process_group="world")(torch.full((1, 4), float(rank)))
    torch.testing.assert_close(y, torch.full((1, 4), 2.0 * rank - 1))


def weights_and_masks(rank: int) -> None:
    whole, x = whole_and_part(rank)
    share = torch.rand(whole.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    share[:5] *= torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)  # the first process counts for nothing there
    mine = share.split([5, 9])[rank]
    for phi in (1.0, 1.3, 2.0, math.inf):
        for spread in ("rms", "robust"):
            expected = aug_norm(whole, 0, phi, spread=spread, element_weight=share)
            found = aug_norm(x, 0, phi, spread=spread, element_weight=mine, process_group="world")
            torch.testing.assert_close(found.output, expected.output.split([5, 9])[rank])
            torch.testing.assert_close(found.statistics.center, expected.statistics.center)
            torch.testing.assert_close(found.statistics.mass, expected.statistics.mass)


def hard_values(rank: int) -> None:
    whole, x = whole_and_part(rank)
    for factor in (1e150, 1e-150, 1e300):
        expected = aug_norm(whole * factor, 0, 1.5, eps=0.0).statistics.center
        found = aug_norm(x * factor, 0, 1.5, eps=0.0, process_group="world").statistics.center
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0.0)
    zeros, mine = whole.relu(), x.relu()
    mine[:, 0], zeros[:, 0] = 3.0, 3.0
    for phi in (1.0, 1.2, 1.5, 3.0):
        expected = aug_norm(zeros, 0, phi).statistics.center
        torch.testing.assert_close(aug_norm(mine, 0, phi, process_group="world").statistics.center, expected)


def half_precision(rank: int) -> None:
    whole, x = whole_and_part(rank)
    for dtype in (torch.bfloat16, torch.float16):
        expected = aug_norm(whole.to(dtype), 0, 1.5).statistics.center
        found = aug_norm(x.to(dtype), 0, 1.5, process_group="world")
        assert found.output.dtype == dtype
        torch.testing.assert_close(found.statistics.center, expected, rtol=1e-5, atol=1e-6)


def statistics_have_gradients(rank: int) -> None:
    """A loss on the statistics: every process adds its own, as every process has its own use for them."""
    whole, x = whole_and_part(rank)
    whole.requires_grad_()
    x.requires_grad_()
    expected = aug_norm(whole, 0, 1.5, spread="robust").statistics
    (expected.center.sum() * 3 + expected.spread.square().sum() * 3).backward()
    found = aug_norm(x, 0, 1.5, spread="robust", process_group="world").statistics
    ((found.center.sum() + found.spread.square().sum()) * (rank + 1)).backward()
    torch.testing.assert_close(x.grad, whole.grad.split([5, 9])[rank])


def second_derivatives_are_refused(rank: int) -> None:
    _, x = whole_and_part(rank)
    x.requires_grad_()
    y = aug_norm(x, 0, 1.5, process_group="world").output
    assert_refused(lambda: torch.autograd.grad(y.square().sum(), x, create_graph=True), "no second derivative")


def evaluation_asks_nobody(rank: int) -> None:
    layer = geonorm.AugBatchNorm1d(4, process_group="world").eval()
    if rank == 0:  # alone: it would wait for ever
        layer(torch.randn(3, 4))
        geonorm.recalibrate(nn.Sequential(layer), [torch.randn(6, 4)])


def a_group_of_one_is_alone(rank: int) -> None:
    groups = [dist.new_group([member]) for member in range(WORLD_SIZE)]
    _, x = whole_and_part(rank)
    layer = geonorm.AugBatchNorm1d(4, phi=1.5, dtype=torch.float64, process_group=groups[rank])
    assert layer.process_group == groups[rank].group_name
    torch.testing.assert_close(layer(x), geonorm.AugBatchNorm1d(4, phi=1.5, dtype=torch.float64)(x))
    assert_refused(
        lambda: (
            aug_norm(x, 0, process_group=groups[1 - rank].group_name)
            if groups[1 - rank] is not dist.GroupMember.NON_GROUP_MEMBER
            else aug_norm(x, 0, process_group="nobody")
        ),
        "process group named",
    )


def bad_groups(rank: int) -> None:
    _, x = whole_and_part(rank)
    assert_refused(lambda: geonorm.AugBatchNorm1d(4, process_group=7), "ProcessGroup", TypeError)  # type: ignore[arg-type]
    assert_refused(lambda: geonorm.PopNorm1d(4, process_group="nobody")(x.float()), "named 'nobody'")
    assert_refused(
        lambda: aug_norm(x, batch=torch.zeros(len(x), dtype=torch.int64), process_group="world"),
        "not both",
        ValueError,
    )


def the_same_collectives_everywhere(rank: int) -> None:
    """Their number does not depend on what a process has."""
    for phi in (1.0, 1.2, 2.0):
        for sizes in ((5, 9), (0, 30), (1, 20000)):
            _, x = whole_and_part(rank, sizes, seed=int(10 * phi))
            x.requires_grad_()
            with count_collectives() as number:
                aug_norm(x, 0, phi, spread="robust", process_group="world").output.sum().backward()
            numbers: list[Any] = [None] * WORLD_SIZE
            dist.all_gather_object(numbers, number[0])
            assert len(set(numbers)) == 1, numbers
            assert phi != 2 or number[0] < 20, number


# Living with it


def copies_keep_their_group(rank: int) -> None:
    _, x = whole_and_part(rank)
    layer = geonorm.AugBatchNorm1d(4, dtype=torch.float64, process_group=dist.group.WORLD)
    assert layer.process_group == "world"
    assert "process_group='world'" in repr(layer)
    expected = layer(x)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.process_group == "world"
        torch.testing.assert_close(other(x), expected)
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    geonorm.AugBatchNorm1d(4).load_state_dict(torch.load(buffer, weights_only=True))


def same_when_compiled(rank: int, eager: nn.Module, backend: str = "aot_eager") -> None:
    _, x = whole_and_part(rank, shape=(4,))
    torch._dynamo.reset()
    traced = copy.deepcopy(eager)
    run = torch.compile(traced, fullgraph=True, backend=backend)
    results = []
    for function in (eager, run):
        values = x.clone().requires_grad_()
        y = function(values)
        y.square().mul(torch.arange(4.0)).sum().backward()
        results.append((y.detach(), values.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)
    for mine, other in zip(eager.parameters(), traced.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-9, atol=1e-9)
    for mine, other in zip(eager.buffers(), traced.buffers(), strict=True):
        torch.testing.assert_close(mine, other)


def compiled_with_other_sizes(rank: int) -> None:
    """A compiler merges equal collectives: those of two layers must not be equal in one process only."""
    torch._dynamo.reset()
    _, x = whole_and_part(rank, (6, 0), shape=(4, 4, 4))
    _, z = whole_and_part(rank, (5, 6), shape=(4, 2, 2), seed=1)
    layers = [geonorm.AugBatchNorm2d(4, phi=2.0, dtype=torch.float64, process_group="world") for _ in range(3)]

    def run(x: Tensor, z: Tensor) -> Tensor:
        return layers[1](nn.functional.avg_pool2d(layers[0](x), 2)).square().sum() + layers[2](z).sum()

    x.requires_grad_()
    torch.compile(run, fullgraph=True, backend="aot_eager")(x, z).backward()
    assert x.grad is not None
    torch.testing.assert_close(
        layers[2].running_mean, 0.1 * whole_and_part(0, (11,), shape=(4, 2, 2), seed=1)[0].mean((0, 2, 3))
    )


def compiled_with_all_sweeps_it_needs(rank: int) -> None:
    """The collectives are inside of the operator: nothing has to be known of their number."""
    layer = geonorm.AugBatchNorm1d(4, phi=1.5, spread="robust", dtype=torch.float64, process_group="world")
    same_when_compiled(rank, layer)


def compiled_in_many_ways(rank: int, size: int) -> None:
    compiled_with_other_sizes(rank)
    for options in (
        {"phi": 2.0},
        {"phi": 1.5},
        {"phi": 1.5, "sweeps": 8},
        {"phi": 1.0},
        {"spread": "robust"},
        {"learn_phi": True},
    ):
        for kind in (geonorm.AugBatchNorm1d, geonorm.PopNorm1d):
            same_when_compiled(rank, kind(4, dtype=torch.float64, process_group="world", **options))
    layer = geonorm.AugBatchNorm1d(4, phi=1.5, spread="robust", dtype=torch.float64, process_group="world")
    same_when_compiled(rank, layer, backend="inductor")


CASES = [
    nan_stays_in_its_channel,
    nobody_has_a_value,
    one_value_in_all,
    one_value_each_is_enough,
    weights_and_masks,
    hard_values,
    half_precision,
    statistics_have_gradients,
    second_derivatives_are_refused,
    evaluation_asks_nobody,
    a_group_of_one_is_alone,
    bad_groups,
    the_same_collectives_everywhere,
    copies_keep_their_group,
    compiled_with_all_sweeps_it_needs,
    ddp_follows_one_process,
    ddp_two_forwards_and_accumulation,
    ddp_with_parameters_unused_here_and_there,
    torch_func_is_refused,
    bad_weights_are_everybodys_business,
    fsdp,
    checkpoints,
    activation_checkpointing,
]


def run_all(rank: int, size: int) -> list[str]:
    """The failures. A case that fails on one process only would leave the others waiting: the first one ends it."""
    import warnings

    warnings.simplefilter("ignore")
    for case in CASES:
        try:
            case(rank)
            dist.barrier()
        except BaseException as error:
            raise AssertionError(f"{case.__name__}: {error}") from error
    return [case.__name__ for case in CASES]


def test_two_processes() -> None:
    for names in run_in_processes(WORLD_SIZE, run_all):
        assert len(names) == len(CASES)


@pytest.mark.slow
def test_compiled_in_many_ways() -> None:
    run_in_processes(WORLD_SIZE, compiled_in_many_ways, timeout=600)


def test_pop_norm_takes_a_group_too() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        pop_norm(torch.randn(4, 3), 0, process_group="world")


def _ends_with_its_group(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    for _ in range(2):  # a second group is another one, whatever its name
        dist.init_process_group("gloo", rank=rank, world_size=2)
        layer = geonorm.AugBatchNorm1d(4, process_group="world")
        layer(torch.randn(8, 4)).sum().backward()
        world = weakref.ref(dist.group.WORLD)
        dist.destroy_process_group()
        gc.collect()
        assert world() is None, "a group that outlives its end aborts the interpreter"


def test_no_group_is_kept_alive() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_ends_with_its_group, (port,), nprocs=2)
