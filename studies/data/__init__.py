"""Data that only studies use; ``register_all`` makes them known to the lab."""

from __future__ import annotations

from geonorm.lab.data import register

from . import adult, celeba, civil_comments, compas, marked_cifar, regular_graphs


def register_all() -> None:
    """Make the data known by their names."""
    register("compas", "7214 people, did they offend again; as in DORO", compas.compas, compas.PLACES, compas.HOW)
    register("adult", "48842 people, income over 50,000 dollars", adult.adult, adult.PLACES, adult.HOW)
    register("celeba", "faces, blond or not, 16 overlapping groups", celeba.celeba, celeba.PLACES, celeba.HOW)
    register(
        "civilcomments",
        "comments as precomputed features, toxic or not; as in WILDS",
        civil_comments.civil_comments,
        civil_comments.PLACES,
        civil_comments.HOW,
    )
    register(
        "marked_cifar10",
        "CIFAR-10, animals or vehicles, with a mark that misleads",
        marked_cifar.marked_cifar10,
        marked_cifar.PLACES,
        marked_cifar.HOW,
    )
    register(
        "regular_graphs",
        "synthetic graphs; the degree of all nodes is the class",
        regular_graphs.regular_graphs,
    )
