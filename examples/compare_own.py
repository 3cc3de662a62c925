"""Your own model and data under several norms, compared and reported.

    python examples/compare_own.py

Give ``compare`` a function that makes the model and one that makes the data; the model's norms are converted. The last
few lines do all the work. Results go to out/compare_own/results.sqlite: started again, it resumes where it stopped.
Needs ``pip install "geonorm[lab,plots]"``.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset

from geonorm.lab import compare, report


def make_model() -> nn.Module:
    """A classifier with BatchNorm, as one would write it."""
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def make_data() -> tuple[TensorDataset, TensorDataset]:
    """Four classes, 20 features: training samples and test samples."""
    generator = torch.Generator().manual_seed(0)
    points, label = torch.randn(4, 20, generator=generator), torch.randint(4, (1500,), generator=generator)
    x = points[label] + 1.5 * torch.randn(1500, 20, generator=generator)
    return TensorDataset(x[:1000], label[:1000]), TensorDataset(x[1000:], label[1000:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare norms in your own model, on your own data.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="out/compare_own")
    chosen = parser.parse_args()

    found = compare(
        make_model,
        make_data,
        norms=["own", "gn(groups=1)", "augbn(phi=1.5)", "robustbn"],
        corruptions=["clean", "offset(share=0.1)"],
        seeds=chosen.seeds,
        epochs=chosen.epochs,
        store=f"{chosen.out}/results.sqlite",
    )
    print(found.table(), report.answer(found), sep="\n\n")
    print("Page:", report.write(found, chosen.out))
