"""torch.compile(fullgraph=True) equals eager; errors that only the data can tell are raised there too."""

import math

import pytest
import torch

from geonorm.functional import center, center_with_info, segment_center, segment_spread, spread
from helpers.slow_cases import slow_except
from helpers.torch_versions import needs_torch

X = torch.randn(4, 3, 50, generator=torch.Generator().manual_seed(0))
PHI = torch.tensor([1.3, 2.0, 3.1])
BATCH = torch.tensor([0, 2, 2, 3])

CASES = {
    "center": lambda x: center(x, 1.5, (0, 2)),
    "median": lambda x: center(x, 1.0, (0, 2)),
    "midrange": lambda x: center(x, math.inf, (0, 2)),
    "mean": lambda x: center(x, 2.0, (0, 2)),
    "phi tensor": lambda x: center(x, PHI, (0, 2)),
    "edges in the phi tensor": lambda x: center(x, torch.tensor([1.0, 1.5, math.inf]), (0, 2)),
    "weighted": lambda x: center(x, 1.5, (0, 2), element_weight=x.detach() > -1),
    "half": lambda x: center(x.bfloat16(), 1.5, (0, 2)).float(),
    "fixed sweeps": lambda x: center(x, 1.5, (0, 2), sweeps=3),
    "fixed sweeps, phi tensor": lambda x: center(x, PHI, (0, 2), sweeps=4),
    "fixed sweeps, median": lambda x: center(x, 1.0, (0, 2), sweeps=3),
    "segments": lambda x: segment_center(x, 1.5, BATCH, 5),
    "segments, fixed sweeps": lambda x: segment_center(x, 1.5, BATCH, 5, sweeps=3),
    "rms": lambda x: spread(x, "rms", (0, 2)),
    "max_abs": lambda x: spread(x, "max_abs", (0, 2)),
    "robust": lambda x: spread(x, "robust", (0, 2), about=0.1),
    "segment rms": lambda x: segment_spread(x, "rms", BATCH, 5),
    "segment robust": lambda x: segment_spread(x, "robust", BATCH, 5),
}


def check(f, backend: str, rtol: float = 1e-5) -> None:
    torch._dynamo.reset()
    results = []
    for g in (f, torch.compile(f, fullgraph=True, backend=backend)):
        x = X.clone().requires_grad_()
        out = g(x)
        (out * torch.arange(1.0, out.numel() + 1).reshape(out.shape)).sum().backward()
        results.append((out.detach(), x.grad))
    torch.testing.assert_close(results[1], results[0], rtol=rtol, atol=0.1 * rtol)


@pytest.mark.parametrize("name", slow_except(list(CASES)[::2], CASES))
def test_traced_graph_equals_eager(name: str) -> None:
    check(CASES[name], "aot_eager")


def test_inductor_equals_eager() -> None:
    check(CASES["phi tensor"], "inductor")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_inductor_equals_eager_in_every_case(name: str) -> None:
    """Half precision is compared with the roundings that inductor would leave out (emulate_precision_casts).

    Fixed sweeps get 1e-4: the fused center differs in its last digit, and the gradient of the value nearest to it
    magnifies that (1.8e-5 seen, on that one value).
    """
    with torch._inductor.config.patch(emulate_precision_casts=name == "half"):
        check(CASES[name], "inductor", rtol=1e-4 if "fixed sweeps" in name else 1e-5)


def test_dynamic_shapes() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: center(x, 1.5, (0, 2)), fullgraph=True, backend="aot_eager", dynamic=True)
    for n, m in ((4, 50), (7, 31), (2, 2)):
        x = torch.randn(n, 3, m)
        torch.testing.assert_close(compiled(x), center(x, 1.5, (0, 2)))


def test_spread_with_dynamic_shapes() -> None:
    torch._dynamo.reset()
    for kind in ("robust", "rms", "max_abs"):
        f = lambda x, k=kind: spread(x, k, (0, 2))  # noqa: E731
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
        torch.testing.assert_close(compiled(X), f(X))


@needs_torch("2.13", "functions of torch.func inside a compiled graph")
@pytest.mark.parametrize("phi", slow_except([2.0], [1.0, 1.5, 2.0]))
def test_transforms_inside_a_compiled_graph(phi: float) -> None:
    """Dynamo overlooks that the direct input of torch.func.grad needs a gradient."""
    for sweeps in (None, 3):
        torch._dynamo.reset()
        f = torch.func.grad(lambda x, s=sweeps: center(x, phi, sweeps=s))
        torch.testing.assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(X), f(X))


def test_bad_values_show_where_they_cannot_raise() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, p: center(x, p, (0, 2), sweeps=3), fullgraph=True, backend="aot_eager")
    assert compiled(X, PHI - 1).isnan().tolist() == [True, False, False]
    mapped = torch.func.vmap(lambda x, w: spread(x, element_weight=w))(X, torch.full_like(X, -1.0))
    assert bool(mapped.isnan().all())


def test_gradient_in_phi() -> None:
    torch._dynamo.reset()
    grads = []
    f = lambda p: center(X, p, (0, 2)).sum()  # noqa: E731
    for g in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        p = PHI.clone().requires_grad_()
        g(p).backward()
        grads.append(p.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_info_compiles() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: tuple(center_with_info(x, 1.5, 2)), fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(X), center_with_info(X, 1.5, 2), strict=True):
        torch.testing.assert_close(a, b)


def test_bad_values_raise_in_a_compiled_graph() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, p: center(x, p, (0, 2)), fullgraph=True, backend="aot_eager")
    compiled(X, PHI)
    with pytest.raises(ValueError, match="expected phi >= 1"):
        compiled(X, PHI - 1)


def test_segments_need_batch_size() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, b: segment_center(x, 1.5, b), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="batch_size"):
        compiled(X, BATCH)
