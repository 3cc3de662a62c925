"""The tables of docs/findings.md from stored results: ``python -m benchmarks.findings`` writes them."""

from __future__ import annotations

from functools import cache

from benchmarks.pages import put
from benchmarks.run import DOCS
from studies.index import all_stored
from studies.page import markdown
from studies.verdicts import Verdict

PAGE = DOCS / "findings.md"
# For each paper, the pages of studies and claims on them.
MAIN = {
    "augnorm": [
        ("augnorm-cifar", "Mean of five networks: AugNorm at φ=1.5 improves or matches BatchNorm"),
        ("augnorm-cifar", "Mean of five networks: AugNorm at φ=1.5 is better than the median"),
        (
            "augnorm-graphs-paper",
            "MUTAG, the paper's words, best epoch of each fold: AugNorm at φ=1.5 is better than BatchNorm",
        ),
        (
            "augnorm-graphs-paper",
            "MUTAG, the paper's words, mean of the last quarter: AugNorm at φ=1.5 is comparable to GraphNorm or better",
        ),
        (
            "augnorm-graphs-paper",
            "MUTAG, batches of 8: a learned φ without bounds may end in NaN (Newton steps through autograd)",
        ),
        (
            "augnorm-shift",
            "Gaussian classes: under χ², CVaR and CVaR-DORO φ=1.5 has a better worst group than BatchNorm",
        ),
        ("augnorm-phi", "Digits, one pixel: φ=1.5 with robust spread is better than BatchNorm"),
        ("augnorm-phi", "Digits, one pixel: φ=1.5 with robust spread is better than LayerNorm"),
        ("augnorm-corruptions", "AugNorm, φ=1.5 is more accurate than BatchNorm on worse images"),
    ],
    "popnorm": [
        (
            "popnorm-imagenet",
            "A folder of small images (CIFAR-10's in the stored results), ResNet-18 with a quarter of the channels: "
            "POP-Norm has a higher top-1 accuracy than BatchNorm",
        ),
        ("popnorm-theory", "POP-Norm stands a larger rate than no normalization, mean of three activations"),
        (
            "popnorm-theory",
            "At the same weights POP-Norm lowers the condition number of E[xxᵗ], mean of three activations",
        ),
        (
            "popnorm-theory",
            "Weights before another POP-Norm: Lipschitz constant falls as κ grows, mean of three activations",
        ),
        (
            "popnorm-theory",
            "Sigmoid and Tanh: Lipschitz constant of the gradient lower under POP-Norm, κ=4, than under BatchNorm",
        ),
        ("popnorm-theory", "Sigmoid: BatchNorm's mean removal is destroyed (mean²/rms² over 0.5)"),
    ],
    "geometry": [
        ("geometry-growth", "BatchNorm: the weight grows without weight decay"),
        ("geometry-growth", "BatchNorm: weight decay keeps it shorter"),
        (
            "geometry-robustness",
            "CIFAR-10, BatchNorm: larger weights amplify attacks (the same network, weights × 0.1 against × 10)",
        ),
        ("geometry-robustness", "CIFAR-10, BatchNorm: weight decay raises the accuracy under BIM"),
        ("geometry-moments", "rate 0.05: γ² ends near σ²: |γ² − σ²| is below 10 % of γ² + σ²"),
        ("geometry-sphere", "SphereSGD tolerates more rates (mean accuracy over all rates)"),
        (
            "geometry-prune",
            "merging 10 % of channels with ones close in (γ, β) maintains accuracy (within 1 point), "
            "without weight decay",
        ),
        ("geometry-batch", "width 128, as many steps: a batch of 128 is best"),
    ],
}


def table(paper: str) -> str:
    """The main claims about a paper, each with its verdict."""
    rows = [
        [one.claim, one.published, one.ours, f"**{one.verdict}**", f"[{page}](reproduce/{page}.md)"]
        for page, claim in MAIN[paper]
        for one in [verdicts()[page, claim]]
    ]
    return markdown(("claim", "published", "ours", "verdict", "more"), rows)


@cache
def verdicts() -> dict[tuple[str, str], Verdict]:
    """All verdicts, by page and claim."""
    return {
        (study.name if found.preset == "laptop" else f"{study.name}-{found.preset}", one.claim): one
        for study, found in all_stored(DOCS.parent / "results")
        for one in study.page(found).verdicts
    }


def main() -> None:
    for paper in MAIN:
        put(PAGE, paper, table(paper))


if __name__ == "__main__":
    main()
