"""Calls of the native kernels with random sizes, strides, alignments, dtypes and values, for a sanitized build.

``make test-native-asan`` builds the library with AddressSanitizer and UBSan and runs this, ``make test-native-tsan``
with ThreadSanitizer. Buffers given to the kernels are cut to size by malloc, so that one element too far is noticed.
Several threads call at once. Run as a script.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from geonorm.functional._normalize import make_rule
from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Running, Seen, Segments, choose, cpu
from geonorm.ops.cpu import library
from geonorm.ops.cpu.plan import plan

BAD = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-40, 0.0]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def shape_of(rng: random.Random) -> tuple[int, ...]:
    rank = rng.choice([1, 2, 2, 3, 4])
    if rng.random() < 0.1:  # worth several threads
        limit = {1: 40_000, 2: 300, 3: 44, 4: 16}[rank]
        return tuple(rng.randint(limit // 2, limit) for _ in range(rank))
    limit = {1: 3000, 2: 70, 3: 20, 4: 9}[rank]
    return tuple(rng.choice([1, 2, 3, rng.randint(1, limit)]) for _ in range(rank))


def values_of(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    start = rng.randint(0, 9)
    flat = torch.randn(start + math.prod(shape), dtype=torch.float64) * 10.0 ** rng.choice([0, 0, 0, -3, 3, 8])
    if rng.random() < 0.3:
        flat = (flat * 2).round() / 2
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 3)):
            flat[rng.randrange(len(flat))] = rng.choice(BAD)
    x = flat.to(dtype)[start:].view(shape)
    if rng.random() < 0.3:
        x = x.transpose(0, -1)
    if x.dim() == 4 and rng.random() < 0.4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x


def one_call(rng: random.Random) -> int:
    """A forward and, if it was not turned down, a backward; the number of native calls."""
    dtype = rng.choice(DTYPES)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x = values_of(rng, shape_of(rng), dtype)
    groups: Grouping
    guarded = False
    if rng.random() < 0.2:
        number = rng.randint(1, 9)
        groups = Segments(torch.randint(0, number, (x.shape[0],)).sort().values, number)
        kept = list(range(1, x.dim()))
    else:
        dims = tuple(sorted(rng.sample(range(x.dim()), rng.randint(1, x.dim()))))
        if guarded := x.dim() > 1 and rng.random() < 0.3:
            dims = (0, *range(2, x.dim()))
        groups = Axes(dims)
        kept = [d for d in range(x.dim()) if d not in dims]

    def parameter(among: list[int]) -> torch.Tensor | None:
        if rng.random() < 0.3:
            return None
        chosen = {d for d in among if rng.random() < 0.8}
        return torch.rand([n if d in chosen else 1 for d, n in enumerate(x.shape)], dtype=wide)

    inner = kept if isinstance(groups, Segments) or rng.random() < 0.5 else list(range(x.dim()))
    phi = rng.choice([1.0, 1.2, 1.25, 1.5, 1.6, 1.75, 2.0, 2.2, 2.5, 3.0, 4.0, math.inf])
    exponent = parameter(kept) if rng.random() < 0.3 else None
    alpha = parameter(inner)
    rule = make_rule(
        rng.choice(["rms", "mean_abs", "max_abs", "robust"]),
        rng.choice([1.1, 1.5, 2.0, 3.0]),
        rng.choice([0.0, 0.05, 1.0]),
        grad_floor=rng.choice([0.0, 0.1]),
        centered=rng.random() < 0.9,
        scaled=rng.random() < 0.9,
        guard=rng.choice([1.0, 1.5, 3.0]) if guarded else None,
    )
    of = Inputs(
        x,
        phi if exponent is None else (exponent + 1.2),
        1.0 if alpha is None else alpha,
        parameter(inner),
        parameter(inner),
        parameter(inner),
        None,
    )
    return calls(rng, of, groups, rule, wide)


class Alone(Axes):
    """Groups over several processes of which there is one: the kernels do their parts one by one."""

    joint = True

    @property
    def here(self) -> Axes:
        return Axes(self.dims)


def calls(rng: random.Random, of: Inputs, groups: Grouping, rule: Rule, wide: torch.dtype) -> int:
    found = plan(of, groups, rule)
    if found is None:
        return 0
    if isinstance(groups, Axes) and rule.guard is None and rng.random() < 0.3:
        return in_parts(rng, of, Alone(groups.dims), rule)
    running = counts = None
    if isinstance(groups, Axes) and rng.random() < 0.3:
        buffers = [torch.zeros(found.arrangement.groups, dtype=wide) for _ in range(4)]
        copies = [buffer.clone() for buffer in buffers]
        running = Running(*buffers, factor=0.1, seen=Seen(*copies, 1.0) if rng.random() < 0.5 else None)
    if rule.guard is not None and rng.random() < 0.5:
        counts = torch.zeros(4, dtype=torch.int64)
    torch.set_num_threads(rng.choice([1, 2, 3]))
    if rng.random() < 0.3:  # without an output
        cpu.statistics(of, groups, rule._replace(guard=None))
    result = cpu.normalize(of, groups, rule, running, counts)
    if result is None:
        return 1
    grad = torch.randn(of.x.shape, dtype=torch.float64).to(of.x.dtype)
    grad = grad if rng.random() < 0.8 else grad.sum().expand(of.x.shape)
    needs = tuple(isinstance(value, torch.Tensor) and rng.random() < 0.8 for value in of)
    cpu.normalize_backward(grad, of, groups, rule, result.saved, needs)
    return 2


def in_parts(rng: random.Random, of: Inputs, groups: Alone, rule: Rule) -> int:
    """Measure, sweep, write, add up, spread out: as many native calls as it takes."""
    before = _counted.parts
    result = choose.normalize(of, groups, rule)
    grad = torch.randn(of.x.shape, dtype=torch.float64).to(of.x.dtype)
    needs = tuple(isinstance(value, torch.Tensor) and rng.random() < 0.8 for value in of)
    choose.normalize_backward(Incoming(grad), of, groups, rule, result.saved, needs)
    return _counted.parts - before


class Counted(threading.local):
    """Native calls of this thread."""

    parts = 0


_counted = Counted()


def count_parts() -> None:
    """Count the native calls that are parts of a job, and searches that go on."""
    for name in ("part", "advance"):
        call = getattr(library, name)

        def counted(*args: Any, call: Any = call, **options: Any) -> Any:
            _counted.parts += 1
            return call(*args, **options)

        setattr(library, name, counted)


def moments(rng: random.Random) -> int:
    """Of a guarded batch, from the moments of its samples."""
    if rng.random() < 0.8:
        return 0
    shape = (
        rng.choice([1, 2, 3, 4, 5, 9, 300, rng.randint(1, 700)]),
        rng.choice([1, 2, 15, 16, 17, rng.randint(1, 90)]),
    )
    mean = torch.randn(shape, dtype=rng.choice([torch.float32, torch.float64]))
    if rng.random() < 0.3:
        mean = mean.round()
    if rng.random() < 0.2:
        mean[rng.randrange(shape[0]), rng.randrange(shape[1])] = rng.choice(BAD)
    cpu.guarded_moments(mean, torch.rand_like(mean), rng.choice([1.0, 3.0, math.inf]))
    return 1


def many_calls(seed: int, wanted: int) -> tuple[int, int]:
    """So many native calls of one thread; their number, and how many of them were parts of jobs."""
    rng, done = random.Random(seed), 0
    while done < wanted:
        done += one_call(rng) + moments(rng)
    return done, _counted.parts


def main() -> int:
    """Call the kernels, and say how often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("calls", type=int)
    parser.add_argument(
        "--seed", type=int, default=0, help="with several threads the values also depend on their order"
    )
    parser.add_argument("--threads", type=int, default=1, help="that call at once")
    parser.add_argument(
        "--own-pool", action="store_true", help="no OpenMP: ThreadSanitizer does not see how its threads wait"
    )
    chosen = parser.parse_args()
    library._PATH = chosen.library
    if chosen.own_pool:
        library._openmp = lambda: None
    torch.manual_seed(chosen.seed)
    assert choose.has_kernels(), choose.describe()
    count_parts()
    each = -(-chosen.calls // chosen.threads)
    with ThreadPoolExecutor(chosen.threads) as callers:
        counts = callers.map(lambda k: many_calls(chosen.seed + k, each), range(chosen.threads))
        done, parts = (sum(numbers) for numbers in zip(*counts, strict=True))
    print(f"{done} native calls by {chosen.threads} threads, {parts} of them parts of jobs, no complaint")
    return 0


if __name__ == "__main__":
    sys.exit(main())
