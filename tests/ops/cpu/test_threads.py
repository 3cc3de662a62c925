"""Threads of Python that call layers at once: the serial results, bit for bit, forward and backward."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import geonorm
from geonorm.functional import aug_norm
from geonorm.ops import choose

pytestmark = pytest.mark.skipif(not choose.has_kernels(), reason="native kernels are not built or not asked for")

CALLERS = 2
Results = list[Tensor]


@pytest.fixture(autouse=True)
def two_threads_each() -> Iterator[None]:
    """The kernels use threads of their own too, so that callers compete for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def inputs() -> list[Tensor]:
    """Small ones, and some that are worth several threads; more shapes than a layer remembers."""
    drawn = torch.Generator().manual_seed(0)
    shapes = [(samples, 6, side, side) for samples, side in ((2, 3), (3, 5), (4, 4), (5, 2), (7, 3), (30, 12))]
    return [torch.randn(shape, generator=drawn) * scale for shape in shapes for scale in (1.0, 30.0)]


def training(layer: nn.Module, x: Tensor) -> Results:
    """Output, and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *layer.parameters()])]


def evaluation(layer: nn.Module, x: Tensor) -> Results:
    with torch.no_grad():
        return [layer(x)]


def functional(x: Tensor, **options: float) -> Results:
    x = x.clone().requires_grad_()
    y = aug_norm(x, (0, 2, 3), **options).output
    return [y.detach(), *torch.autograd.grad(y.square().sum(), x)]


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "φ=1.5": lambda: geonorm.AugBatchNorm2d(6),
    "learned": lambda: geonorm.AugBatchNorm2d(6, learn_phi=True, learn_alpha=True),
    "robust": lambda: geonorm.AugBatchNorm2d(6, spread="robust"),
    "guard": lambda: geonorm.AugBatchNorm2d(6, guard=3.0),
    "group": lambda: geonorm.AugGroupNorm(2, 6),
    "pop": lambda: geonorm.PopNorm2d(6),
}


def trained(name: str) -> nn.Module:
    torch.manual_seed(0)
    layer = LAYERS[name]()
    for x in inputs():
        layer(x)
    return layer.eval()


def same_layer(caller: int) -> list[Callable[[Tensor], Results]]:
    """In evaluation through the same layers, and functions."""
    return SHARED


def own_layers(caller: int) -> list[Callable[[Tensor], Results]]:
    """In training, each caller through its own."""
    return OWN[caller]


SHARED: list[Callable[[Tensor], Results]] = []
OWN: list[list[Callable[[Tensor], Results]]] = []


@pytest.fixture(scope="module", autouse=True)
def layers() -> None:
    SHARED[:] = [partial(evaluation, trained(name)) for name in LAYERS]
    # Without running statistics a layer in training is a function: it may be shared like one.
    SHARED.append(partial(training, geonorm.AugBatchNorm2d(6, track_running_stats=False)))
    SHARED.append(partial(training, geonorm.AugGroupNorm(2, 6)))
    SHARED.extend([partial(functional, phi=1.5), partial(functional, phi=1.0), partial(functional, phi=3.0)])
    OWN[:] = [[partial(training, LAYERS[name]()) for name in LAYERS] for _ in range(CALLERS)]


@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("calls", [same_layer, own_layers])
def test_two_threads_give_the_serial_results(
    calls: Callable[[int], list[Callable[[Tensor], Results]]], number: int
) -> None:
    given = inputs()
    expected = [[call(x) for x in given] for call in calls(0)]
    start = threading.Barrier(CALLERS)

    def call_often(caller: int) -> int:
        rng, done = random.Random(caller), calls(caller)
        start.wait()
        wrong = 0
        for _ in range(number // CALLERS):
            i, k = rng.randrange(len(done)), rng.randrange(len(given))
            wrong += not all(map(torch.equal, done[i](given[k]), expected[i][k]))
        return wrong

    with ThreadPoolExecutor(CALLERS) as callers:
        assert list(callers.map(call_often, range(CALLERS))) == [0] * CALLERS


@pytest.mark.parametrize("name", ["φ=1.5", "robust", "guard"])
def test_one_layer_trained_by_two_threads(name: str) -> None:
    """Outputs and gradients are the serial ones. Running statistics are a race, as torch's: no update is half done in a
    way that leaves what no batch could have led to."""
    layer, given = LAYERS[name](), inputs()[-2:]
    expected = [training(layer, x) for x in given]
    start = threading.Barrier(CALLERS)

    def call_often(caller: int) -> bool:
        start.wait()
        return all(all(map(torch.equal, training(layer, given[i % 2]), expected[i % 2])) for i in range(caller, 200))

    with ThreadPoolExecutor(CALLERS) as callers:
        assert all(callers.map(call_often, range(CALLERS)))
    for buffer in layer.buffers():
        assert buffer.isfinite().all()
    assert (layer.running_var > 0).all()


def test_a_thread_that_ends_while_others_compute() -> None:
    """Its memory goes with it; theirs stays."""
    other, x = inputs()[-2:]
    call = partial(training, geonorm.AugBatchNorm2d(6, track_running_stats=False))
    expected = call(x)
    over = threading.Event()
    wrong: list[int] = []

    def compute() -> None:
        while not over.is_set():
            if not all(map(torch.equal, call(x), expected)):
                wrong.append(1)

    others = threading.Thread(target=compute)
    others.start()
    try:
        for _ in range(30):
            one = threading.Thread(target=call, args=(other,))
            one.start()
            one.join()
    finally:
        over.set()
        others.join()
    assert not wrong


SAME_BITS = """
import torch, geonorm
from geonorm.ops.cpu import library
{pool}
def results(threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    found = []
    for layer, shape in (
        (geonorm.AugBatchNorm2d(96), (8, 96, 12, 12)), (geonorm.AugBatchNorm1d(300, guard=3.0), (200, 300)),
        (geonorm.AugLayerNorm(200, learn_alpha=True), (400, 200)),
        (geonorm.AugBatchNorm2d(40, learn_phi=True), (9, 40, 8, 8)),
    ):
        x = torch.randn(shape).requires_grad_()
        y = layer(x)
        found += [y.detach(), *torch.autograd.grad(y.pow(3).sum(), [x, *layer.parameters()]), *layer.buffers()]
    return found
one = results(1)
for threads in (2, 3, 7, 16, 64, 2):
    assert all(map(torch.equal, results(threads), one)), threads
"""

POOLS = {"OpenMP": "", "own": "library._openmp = lambda: None"}


def run_python(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("pool", POOLS)
def test_any_number_of_threads_gives_the_same_bits(pool: str) -> None:
    run_python(SAME_BITS.format(pool=POOLS[pool]))


FIRST_CALLS = """
import threading, torch, geonorm
torch.set_num_threads(2)
layers, x = [geonorm.AugBatchNorm2d(8) for _ in range(4)], torch.randn(64, 8, 32, 32)
start, found = threading.Barrier(4), {}
def first(k):
    start.wait()
    found[k] = layers[k](x)
callers = [threading.Thread(target=first, args=(k,)) for k in range(4)]
for caller in callers: caller.start()
for caller in callers: caller.join()
assert len(found) == 4 and all(torch.equal(y, found[0]) for y in found.values())
"""


def test_the_first_calls_come_at_once() -> None:
    """The library is loaded, and its threads are started, by all of them."""
    run_python(FIRST_CALLS)


EXIT = """
import threading, time, torch, geonorm
from geonorm.ops.cpu import library
{pool}
torch.set_num_threads(2)
x, layer = torch.randn(64, 8, 128, 128), geonorm.AugBatchNorm2d(8, track_running_stats=False)
real, jobs, kept, forward = library.load(), [], [], library.forward
library._library = lambda: real._replace(forward=lambda job: jobs.append(job) or real.forward(job))
library.forward = lambda *given: kept.append(given) or forward(*given)
layer(x)
started = threading.Event()
def compute():  # nothing of torch: one of its operations in a daemon thread aborts the process at its end
    while True:
        started.set()
        real.forward(jobs[0])
threading.Thread(target=compute, daemon=True).start()
started.wait()
time.sleep({seconds})
"""


@pytest.mark.parametrize("seconds", [0.0, 0.03, pytest.param(0.3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pool", POOLS)
def test_the_interpreter_ends_while_a_thread_is_in_the_kernels(pool: str, seconds: float) -> None:
    run_python(EXIT.format(pool=POOLS[pool], seconds=seconds))


LAST = """
import threading, torch, geonorm
torch.set_num_threads(2)
layer, x = geonorm.AugBatchNorm2d(8), torch.randn(64, 8, 64, 64)
def compute():
    for _ in range(20): layer(x).sum()
threading.Thread(target=compute).start()
"""


def test_the_interpreter_waits_for_a_thread() -> None:
    run_python(LAST)


FORKS = """
import multiprocessing, os, threading, torch, geonorm, warnings
from geonorm.ops.cpu import library
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 advises against all this
{pool}
torch.set_num_threads(2)
layer, x = geonorm.AugBatchNorm2d(8, track_running_stats=False), torch.randn(64, 8, 32, 32)
with torch.no_grad():
    expected = layer(x)

def is_right(_):
    with torch.no_grad():
        y = layer(x)
    torch.set_num_threads(1)  # torch's own threads are gone, and it would wait for them
    return torch.equal(y, expected)

over = threading.Event()
def compute():
    while not over.is_set():
        with torch.no_grad():
            layer(x)
others = [threading.Thread(target=compute) for _ in range({threads})]
for other in others: other.start()
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(0 if is_right(0) else 1)
    assert os.waitpid(child, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(is_right, range(8)))
over.set()
for other in others: other.join()
assert is_right(0)
"""


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("pool", POOLS)
def test_forks_after_and_during_use(pool: str, threads: int) -> None:
    """Every child computes right, and none waits for threads or locks of its parent."""
    run_python(FORKS.format(pool=POOLS[pool], threads=threads))
