"""The tables of docs/findings.md from stored results: ``python -m benchmarks.findings`` writes them."""

from __future__ import annotations

from functools import cache

from benchmarks.pages import put
from benchmarks.run import DOCS
from studies.index import all_stored
from studies.page import markdown
from studies.verdicts import PENDING, Verdict

PAGE = DOCS / "findings.md"
# For each paper, the pages of studies and claims on them.
MAIN = {
    "augnorm": [
        ("augnorm-cifar", "Mean of five networks: AugNorm at φ=1.5 improves or matches BatchNorm"),
        ("augnorm-cifar", "Mean of five networks: AugNorm at φ=1.5 is better than the median"),
        (
            "augnorm-graphs-paper",
            "AugNorm at φ=1.5 is better than BatchNorm, at the best epoch of the mean over the folds",
        ),
        (
            "augnorm-graphs-paper",
            "AugNorm at φ=1.5 is comparable to GraphNorm or better, at the best epoch of the mean over the folds",
        ),
        (
            "augnorm-graphs-paper",
            "MUTAG, φ=1.5: eight Newton steps come as close as float16 can tell, in all but 5 % of channels",
        ),
        ("augnorm-shift", "CelebA: under χ², CVaR and CVaR-DORO φ=1.5 has a better worst group than BatchNorm"),
        (
            "augnorm-shift",
            "Gaussian classes: under χ², CVaR and CVaR-DORO φ=1.5 has a better worst group than BatchNorm",
        ),
        ("augnorm-phi", "Digits, one pixel: φ=1.5 with robust spread is better than BatchNorm"),
        ("augnorm-phi", "Digits, one pixel: φ=1.5 with robust spread is better than LayerNorm"),
        ("augnorm-corruptions", "AugNorm, φ=1.5 is more accurate than BatchNorm on worse images"),
    ],
    "popnorm": [
        ("popnorm-accuracy", "POP-Norm is more accurate than BatchNorm, mean of all settings"),
        ("popnorm-kappa", "κ=4 ends with a lower training loss than κ=1, mean of three activations"),
        (
            "popnorm-kappa",
            "κ=16 is too much: κ=4 ends with a lower training loss than κ=16, mean of three activations",
        ),
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
            "Weights of the last layer: Lipschitz constant falls as κ grows, mean of three activations",
        ),
        (
            "popnorm-theory",
            "Sigmoid and Tanh: Lipschitz constant of the gradient lower under POP-Norm, κ=4, than under BatchNorm",
        ),
        ("popnorm-theory", "Sigmoid: BatchNorm's mean removal is destroyed (mean²/rms² over 0.5)"),
    ],
    "geometry": [
        ("geometry-growth", "weights grow without weight decay, by more than 1 % (mean over norms)"),
        (
            "geometry-growth",
            "with weight decay they stop growing (mean over norms; second half of the training: less than 1 %)",
        ),
        (
            "geometry-robustness",
            "CIFAR-10: larger weights amplify attacks: under BIM the same network is more than 0.8 points worse with "
            "weights × 10 than with weights × 0.1 (mean over 4 norms)",
        ),
        (
            "geometry-robustness",
            "CIFAR-100: weight decay raises the accuracy under noise and BIM (mean over 4 norms)",
        ),
        ("geometry-moments", "γ² ends near σ²: |γ² − σ²| / (γ² + σ²) is below 0.33"),
        (
            "geometry-sphere",
            "SphereSGD is more stable: it loses less accuracy at the rates below and above its best one",
        ),
        (
            "geometry-prune",
            "merging 10 % of channels with ones close in (γ, β) maintains accuracy (within 0.8 points)",
        ),
        ("geometry-batch", "a batch as large as the width is best (mean over widths and budgets)"),
    ],
}


def table(paper: str) -> str:
    """The main claims about a paper, each with its verdict if its trainings are done."""
    rows = []
    for page, claim in MAIN[paper]:
        one = verdicts().get((page, claim), Verdict(claim, "", "", PENDING, ""))
        rows.append([one.claim, f"**{one.verdict}**", one.published, one.ours, f"[{page}](reproduce/{page}.md)"])
    return markdown(("claim", "verdict", "published", "ours", "more"), rows)


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
