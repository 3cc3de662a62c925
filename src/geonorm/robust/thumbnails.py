"""Small pictures of samples that are images, for a page: PNG data URLs, without another library."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, interpolate

from ..introspect.observe import each_batch
from .screen import values_of

_SIDE = 96  # pixels, at most
_LEAST = 4  # pixels along each side of an image
_MOST_FOR_SCALE = 256  # images whose values define black and white
_HIDDEN = 0.5  # with a larger fraction of values out of the common range, a picture on its own scale too
_SIGNAL = (255, 0, 255)  # a pixel that is not finite


class Thumbnail(NamedTuple):
    """A sample as ``data:`` URLs of pictures: on the common scale and, if that shows little of it, on its own."""

    common: str
    own: str | None


def thumbnails(batches: Any, wanted: Collection[int], sound: Collection[int]) -> dict[int, Thumbnail]:
    """Pictures of samples by index; empty if the samples are not images of one or three channels.

    Black and white are the 1st and the 99th percentile of the values of sound samples, the same for all pictures.
    Pixels that are not finite are magenta.
    """
    left, kept, seen = set(wanted), {}, 0
    some = set(list(sound)[:: max(1, len(sound) // _MOST_FOR_SCALE)][:_MOST_FOR_SCALE])
    values: list[Tensor] = []
    for batch in each_batch(batches):
        x = values_of(batch)
        if x.dim() != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < _LEAST:
            return {}
        for i in (left | some) & set(range(seen, seen + len(x))):
            small = _small(x[i - seen].detach().cpu().float())
            if i in left:
                kept[i] = small
            if i in some:
                values.append(small.flatten())
        seen += len(x)
        left -= kept.keys()
        if not left and seen > max(some, default=0):
            break
    low, high = _range(torch.cat(values or [small.flatten() for small in kept.values()] or [torch.zeros(1)]))
    return {i: _drawn(small, low, high) for i, small in kept.items()}


def _drawn(image: Tensor, low: float, high: float) -> Thumbnail:
    finite = image[image.isfinite()]
    beyond = bool(len(finite)) and float(((finite < low) | (finite > high)).double().mean()) > _HIDDEN
    varies = beyond and bool(finite.max() > finite.min())
    return Thumbnail(_address(image, low, high), _address(image, *_range(finite)) if varies else None)


def _range(values: Tensor) -> tuple[float, float]:
    values = values[values.isfinite()].sort().values
    if not len(values):
        return 0.0, 1.0
    low, high = (float(values[round(fraction * (len(values) - 1))]) for fraction in (0.01, 0.99))
    return low, high if high > low else low + 1.0


def _small(image: Tensor) -> Tensor:
    """The image shrunk to the size of a picture; a pixel is NaN if any of the pixels behind it is not finite."""
    height, width = image.shape[1:]
    shrink = _SIDE / max(height, width)
    if shrink >= 1:
        return image
    size = (max(1, round(height * shrink)), max(1, round(width * shrink)))
    bad = adaptive_max_pool2d((~image.isfinite()).float()[None], size)[0] > 0
    mean = interpolate(image.nan_to_num(0.0, 0.0, 0.0)[None], size, mode="area")[0]
    return torch.where(bad, math.nan, mean)


def _address(image: Tensor, low: float, high: float) -> str:
    bad = (~image.isfinite()).any(0)
    levels = ((image.double() - low) / (high - low)).nan_to_num(0.0).clamp(0, 1).mul(255).round().to(torch.uint8)
    pixels = levels.expand(3, -1, -1).permute(1, 2, 0).contiguous()
    pixels[bad] = torch.tensor(_SIGNAL, dtype=torch.uint8)
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def png(pixels: Tensor) -> bytes:
    """RGB pixels (height, width, 3) of uint8 as a PNG file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)  # 0: the line is not filtered

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
