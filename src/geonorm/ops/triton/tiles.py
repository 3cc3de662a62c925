"""How the programs of a launch share the values: tiles of members × groups."""

from __future__ import annotations

from typing import NamedTuple

from .layout import Layout

SMALL = 8192  # groups of up to so many values stay in registers
SAMPLE = 4096  # values of a larger group that the search starts from
_TILE = 1024  # values of a tile
_MOST_PARTS = 64  # of a group: every program adds up the sums of all parts
_LANES = 8  # groups of a tile where neighbours in memory belong to different groups: a sector of memory
_CHAIN = 8  # tiles whose sums are added in float32


class Parts(NamedTuple):
    """A grid over groups × parts of a group; a part is OUTER × INNER tiles of BM members of BG groups."""

    grid: tuple[int, int]
    BM: int
    BG: int
    OUTER: int
    INNER: int
    PARTS: int
    EVEN: bool

    def summing(self) -> dict[str, int | bool]:
        """The constants of a kernel that writes sums."""
        return {name: getattr(self, name) for name in ("BM", "BG", "OUTER", "INNER", "PARTS", "EVEN")}

    def writing(self) -> dict[str, int | bool]:
        """The constants of a kernel that writes values."""
        return {"BM": self.BM, "BG": self.BG, "TILES": self.OUTER * self.INNER, "EVEN": self.EVEN}


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def blocks(number: int, size: int) -> int:
    """How many blocks cover a number."""
    return -(-number // size)


def parts_of(at: Layout) -> Parts:
    """How to share the values of all groups."""
    if at.j_inner == 1 or at.m == 1:  # a group's values lie side by side
        BM = min(_TILE, power_of_two(at.m))
        BG = min(_TILE // BM, power_of_two(at.G))
    else:
        BG = min(_LANES, power_of_two(at.G))
        BM = min(_TILE // 2 // BG, power_of_two(at.m))  # a thread has the numbers of several groups: fewer values
    tiles = blocks(at.m, BM)
    divisors = [d for d in range(1, _CHAIN + 1) if tiles % d == 0]
    INNER = divisors[-1] if at.m % BM == 0 and divisors[-1] > 2 else min(_CHAIN, tiles)
    chains = blocks(tiles, INNER)
    fewest = blocks(chains, _MOST_PARTS)
    OUTER = next((d for d in range(fewest, 2 * fewest) if chains % d == 0), fewest)
    PARTS = blocks(chains, OUTER)
    EVEN = at.m == PARTS * OUTER * INNER * BM and at.G % BG == 0
    return Parts((blocks(at.G, BG), PARTS), BM, BG, OUTER, INNER, PARTS, EVEN)


def in_registers(at: Layout) -> dict[str, int]:
    """Tile and warps of a kernel that holds whole groups. Every thread has the numbers of all groups it has values of:
    few groups, and few enough values that nothing is spilled."""
    BM = power_of_two(at.m)
    side_by_side = at.j_inner == 1 or at.m == 1
    BG = min(power_of_two(at.G), max(1, min(4, 512 // BM) if side_by_side else min(_LANES, 4096 // BM)))
    return {"BM": BM, "BG": BG, "num_warps": max(1, min(8, BM * BG // 512))}


def segments_tile(features: int) -> dict[str, int]:
    """Tile and warps of a program for one segment. A thread has one value, so that it has the numbers of one group."""
    BG = min(_LANES, power_of_two(features))
    return {"BM": 32, "BG": BG, "num_warps": BG}


def sample_of(at: Layout) -> dict[str, int]:
    """The values that a search starts from, in runs of neighbours that fill a sector of memory."""
    run = 8 if at.j_inner == 1 else 1
    count = min(at.m, SAMPLE if at.j_inner == 1 else SAMPLE // 4) // run * run or at.m
    run = run if count % run == 0 else 1
    BG = 1 if at.j_inner == 1 else min(4, power_of_two(at.G))
    return {
        "count": count,
        "run_stride": at.m // (count // run),
        "RUN": run,
        "BM": power_of_two(count),
        "BG": BG,
        "num_warps": 8,
    }
