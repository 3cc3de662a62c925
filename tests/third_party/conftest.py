"""What torchvision asks of torch before it can be imported without its compiled part."""

import contextlib

import pytest
import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
# Kept alive: a library that is collected takes its operators along.
_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name, _schema in _SCHEMAS.items():
    with contextlib.suppress(RuntimeError):  # there already, where torchvision is whole
        _LIBRARY.define(_schema)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        import timm  # noqa: F401
        import torchvision  # noqa: F401
    except Exception as error:
        for item in items:
            if "tests/third_party" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=f"run by `make test-compat`: {error}"))
