"""Twenty architectures of timm and ten of Hugging Face, from their configurations. Run by `make test-compat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from helpers.third_party_checks import check_convert_and_revert, check_fuse, nudge_norms

TOLERANCE = 1e-10  # in float64, through up to 150 norms


class Timm(NamedTuple):
    """Norms that convert takes, and how many of them fuse; the side of an image."""

    norms: int
    fused: int
    side: int = 96


TIMM = {
    "resnet26": Timm(29, 29),
    "resnext26ts": Timm(31, 31),
    "seresnet33ts": Timm(38, 38),
    "regnetx_002": Timm(44, 44),
    "regnety_002": Timm(44, 44),
    "mobilenetv2_050": Timm(52, 52),
    "mobilenetv3_small_050": Timm(34, 34),
    "mnasnet_small": Timm(46, 46),
    "tf_efficientnet_lite0": Timm(49, 44),  # five convolutions pad in a forward of their own
    "densenet121": Timm(121, 59),  # norms in front of an activation, as preactivation has them
    "dla34": Timm(37, 37),
    "hrnet_w18_small": Timm(91, 91),
    "ghostnet_100": Timm(80, 80),
    "repvgg_a0": Timm(61, 44),  # 17 branches that are a norm alone
    "inception_v4": Timm(149, 149),
    "cspresnet50": Timm(55, 55),
    "levit_128s": Timm(52, 6, 224),  # dense layers whose output is reshaped in front of the norm; two heads fuse
    "mixer_s32_224": Timm(17, 0, 224),
    "swin_tiny_patch4_window7_224": Timm(29, 0, 224),
    "edgenext_xx_small": Timm(20, 0),
}


def image_model(name: str) -> tuple[nn.Module, Tensor]:
    import timm

    torch.manual_seed(0)
    model = nudge_norms(timm.create_model(name, num_classes=10)).double()
    for part in model.modules():  # some heads start at 0, and would hide everything before them
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.normal_(part.weight, std=0.1)
    return model, torch.randn(1, 3, TIMM[name].side, TIMM[name].side, dtype=torch.float64)


@pytest.mark.parametrize("name", TIMM)
class TestTimm:
    def test_convert_and_revert(self, name: str) -> None:
        check_convert_and_revert(*image_model(name), TIMM[name].norms, TOLERANCE)

    def test_fuse(self, name: str) -> None:
        check_fuse(*image_model(name), TIMM[name].fused, TOLERANCE)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(0, 50, (2, 7))}


def pixels(side: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, side, side, dtype=torch.float64)}


def sound() -> dict[str, Tensor]:
    return {"input_values": torch.randn(2, 400, dtype=torch.float64)}


_TEXT = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class HuggingFace(NamedTuple):
    """A configuration, its inputs, the norms that convert takes, and how many of them fuse."""

    config: str
    settings: dict[str, Any]
    inputs: Callable[[], dict[str, Tensor]]
    norms: int
    fused: int = 0


HUGGING_FACE = [
    HuggingFace("BertConfig", _TEXT, tokens, 5),
    HuggingFace("RobertaConfig", _TEXT, tokens, 5),
    HuggingFace(
        "DistilBertConfig", {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}, tokens, 5
    ),
    HuggingFace(
        "GPT2Config", {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "use_cache": False}, tokens, 5
    ),
    HuggingFace("ViTConfig", {**_VISION, "image_size": 32, "patch_size": 8}, pixels, 5),
    HuggingFace(
        "ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, pixels, 1
    ),  # 4 have a forward of their own
    HuggingFace("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, pixels, 8, 8),
    HuggingFace(
        "MobileNetV2Config", {"depth_multiplier": 0.35}, pixels, 52
    ),  # blocks look at their settings: they cannot be traced
    HuggingFace("SegformerConfig", {"hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 1, 2, 2]}, pixels, 30),
    HuggingFace(
        "Wav2Vec2Config",
        {
            **_TEXT,
            "conv_dim": (8, 8),
            "conv_kernel": (10, 3),
            "conv_stride": (5, 2),
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
        },
        sound,
        7,
    ),
]


def hugging_face_model(case: HuggingFace) -> tuple[nn.Module, dict[str, Tensor]]:
    transformers = pytest.importorskip("transformers")

    torch.manual_seed(0)
    config = getattr(transformers, case.config)(**case.settings)
    return nudge_norms(transformers.AutoModel.from_config(config)).double(), case.inputs()


@pytest.mark.parametrize("case", HUGGING_FACE, ids=lambda case: case.config.removesuffix("Config"))
@pytest.mark.filterwarnings("ignore")  # of the other library
class TestHuggingFace:
    def test_convert_and_revert(self, case: HuggingFace) -> None:
        check_convert_and_revert(*hugging_face_model(case), case.norms, TOLERANCE)

    def test_fuse(self, case: HuggingFace) -> None:
        check_fuse(*hugging_face_model(case), case.fused, TOLERANCE)
