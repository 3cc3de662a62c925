"""Arrays in .npy files: whatever bit is wrong, it is an array or a DataError."""

from pathlib import Path

import numpy as np
import pytest

from geonorm.lab.data import DataError
from geonorm.lab.data.arrays import read_array


def test_right(tmp_path: Path) -> None:
    expected = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.save(tmp_path / "a.npy", expected)
    for memory_map in (False, True):
        assert (read_array(tmp_path / "a.npy", "", memory_map) == expected).all()


def test_every_bit_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3, dtype=np.uint8))
    content, refused = path.read_bytes(), 0
    for place in range(len(content) - 3):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            path.write_bytes(bytes(flipped))
            try:
                read_array(path, "")
            except DataError:
                refused += 1
    assert refused > 0.5 * 8 * (len(content) - 3)  # most of a header is what it must be; the rest are spaces


def test_archives_and_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    with pytest.raises(DataError, match=r"archive of arrays, expected one array\. Fetch it"):
        read_array(tmp_path / "a.npz", "Fetch it")
    np.save(tmp_path / "b.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"not an \.npy file of numbers"):
        read_array(tmp_path / "b.npy", "Fetch it")


takes_the_rest = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="older numpy reads what there is for a negative size"
)


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("<f8", (10**15,)),
        ("<f8", (2**62, 2**62)),
        pytest.param("|u1", (-5,), marks=takes_the_rest),
        ("<f8", (10**9, 10**9)),
        ("|V1000000000", (10**6,)),
    ],
)
def test_a_header_that_asks_for_too_much(tmp_path: Path, kind: str, shape: tuple[int, ...], memory_map: bool) -> None:
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))
    with pytest.raises(DataError, match=r"not an \.npy file of numbers, or is damaged"):
        read_array(path, "", memory_map)
