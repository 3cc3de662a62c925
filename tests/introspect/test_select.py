"""Which modules `where` selects: by a pattern, a list, a function, and any of several names."""

import pytest
from torch import nn

import geonorm
from helpers.model_states import conv_net
from helpers.third_party_models import Nested


class TestWhere:
    def test_a_pattern_a_list_a_function(self) -> None:
        for where in ("1", ["1"], lambda name, module: name == "1"):
            model = conv_net()
            report = geonorm.convert(model, "augbn", where=where)
            assert [change.name for change in report.changed] == ["1"]
            assert type(model[4]) is nn.BatchNorm2d

    def test_a_pattern_for_nothing_changes_nothing(self) -> None:
        model = conv_net()
        with pytest.raises(ValueError, match="where='norm' matches no module"):
            geonorm.convert(model, "augbn", where="norm")

    def test_a_shared_module_by_any_of_its_names(self) -> None:
        model = Nested()
        assert geonorm.convert(model, "aug", where="twice.a").changed[0].name == "shared"
