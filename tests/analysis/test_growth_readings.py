"""What a monitor reads of each step, and what it leaves behind."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from geonorm.analysis import Growth, Monitor


class TestWhatIsRead:
    def run(self, optimizer_of, *, closure: bool = True, steps: int = 2, **options):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-12), nn.Linear(6, 3)).double()
        optimizer = optimizer_of(model.parameters())

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = model(torch.randn(16, 4).double()).square().mean()
            value.backward()
            return value

        with Monitor(model, optimizer, every=1, **options) as monitor:
            for _ in range(steps):
                if closure:
                    optimizer.step(loss)
                else:
                    loss()
                    optimizer.step()
                monitor.step()
        return model, monitor.result().records

    @pytest.mark.parametrize("closure", [True, False])
    def test_the_prediction_is_of_the_step_itself_with_a_closure_too(self, closure: bool) -> None:
        _, records = self.run(lambda p: torch.optim.SGD(p, lr=0.1), closure=closure)
        for record in records:
            entry = record["weights"]["0.weight"]
            assert entry["predicted"] == pytest.approx(entry["growth"], rel=1e-6)

    def test_other_optimizers_have_no_effective_rate(self) -> None:
        for optimizer_of in (torch.optim.AdamW, torch.optim.LBFGS):
            _, records = self.run(optimizer_of)
            assert records[-1]["weights"]["0.weight"]["effective_rate"] is None

    def test_steps_are_counted_on_from_the_file(self, tmp_path) -> None:
        for _ in range(2):
            self.run(lambda p: torch.optim.SGD(p, lr=0.1), file=tmp_path / "log", steps=3)
        assert [record["step"] for record in Growth.read(tmp_path / "log").records] == list(range(6))

    @pytest.mark.parametrize("line", ["[1]", '{"a": 1}', "words"])
    def test_files_of_something_else_are_refused(self, tmp_path, line: str) -> None:
        (tmp_path / "log").write_text(f'{{"step": 0, "loss": null, "weights": {{}}, "norms": {{}}}}\n{line}\n')
        with pytest.raises(ValueError, match="line 2"):
            Growth.read(tmp_path / "log")

    def test_copies_are_not_watched(self) -> None:
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        with Monitor(model):
            twin = copy.deepcopy(model)
            saved = pickle.loads(pickle.dumps(model))
            for other in (twin, saved):
                assert all(hook.watch is None for hook in other[1]._forward_pre_hooks.values())
                other(torch.randn(8, 4))
                assert len(other[1]._forward_pre_hooks) == len(other[1]._forward_pre_hooks_with_kwargs) == 0
            assert len(model[1]._forward_pre_hooks) == 1

    def test_gaps_at_length_1_do_not_depend_on_the_size_of_weight_or_bias(self) -> None:
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).double(), torch.randn(16, 4).double() + 1
        found = []
        for _ in range(2):
            with Monitor(model) as monitor:
                model(x)
                monitor.step()
            found.append(monitor.result().records[0]["norms"]["1"]["beta_gap_unit"])
            with torch.no_grad():
                model[0].weight.mul_(3)
                model[0].bias.add_(2)
        assert found[0] == pytest.approx(found[1], rel=1e-9)

    def test_lines_of_a_linear_have_no_unit(self) -> None:
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        with Monitor(model) as monitor:
            model(torch.randn(8, 6, 4))
            monitor.step()
        assert monitor.result().records[0]["norms"]["1"]["beta_gap_unit"] is None
