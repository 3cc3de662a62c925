"""The registered operators behave as torch expects of them: schemas, fakes, vmap rules, no gradients of their own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap
from torch.library import opcheck

import geonorm
from geonorm.functional import aug_norm
from geonorm.functional._normalize import make_rule
from geonorm.ops import Axes, Grouping, Incoming, Inputs, Rule, Segments, center, choose, problem, using_backend
from helpers.slow_cases import slow_except

OPS = torch.ops.geonorm
X = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
BATCH = torch.tensor([0, 2, 2, 3])
SORTED, UNSORTED = torch.tensor([0, 0, 2, 2, 2, 3]), torch.tensor([2, 0, 3, 2, 0, 2])


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def positive(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 2) -> Tensor:
    return (0.5 + torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


# name: x, groups, shape of the parameters, shape of φ
def layouts(dtype: torch.dtype) -> dict[str, tuple[Tensor, Grouping, tuple[int, ...], tuple[int, ...]]]:
    image = random(4, 3, 2, 5, dtype=dtype)
    last = image.contiguous(memory_format=torch.channels_last)
    rows = random(6, 3, dtype=dtype)
    return {
        "rows": (rows, Axes((0,)), (3,), (3,)),
        "image": (image, Axes((0, 2, 3)), (1, 3, 1, 1), (3,)),
        "channels_last": (last, Axes((0, 2, 3)), (1, 3, 1, 1), (1, 3, 1, 1)),
        "layer": (rows, Axes((1,)), (3,), ()),
        "instance": (image, Axes((2, 3)), (1, 3, 1, 1), (3,)),
        "strided": (random(6, 8, dtype=dtype)[:, ::2], Axes((0,)), (4,), (4,)),
        "transposed": (random(3, 6, dtype=dtype).t(), Axes((0,)), (3,), (3,)),
        "one group": (rows, Axes((0, 1)), (), ()),
        "segments": (rows, Segments(SORTED, 5), (3,), (3,)),
        "unsorted segments": (rows, Segments(UNSORTED, 5), (3,), (5, 3)),
    }


LAYOUTS = list(layouts(torch.float32))
FLOATS = [torch.float32, torch.float64, torch.bfloat16]


def computing(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def inputs(layout: str, dtype: torch.dtype, present: str = "") -> tuple[Inputs, Grouping]:
    """``present``: which optional tensors there are, by name."""
    x, groups, shape, phi_shape = layouts(dtype)[layout]
    wide = computing(dtype)
    of = Inputs(
        x,
        1.2 + positive(*phi_shape, dtype=wide) if "phi" in present else 1.5,
        positive(*shape, dtype=wide) if "alpha" in present else 0.8,
        random(*shape, dtype=wide) if "shift" in present else None,
        positive(*shape, dtype=wide) if "gamma" in present else None,
        random(*shape, dtype=wide) if "beta" in present else None,
        positive(*x.shape, dtype=wide) if "weight" in present else None,
    )
    return of, groups


def check_both(of: Inputs, groups: Grouping, rule: Rule, statistics: bool = False) -> None:
    """opcheck of forward, and of backward for everything that is a tensor, and for x alone."""
    arguments = problem.to_arguments(of, groups, rule)
    opcheck(OPS.normalize, arguments)
    y, rows, samples = OPS.normalize(*arguments)
    grad = random(*y.shape, dtype=y.dtype, seed=5)
    by_center = by_spread = None
    if statistics:
        found = problem.statistics_of(rows, of.x, groups)
        by_center, by_spread = torch.ones_like(found.center), torch.ones_like(found.spread)
    kept = None if rule.guard is None else samples
    everything = [isinstance(value, Tensor) for value in of]
    for needs in ([True] + [False] * 6, everything):
        given = (grad, by_center, by_spread, rows, kept, needs, *arguments)
        opcheck(OPS.normalize_backward, given)
        parts = OPS.normalize_backward(*given)
        for value, need, part in zip(of, needs, parts, strict=True):
            assert part.shape == (value.shape if need else (0,))


ALONE = ["phi", "alpha", "shift", "gamma", "beta", "weight"]
SETS = ["", *ALONE, "phi alpha shift gamma beta", "phi alpha shift gamma beta weight"]


class TestNormalize:
    @pytest.mark.parametrize("present", SETS)
    @pytest.mark.parametrize("layout", slow_except(["image", "segments"], LAYOUTS))
    def test_optional_tensors(self, layout: str, present: str) -> None:
        check_both(*inputs(layout, torch.float32, present), Rule())

    @pytest.mark.parametrize("dtype", slow_except([torch.float32, torch.bfloat16], FLOATS), ids=str)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_dtypes(self, layout: str, dtype: torch.dtype) -> None:
        check_both(*inputs(layout, dtype, "gamma beta"), Rule())

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("present", [" ".join(some) for n in (2, 3) for some in itertools.combinations(ALONE, n)])
    def test_combinations(self, layout: str, dtype: torch.dtype, present: str) -> None:
        check_both(*inputs(layout, dtype, present), Rule())

    @pytest.mark.parametrize("spread", ["rms", "mean_abs", "max_abs", "robust", 3.0])
    @pytest.mark.parametrize("layout", ["channels_last", "segments", "strided"])
    def test_spreads(self, layout: str, spread: str | float) -> None:
        check_both(*inputs(layout, torch.float32, "gamma"), make_rule(spread, 1.5, 0.05))

    @pytest.mark.parametrize(
        "rule",
        [
            Rule(centered=False),
            Rule(scaled=False),
            Rule(centered=False, scaled=False),
            Rule(scale_first=True),
            Rule(sweeps=3),
            Rule(grad_floor=0.1),
            Rule(eps=0.0),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("layout", ["image", "unsorted segments"])
    def test_rules(self, layout: str, rule: Rule) -> None:
        check_both(*inputs(layout, torch.float32, "shift gamma"), rule)

    @pytest.mark.parametrize("phi", [1.0, 2.0, 3.0, torch.inf, 8.0])
    @pytest.mark.parametrize("layout", slow_except(["image", "segments"], LAYOUTS))
    def test_exponents(self, layout: str, phi: float) -> None:
        of, groups = inputs(layout, torch.float32, "gamma")
        check_both(of._replace(phi=phi), groups, Rule())

    @pytest.mark.parametrize("layout", [name for name in LAYOUTS if "segments" not in name])
    def test_a_learned_phi(self, layout: str) -> None:
        """Given as its offset."""
        of, groups = inputs(layout, torch.float32, "phi gamma")
        rule = Rule(learned=(1.1, 2.9, -0.3), phi_strictly_inside=True)
        check_both(of._replace(phi=of.phi - 1.5), groups, rule)

    @pytest.mark.parametrize("dtype", slow_except([torch.float32], [*FLOATS, torch.float16]), ids=str)
    @pytest.mark.parametrize("layout", ["rows", "image", "channels_last", "strided", "transposed"])
    @pytest.mark.parametrize("phi", [1.5, 2.0])
    @pytest.mark.parametrize("present", ["", "gamma beta", "weight"])
    def test_a_guard(self, layout: str, dtype: torch.dtype, phi: float, present: str) -> None:
        of, groups = inputs(layout, dtype, present)
        of.x[1] *= 50
        check_both(of._replace(phi=phi), groups, Rule(guard=2.0))

    @pytest.mark.parametrize("layout", ["image", "segments"])
    def test_gradients_of_the_statistics(self, layout: str) -> None:
        check_both(*inputs(layout, torch.float32, "phi gamma beta"), Rule(), statistics=True)

    def test_gradients_of_the_statistics_of_a_guarded_batch(self) -> None:
        of, groups = inputs("image", torch.float32, "gamma beta")
        check_both(of, groups, Rule(guard=2.0), statistics=True)
        check_both(of._replace(phi=2.0), groups, Rule(guard=2.0), statistics=True)

    @pytest.mark.parametrize("present", ["", "phi alpha gamma beta", "weight"])
    @pytest.mark.parametrize("layout", ["image", "channels_last", "segments"])
    def test_on_the_torch_backend(self, layout: str, present: str) -> None:
        with using_backend("torch"):
            check_both(*inputs(layout, torch.float32, present), Rule())

    def test_nothing_to_do(self) -> None:
        """Neither centered nor scaled: the output must not be the input itself."""
        of, groups = inputs("rows", torch.float32)
        for backend in ("auto", "torch"):
            with using_backend(backend):
                y, _, _ = OPS.normalize(*problem.to_arguments(of, groups, Rule(centered=False, scaled=False)))
            assert torch.equal(y, of.x)
            assert y.data_ptr() != of.x.data_ptr()

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_output_is_laid_out_as_torch_would(self, layout: str) -> None:
        of, groups = inputs(layout, torch.float32)
        y, _, _ = OPS.normalize(*problem.to_arguments(of, groups, Rule()))
        assert y.stride() == torch.empty_like(of.x).stride()

    def test_meta_tensors_have_shapes(self) -> None:
        of, groups = inputs("image", torch.bfloat16, "gamma")
        of = of._replace(x=of.x.to("meta"), gamma=of.gamma.to("meta"))
        y, rows, samples = OPS.normalize(*problem.to_arguments(of, groups, Rule(guard=3.0)))
        assert (y.shape, y.dtype, y.device.type) == (of.x.shape, torch.bfloat16, "meta")
        assert (rows.shape, rows.dtype) == ((3, len(problem.COLUMNS)), torch.float64)
        assert (samples.shape, samples.dtype) == ((2 * (4 + 3) + 1,), torch.float32)

    def test_bad_weights_and_segments_are_told(self) -> None:
        of, groups = inputs("rows", torch.float32, "weight")
        of.weight[2, 1] = -1.0
        with pytest.raises(ValueError, match="expected finite weight >= 0"):
            OPS.normalize(*problem.to_arguments(of, groups, Rule()))
        of, _ = inputs("segments", torch.float32)
        with pytest.raises(ValueError, match=r"expected batch entries in \[0, 2\)"):
            OPS.normalize(*problem.to_arguments(of, Segments(SORTED, 2), Rule()))


RULES = [
    Rule(),
    Rule(power=None, eps=1e-3, spread_phi=1.7, spread_floor=0.1, grad_floor=0.2, sweeps=5),
    Rule(power=torch.inf, phi_strictly_inside=True, centered=False, scaled=False, scale_first=True, guard=2.5),
    Rule(learned=(1.1, 2.9, -0.3), guard=1.0),
]


class TestArguments:
    """A normalization survives the way through the operators' arguments."""

    @pytest.mark.parametrize("rule", RULES, ids=str)
    def test_rules(self, rule: Rule) -> None:
        assert Rule.from_numbers(rule.to_numbers()) == rule

    @pytest.mark.parametrize("present", SETS)
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_inputs_and_groups(self, layout: str, present: str) -> None:
        of, groups = inputs(layout, torch.float32, present)
        again, same, rule = problem.from_arguments(*problem.to_arguments(of, groups, RULES[1]))
        assert all(a is b or a == b for a, b in zip(of, again, strict=True))
        assert rule == RULES[1]
        assert type(same) is type(groups)
        if isinstance(groups, Segments):
            assert same.index is groups.index
            assert same.number == groups.number
        else:
            assert same.dims == groups.dims


def center_arguments(
    x: Tensor, phi: float | Tensor, weight: Tensor | None, groups: Grouping, sweeps: int | None
) -> Any:
    exponent = (phi, 0.0) if isinstance(phi, Tensor) else (None, phi)
    return (x, *exponent, weight, *problem.grouping_to_args(groups), sweeps)


class TestCenter:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("phi", [torch.tensor(1.5), torch.tensor([[1.0], [1.5], [2.0], [torch.inf]])])
    @pytest.mark.parametrize("sweeps", [None, 3])
    def test_opcheck_rows(self, phi: Tensor, dtype: torch.dtype, sweeps: int | None) -> None:
        weight = positive(*X.shape, dtype=dtype)
        for given in (None, weight):
            arguments = center_arguments(X.to(dtype), phi.double(), given, Axes((1,)), sweeps)
            opcheck(OPS.center, arguments)

    @pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, 8.0, torch.inf])
    def test_opcheck_segments(self, phi: float) -> None:
        for exponent in (phi, torch.tensor(phi), torch.full((9,), phi)):
            for weight in (None, positive(*X.shape, dtype=X.dtype)):
                opcheck(OPS.center, center_arguments(X, exponent, weight, Segments(BATCH, 5), None))

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("phi", [1.0, 1.5, 2.0, torch.inf])
    @pytest.mark.parametrize("backend", slow_except(["auto"], ["auto", "torch"]))
    def test_opcheck_layouts(self, layout: str, phi: float, backend: str) -> None:
        of, groups = inputs(layout, torch.float32)
        with using_backend(backend):
            opcheck(OPS.center, center_arguments(of.x, phi, None, groups, None))

    def test_an_impossible_exponent_is_told(self) -> None:
        with pytest.raises(ValueError, match="expected phi >= 1"):
            OPS.center(*center_arguments(X, torch.tensor(0.5), None, Axes((1,)), None))

    def test_a_mapped_batch_vector_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="same `batch` vector"):
            vmap(lambda b: center(X, 1.5, None, Segments(b, 5)).center)(BATCH.expand(2, -1))

    def test_vmap_of_segments(self) -> None:
        stacked = torch.randn(3, 4, 9, generator=torch.Generator().manual_seed(1))
        mapped = vmap(lambda x: center(x, 1.5, None, Segments(BATCH, 5)).center)(stacked)
        looped = torch.stack([center(x, 1.5, None, Segments(BATCH, 5)).center for x in stacked])
        torch.testing.assert_close(mapped, looped)

    @pytest.mark.parametrize("weighted", [None, 0, 1])
    @pytest.mark.parametrize("exponent", [None, 0])
    @pytest.mark.parametrize(
        "groups", [Axes((0,)), Axes((1,)), Axes((0, 1)), Segments(BATCH, 5)], ids=["columns", "rows", "all", "segments"]
    )
    @pytest.mark.parametrize("x_dim", [None, 0, 2])
    def test_vmap_merges(self, groups: Grouping, weighted: int | None, exponent: int | None, x_dim: int | None) -> None:
        """One call with a dimension more, for any of the arguments mapped, equals the loop over the entries."""
        if weighted is None and exponent is None and x_dim is None:
            pytest.skip("nothing is mapped")
        x = random(3, 4, 9, seed=1)
        weight = positive(3, 4, 9)
        phi = torch.tensor([1.2, 2.0, 3.0], dtype=torch.float64)
        given = (
            x[0] if x_dim is None else x.movedim(0, x_dim),
            phi[1] if exponent is None else phi,
            weight[0] if weighted is None else weight.movedim(0, weighted),
        )

        def one(x: Tensor, phi: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
            return tuple(OPS.center(*center_arguments(x, phi, weight, groups, None)))

        mapped = vmap(one, (x_dim, exponent, weighted))(*given)
        looped = [
            one(x[0 if x_dim is None else i], phi[1 if exponent is None else i], weight[0 if weighted is None else i])
            for i in range(3)
        ]
        for part, entries in zip(mapped, zip(*looped, strict=True), strict=True):
            together = torch.stack(entries)
            assert part.shape == together.shape
            if part.is_floating_point():
                torch.testing.assert_close(part, together, rtol=1e-9, atol=1e-12)

    def test_vmap_within_vmap(self) -> None:
        x = random(2, 3, 4, 9)

        def one(x: Tensor) -> Tensor:
            return OPS.center(*center_arguments(x, 1.5, None, Axes((1,)), None))[0]

        torch.testing.assert_close(vmap(vmap(one))(x), one(x.reshape(24, 9)).reshape(2, 3, 4, 1))


class TestVmap:
    """Of normalize and its backward: one entry after the other."""

    @pytest.mark.parametrize("present", ["", "phi alpha shift gamma beta", "weight"])
    @pytest.mark.parametrize("layout", ["image", "segments"])
    @pytest.mark.parametrize("guard", [None, 2.0])
    def test_everything_is_mapped(self, layout: str, present: str, guard: float | None) -> None:
        if guard is not None and layout == "segments":
            pytest.skip("segments are not guarded")
        of, groups = inputs(layout, torch.float64, present)
        arguments, rule = problem.to_arguments(of, groups, Rule(guard=guard)), Rule(guard=guard)
        tensors = [i for i, value in enumerate(arguments) if isinstance(value, Tensor) and value.is_floating_point()]
        stacked = [torch.stack([arguments[i] * factor for factor in (1.0, 1.1, 1.3)]) for i in tensors]

        def filled(*values: Tensor) -> list[Any]:
            given = list(arguments)
            for i, value in zip(tensors, values, strict=True):
                given[i] = value
            return given

        def one(*values: Tensor) -> tuple[Tensor, ...]:
            return tuple(OPS.normalize(*filled(*values)))

        mapped, looped = vmap(one)(*stacked), [one(*[value[i] for value in stacked]) for i in range(3)]
        for part, entries in zip(mapped, zip(*looped, strict=True), strict=True):
            assert torch.equal(part.nan_to_num(), torch.stack(entries).nan_to_num())

        needs = [isinstance(value, Tensor) for value in of]
        grads = random(3, *of.x.shape)

        def back(grad: Tensor, rows: Tensor, samples: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
            kept = None if rule.guard is None else samples
            return tuple(OPS.normalize_backward(grad, None, None, rows, kept, needs, *filled(*values)))

        found = vmap(back)(grads, *mapped[1:], *stacked)
        expected = [back(grads[i], *looped[i][1:], *[value[i] for value in stacked]) for i in range(3)]
        for part, entries in zip(found, zip(*expected, strict=True), strict=True):
            assert torch.equal(part, torch.stack(entries))

    def test_the_mapped_dimension_may_be_any(self) -> None:
        of, groups = inputs("image", torch.float64)
        x = torch.stack([of.x, of.x.exp()], 2)

        def one(x: Tensor) -> Tensor:
            return OPS.normalize(*problem.to_arguments(of._replace(x=x), groups, Rule()))[0]

        mapped = vmap(one, 2, 1)(x)
        assert torch.equal(mapped, torch.stack([one(of.x), one(of.x.exp())], 1))

    def test_batches_of_gradients_reach_the_backward(self) -> None:
        of, groups = inputs("image", torch.float64, "gamma beta")
        arguments = problem.to_arguments(of, groups, Rule())
        y, rows, _ = OPS.normalize(*arguments)
        needs = [True, False, False, False, True, True, False]
        grads = random(3, *y.shape)

        def back(grad: Tensor) -> tuple[Tensor, ...]:
            return tuple(OPS.normalize_backward(grad, None, None, rows, None, needs, *arguments))

        for part, entries in zip(vmap(back)(grads), zip(*[back(g) for g in grads], strict=True), strict=True):
            assert torch.equal(part, torch.stack(entries))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: geonorm.AugBatchNorm2d(3, learn_phi=True, learn_alpha=True, dtype=torch.float64),
            lambda: geonorm.AugBatchNorm2d(3, guard=2.0, dtype=torch.float64),
            lambda: geonorm.AugBatchNorm2d(3, guard=2.0, phi=2.0, dtype=torch.float64),
            lambda: geonorm.AugBatchNorm2d(3, spread="robust", dtype=torch.float64),
            lambda: geonorm.AugInstanceNorm2d(3, affine=True, dtype=torch.float64),
            lambda: geonorm.AugGroupNorm(1, 3, dtype=torch.float64),
            lambda: geonorm.PopNorm2d(3, dtype=torch.float64),
        ],
    )
    def test_batches_of_gradients_through_a_layer(self, make: Any) -> None:
        layer, x = make(), random(6, 3, 2, 5).requires_grad_()
        leaves = [x, *layer.parameters()]
        y = layer(x)
        g = random(4, *y.shape, seed=8)
        found = torch.autograd.grad(y, leaves, g, is_grads_batched=True, retain_graph=True)
        each = [torch.autograd.grad(y, leaves, one, retain_graph=True) for one in g]
        for part, entries in zip(found, zip(*each, strict=True), strict=True):
            torch.testing.assert_close(part, torch.stack(entries), rtol=1e-7, atol=1e-9)


class TestNoGradients:
    """Nobody may take the operators for functions of autograd."""

    MESSAGE = r"operators of geonorm have no gradients; call the differentiable functions of geonorm\.functional"

    def test_normalize(self) -> None:
        of, groups = inputs("image", torch.float64, "gamma")
        x = of.x.clone().requires_grad_()
        y, _, _ = OPS.normalize(*problem.to_arguments(of._replace(x=x), groups, Rule()))
        with pytest.raises(RuntimeError, match=self.MESSAGE):
            y.sum().backward()
        gamma = of.gamma.clone().requires_grad_()
        y, _, _ = OPS.normalize(*problem.to_arguments(of._replace(gamma=gamma), groups, Rule()))
        with pytest.raises(RuntimeError, match=self.MESSAGE):
            y.sum().backward()

    def test_normalize_backward(self) -> None:
        of, groups = inputs("image", torch.float64)
        arguments = problem.to_arguments(of, groups, Rule())
        y, rows, _ = OPS.normalize(*arguments)
        grad = torch.ones_like(y).requires_grad_()
        dx, *_ = OPS.normalize_backward(grad, None, None, rows, None, [True] + [False] * 6, *arguments)
        with pytest.raises(RuntimeError, match=self.MESSAGE):
            dx.sum().backward()

    def test_center(self) -> None:
        x = X.clone().requires_grad_()
        found, *_ = OPS.center(*center_arguments(x, 1.5, None, Axes((1,)), None))
        with pytest.raises(RuntimeError, match=self.MESSAGE):
            found.sum().backward()

    def test_the_functions_above_have_them(self) -> None:
        """With fake tensors too, where nothing but the operators can be called."""
        with FakeTensorMode():
            x = torch.randn(4, 3, 5, requires_grad=True)
            gamma = torch.ones(3, 1, requires_grad=True)
            aug_norm(x, (0, 2), 1.5, weight=gamma).output.sum().backward()
        assert x.grad.shape == (4, 3, 5)
        assert gamma.grad.shape == (3, 1)


@pytest.mark.parametrize("layout", ["image", "channels_last", "segments"])
@pytest.mark.parametrize("present", ["phi alpha shift gamma beta", "weight"])
def test_the_operators_are_what_is_behind_them(layout: str, present: str) -> None:
    """Bit for bit what ``choose`` gives, forward and backward."""
    of, groups = inputs(layout, torch.float32, present)
    arguments = problem.to_arguments(of, groups, Rule())
    y, rows, samples = OPS.normalize(*arguments)
    direct = choose.normalize(of, groups, Rule())
    assert torch.equal(y, direct.output)
    assert torch.equal(rows[:, problem.CENTER], direct.saved.groups[:, problem.CENTER])
    assert samples.shape == (0,)
    needs = tuple(isinstance(value, Tensor) for value in of)
    grad = random(*y.shape, dtype=y.dtype, seed=5)
    parts = OPS.normalize_backward(grad, None, None, rows, None, list(needs), *arguments)
    others = choose.normalize_backward(Incoming(grad), of, groups, Rule(), direct.saved, needs)
    for part, other, need in zip(parts, others, needs, strict=True):
        assert torch.equal(part, other) if need else not part.numel()


def test_a_compiled_graph_keeps_the_backend_it_was_traced_with() -> None:
    """In forward and in backward: the rows on a device do not say who wrote them."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    layer = geonorm.AugBatchNorm1d(3, phi=1.5)
    with using_backend("torch"):
        y = torch.compile(layer, backend=aot_autograd(fw_compiler=keep))(random(6, 3, dtype=torch.float32))
    with using_backend("auto"):
        y.sum().backward()
    nodes = [node for graph in graphs for node in graph.graph.nodes if str(node.target).startswith("geonorm.")]
    assert [str(node.target) for node in nodes] == ["geonorm.normalize.default", "geonorm.normalize_backward.default"]
    assert [node.args[-1] for node in nodes] == ["torch", "torch"]
