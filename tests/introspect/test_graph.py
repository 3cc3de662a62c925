"""Which norms and operations are neighbours, and what counts as a use of them."""

from torch import Tensor, nn

import geonorm
from geonorm.introspect.graph import trace
from helpers.randomized_model import randomized


class Looks(nn.Module):
    """Its forward looks at the weights, without using their values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv.weight
        assert self.norm.weight is not None
        x = x.to(weight.dtype).to(weight.device).expand(weight.size(0), weight.shape[1], -1, -1)
        return self.norm(self.conv(x))


class TestUses:
    def test_looking_at_dtype_and_shape_is_no_use(self) -> None:
        graph = trace(Looks())
        assert graph.calls == {"conv": 1, "norm": 1}
        assert graph.norms["norm"].before == "conv"
        assert geonorm.fuse(randomized(Looks())).changed
        assert geonorm.convert(Looks(), "pop").changed

    def test_a_value_taken_from_a_weight_is_one(self) -> None:
        class Uses(Looks):
            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.conv(x)) + self.conv.weight.T.mean()

        assert trace(Uses()).calls["conv"] == 2

    def test_the_reason_in_a_part_that_cannot_be_traced(self) -> None:
        class Untraceable(nn.Module):
            def __init__(self, norm: nn.Module) -> None:
                super().__init__()
                self.conv, self.norm = nn.Conv2d(3, 4, 1), norm

            def forward(self, x: Tensor) -> Tensor:
                return self.norm(self.conv(x)) if x.sum() > 0 else x

        model = Untraceable(nn.GroupNorm(2, 4)).eval()
        assert "more than once" not in str(geonorm.fuse(model))
        assert "pairs=" in geonorm.convert(model, "pop").left[0].reason
        model = Untraceable(nn.BatchNorm2d(4)).eval()
        assert "could not be traced" in geonorm.fuse(model).left[0].reason
