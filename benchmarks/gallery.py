"""The gallery of planted faults: the output of ``diagnose`` for each, and code that fixes it, run here.

``python -m benchmarks.gallery`` takes half a minute and writes ``docs/analysis/gallery.md``. It raises if a finding
remains after its fix.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

import geonorm
from benchmarks import faults
from benchmarks.faults import Fault
from benchmarks.faults_in_use import IN_USE
from benchmarks.pages import put
from geonorm.analysis import Diagnosis, diagnose
from geonorm.optim import project_scale_invariant

PAGE = Path(__file__).parents[1] / "docs" / "analysis" / "gallery.md"
_RECALIBRATE = "geonorm.recalibrate(model, batches)"
_INVARIANT = f"project_scale_invariant(model.train(), radius=1.0)    # of geonorm.optim\n{_RECALIBRATE}"
_GROUPS = 'geonorm.convert(model, "auggroup(groups=8)")           # needs no batch'

# The code that fixes each fault. `checkpoint` is a state_dict from before it happened.
SECTIONS: dict[str, dict[str, str]] = {
    "Channels that do nothing": {
        "γ of a channel is 1e-6": "model.norm.weight.data[3] = 1.0    # or remove it: geonorm.analysis.remove_channels",
        "weights of a channel times 1e-6": f"nn.init.kaiming_uniform_(model.conv.weight.data[3:4])\n{_RECALIBRATE}",
        "weights of a channel see a constant pixel only": (
            f"nn.init.normal_(model[1].weight.data[5], std=0.03)\n{_RECALIBRATE}"
        ),
        "weights of a channel are 3 times another's": (
            f"nn.init.kaiming_uniform_(model.conv.weight.data[2:3])\n{_RECALIBRATE}"
        ),
        "β of a channel is −20, in front of a ReLU": "model.blocks[0].norm1.bias.data[1] = 0.0",
    },
    "Too few values": {
        "batch of 4 for a width of 768": _GROUPS,
        "batch of 2 in front of a dense layer": _GROUPS,
        "batch of 1 in front of a dense layer": _GROUPS,
        "InstanceNorm on 1×1 images": "model[1] = nn.GroupNorm(1, 8)    # over the channels",
        "GroupNorm with one channel per group on 1×1 images": "model[1] = nn.GroupNorm(1, 8)    # over the channels",
    },
    "Running statistics": {
        "running mean of one channel off by 3": _RECALIBRATE,
        "running variances 10 times too large": _RECALIBRATE,
        "an Inf in a running variance": _RECALIBRATE,
        "a negative running variance": _RECALIBRATE,
        "the model in evaluation, never trained": f"{_RECALIBRATE}    # better: train it, or load a checkpoint",
    },
    "Settings": {
        "one norm in evaluation, the model in training": "model.train()    # if it is wanted: geonorm.freeze(model)",
        "momentum is 0": "model.norm.momentum = 0.1",
        "momentum is 1": "model.norm.momentum = 0.1",
        "momentum is 9": f"model.norm.momentum = 0.1\n{_RECALIBRATE}",
        "eps is 0.5": "model.norm.eps = 1e-5",
        "a bias in front of a BatchNorm": 'model.conv.register_parameter("bias", None)    # or bias=False at first',
        "two BatchNorms in a row": "model.norm = model.norm[0]",
        "one BatchNorm in two places": f"model.blocks[0].norm2 = nn.BatchNorm2d(8)\n{_RECALIBRATE}",
    },
    "In use": {fault.what: fault.fix for fault in IN_USE},
    "Numbers": {
        "a NaN in a convolution's weight": "model.load_state_dict(checkpoint)    # from before it happened",
        "roots of negative numbers in front of a norm": "model[2] = nn.Softplus()    # whatever has no NaN",
        "weights in front of a BatchNorm times 1000": _INVARIANT,
        "weights in front of a BatchNorm times 1e-5": _INVARIANT,
        "one image in 16 is 30 brighter": (
            "batches = [batch[batch.mean((1, 2, 3)) < 10] for batch in batches]    # clean the data"
        ),
    },
}


class Shown(NamedTuple):
    """One entry of the gallery."""

    fault: str
    said: str
    fix: str
    left: list[str]


def show(fault: Fault, fix: str) -> Shown:
    """Plant a fault, diagnose, fix it, and diagnose again."""
    torch.manual_seed(0)
    model, batches = fault.plant(*faults.healthy())
    told = diagnose(model, batches, **fault.options)
    inside = {"model": model, "batches": batches, "nn": nn, "torch": torch, "geonorm": geonorm}
    inside |= {"checkpoint": faults.healthy()[0].state_dict(), "project_scale_invariant": project_scale_invariant}
    exec(fix, inside)
    after = diagnose(inside["model"], inside["batches"], **fault.options)
    if faults.hits_of(after, fault):
        raise AssertionError(f"{fault.what}: still there after the fix\n{after}")
    return Shown(fault.what, said(told, fault), fix, sorted({f"{f.layer}: {f.kind}" for f in after.alarms()}))


def said(told: Diagnosis, fault: Fault) -> str:
    """The finding as ``print`` shows it."""
    paragraphs = told.text(width=110).split("\n\n")
    hit = faults.hits_of(told, fault)[0]
    cause = next(f for f in told.findings if hit in (f, *f.consequences))
    return next(p for p in paragraphs if p.split("\n")[0].endswith(f"  {cause.layer}: {cause.kind}"))


def entry(shown: Shown) -> str:
    """The entry as Markdown."""
    name = shown.fault[0].upper() if shown.fault[0].isascii() else shown.fault[0]
    lines = [
        f"### {name}{shown.fault[1:]}",
        "",
        "```{ .text .wrap }",
        shown.said,
        "```",
        "",
        "Fixed by",
        "",
        "```py",
        shown.fix,
        "```",
        "",
    ]
    if shown.left:
        lines += [f"What is left: {', '.join(shown.left)}.", ""]
    return "\n".join(lines)


def main() -> None:
    torch.set_num_threads(1)
    by_name = {fault.what: fault for fault in faults.FAULTS}
    parts = []
    for section, fixes in SECTIONS.items():
        parts += [f"## {section}\n", *[entry(show(by_name[what], fix)) for what, fix in fixes.items()]]
    put(PAGE, "gallery", "\n".join(parts))


if __name__ == "__main__":
    main()
