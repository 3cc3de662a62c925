"""Checks that every process of a group runs on whole models: DDP, FSDP, torch.func, checkpoints."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import geonorm
from geonorm.functional import aug_norm
from helpers.process_group import WORLD_SIZE, assert_refused, whole_and_part


def net() -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)
    )
    geonorm.convert(model, "augbn(phi=1.5)", where="4")
    return model.double()


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) - x[:, :2].sin()).square().sum()


def same_parameters(model: nn.Module, other: nn.Module, tolerance: float) -> None:
    found, expected = model.state_dict(), other.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: n + m)


def ddp_follows_one_process(rank: int) -> None:
    """50 steps with the sum of losses; DDP averages gradients over processes, so the loss is multiplied by them."""
    alone, joint = net(), net()
    geonorm.sync(joint)
    wrapped = DistributedDataParallel(joint)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9) for m in (alone, joint)]
    for step in range(50):
        sizes = (9, 3) if step % 2 else (6, 6)
        whole, x = whole_and_part(rank, sizes, seed=step)
        for optimizer, model, batch, factor in (
            (optimizers[0], alone, whole, 1),
            (optimizers[1], wrapped, x, WORLD_SIZE),
        ):
            optimizer.zero_grad()
            (loss_of(model, batch) * factor).backward()
            optimizer.step()
    same_parameters(joint, alone, 1e-9)


def ddp_two_forwards_and_accumulation(rank: int) -> None:
    for unused in (False, True):
        alone, joint = net(), net()
        geonorm.sync(joint)
        wrapped = DistributedDataParallel(joint, find_unused_parameters=unused, broadcast_buffers=False)
        (first, a), (second, b) = whole_and_part(rank, seed=1), whole_and_part(rank, (2, 8), seed=2)
        (loss_of(alone, first) + loss_of(alone, second)).backward()
        (loss_of(alone, first)).backward()
        ((loss_of(wrapped, a) + loss_of(wrapped, b)) * WORLD_SIZE).backward()
        (loss_of(wrapped, a) * WORLD_SIZE).backward()
        for mine, other in zip(joint.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-9, atol=1e-9)
        alone, joint = net(), net()
        geonorm.sync(joint)
        wrapped = DistributedDataParallel(joint, find_unused_parameters=unused)
        with wrapped.no_sync():
            (loss_of(wrapped, a) * WORLD_SIZE).backward()
        (loss_of(wrapped, b) * WORLD_SIZE).backward()
        loss_of(alone, first).backward()
        loss_of(alone, second).backward()
        for mine, other in zip(joint.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-9, atol=1e-9)


class TwoWays(nn.Module):
    """Two ways in: each process leaves the other one unused."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = geonorm.AugBatchNorm1d(64, phi=1.5), nn.Linear(64, 2)
        self.a, self.b = nn.Linear(4, 64), nn.Linear(4, 64)

    def forward(self, x: Tensor, first: bool) -> Tensor:
        y: Tensor = self.head(self.norm((self.a if first else self.b)(x)))
        return y


def ddp_with_parameters_unused_here_and_there(rank: int) -> None:
    """Gradients are ready at other times in other processes; norms have a group of their own and do not mind."""
    torch.manual_seed(0)
    model = TwoWays().double()
    geonorm.sync(model)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True, bucket_cap_mb=1e-4)
    for step in range(3):
        _, x = whole_and_part(rank, seed=step)
        wrapped(x, rank == 0).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


def torch_func_is_refused(rank: int) -> None:
    _, x = whole_and_part(rank, (5, 5))
    for phi in (1.0, 1.5, 2.0):

        def output(v: Tensor, phi: float = phi) -> Tensor:
            return aug_norm(v, 0, phi, process_group="world").output

        assert_refused(lambda output=output: torch.func.vmap(output)(x.expand(3, 5, 4)), "torch.func")
        assert_refused(lambda output=output: torch.func.grad(lambda v: output(v).sum())(x), "torch.func")


def bad_weights_are_everybodys_business(rank: int) -> None:
    _, x = whole_and_part(rank)
    for wrong in (-1.0, math.nan, math.inf):
        share = torch.ones_like(x)
        share[0, 0] = wrong if rank == 1 else 1.0
        assert_refused(
            lambda share=share: aug_norm(x, 0, 1.5, element_weight=share, process_group="world"), "weight", ValueError
        )


def fsdp(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    alone, joint = net(), net()
    geonorm.sync(joint)
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    fully_shard(joint, mesh=mesh)
    optimizers = [torch.optim.SGD(m.parameters(), lr=1e-3) for m in (alone, joint)]
    for step in range(3):
        whole, x = whole_and_part(rank, seed=step)
        for optimizer, model, batch, factor in (
            (optimizers[0], alone, whole, 1),
            (optimizers[1], joint, x, WORLD_SIZE),
        ):
            optimizer.zero_grad()
            (loss_of(model, batch) * factor).backward()
            optimizer.step()
    for (name, mine), other in zip(joint.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.full_tensor(), other, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: n + m)


def checkpoints(rank: int) -> None:
    import torch.distributed.checkpoint as dcp

    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder)
    model = net()
    geonorm.sync(model)
    loss_of(model, whole_and_part(rank)[1]).backward()
    for parameter in model.parameters():
        parameter.data += 1
    dcp.save({"model": model.state_dict()}, checkpoint_id=Path(folder[0]) / "step")
    again = net()
    geonorm.sync(again)
    state = {"model": again.state_dict()}
    dcp.load(state, checkpoint_id=Path(folder[0]) / "step")
    again.load_state_dict(state["model"])
    same_parameters(again, model, 0.0)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def activation_checkpointing(rank: int) -> None:
    from torch.utils.checkpoint import checkpoint

    _, x = whole_and_part(rank)
    plain, saving = (geonorm.AugBatchNorm1d(4, dtype=torch.float64, process_group="world") for _ in range(2))
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    plain(inputs[0]).square().sum().backward()
    checkpoint(saving, inputs[1], use_reentrant=False).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
