"""Train on several processes with statistics over all of them, and resume after any interruption.

On one machine, two processes:

    torchrun --nproc_per_node 2 examples/train_ddp.py

On two machines, four processes each, the same line on both (node-0 is the name of one of them):

    torchrun --nnodes 2 --nproc_per_node 4 --rdzv_backend c10d --rdzv_endpoint node-0:29500 examples/train_ddp.py

The task has four classes and 20 features; every tenth training sample is broken: a sensor adds 20 to all of its
features. The model was written with BatchNorm; ``convert`` and ``sync`` are the only two lines of geonorm.

The first process writes a checkpoint after every epoch. Started again, all processes resume from it, and end with the
same weights as a run that was never interrupted. Needs only torch and geonorm; without torchrun it is one process.
"""

from __future__ import annotations

import argparse
import datetime
import io
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import geonorm

FEATURES, CLASSES = 20, 4


def main() -> None:
    """Parse the arguments, train, print the result."""
    parser = argparse.ArgumentParser(description="Multi-process training with geonorm.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per process (default: %(default)s)")
    parser.add_argument("--norm", default="augbn(phi=1.5)", help="a spec of geonorm.norms() (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, default=Path("out/train_ddp.pt"))
    chosen = parser.parse_args()

    os.environ.setdefault("MASTER_ADDR", "localhost")  # without torchrun: one process
    os.environ.setdefault("MASTER_PORT", "0")
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if on_gpu else torch.device("cpu")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", rank=rank, world_size=size, timeout=datetime.timedelta(minutes=2)
    )
    try:
        train(chosen, rank, size, device)
    finally:
        dist.destroy_process_group()


def train(chosen: argparse.Namespace, rank: int, size: int, device: torch.device) -> None:
    """Train the epochs that the checkpoint does not have yet."""
    torch.manual_seed(0)  # the same initial weights in every process
    model = nn.Sequential(
        nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, CLASSES),
    ).to(device)  # fmt: skip
    geonorm.convert(model, chosen.norm)
    geonorm.sync(model)
    joint: nn.Module = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    train_set, test_set = dataset(4001, seed=1, faulty=0.1), dataset(2000, seed=2, faulty=0.0)
    sampler = DistributedSampler(train_set, size, rank, seed=0)
    loader = DataLoader(train_set, chosen.batch_size, sampler=sampler)

    start = resume(chosen.checkpoint, model, optimizer, device, rank)
    for epoch in range(start, chosen.epochs):
        sampler.set_epoch(epoch)  # a different order in every epoch, the same after a restart
        loss = one_epoch(joint, optimizer, loader, device)
        correct = accuracy(model, test_set, rank, size, device)
        if rank == 0:
            save(chosen.checkpoint, model, optimizer, epoch + 1)
            print(f"epoch {epoch + 1}/{chosen.epochs}: loss {loss:.3f}, clean test accuracy {correct:.1%}", flush=True)
    if rank == 0:
        print(f"Done; the model is in {chosen.checkpoint}", flush=True)


def dataset(number: int, seed: int, faulty: float) -> TensorDataset:
    """Samples around one point per class; a fraction of them has an offset in all features."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    label = torch.randint(CLASSES, (number,), generator=generator)
    x = points[label] + 1.5 * torch.randn(number, FEATURES, generator=generator)
    x += 20.0 * (torch.rand(number, 1, generator=generator) < faulty)
    return TensorDataset(x, label)


def one_epoch(
    joint: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any], device: torch.device
) -> float:
    """Train on this process's part of the data; return the mean loss over all processes."""
    joint.train()
    total = torch.zeros(2, device=device)
    for x, label in loader:
        loss = nn.functional.cross_entropy(joint(x.to(device)), label.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item(), 1.0], device=device)
    dist.all_reduce(total)
    return float(total[0] / total[1])


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset, rank: int, size: int, device: torch.device) -> float:
    """Each process tests its part with the running statistics, which are the same everywhere."""
    model.eval()
    x, label = (part[rank::size].to(device) for part in data.tensors)
    counts = torch.tensor([float((model(x).argmax(1) == label).sum()), float(len(x))], device=device)
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Write a temporary file and rename it: a kill leaves the old checkpoint or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, beside)
    os.replace(beside, path)


def resume(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, rank: int) -> int:
    """Load the last checkpoint, if the first process has one; return the epoch to resume from, the same in all."""
    parcel = [path.read_bytes() if rank == 0 and path.exists() else None]
    dist.broadcast_object_list(parcel, device=device)
    if parcel[0] is None:
        return 0
    state: dict[str, Any] = torch.load(io.BytesIO(parcel[0]), map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if rank == 0:
        print(f"Resuming after epoch {state['epoch']} of {path}", flush=True)
    return int(state["epoch"])


if __name__ == "__main__":
    main()
