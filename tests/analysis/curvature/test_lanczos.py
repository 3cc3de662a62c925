"""Lanczos against whole spectra: both ends, and an error that is a bound."""

from __future__ import annotations

import math

import pytest
import torch

from geonorm.analysis.curvature.lanczos import lanczos
from helpers.float64_classifier import seeded_randn64


class TestLanczos:
    def test_against_the_whole_spectrum(self) -> None:
        a = seeded_randn64(40, 40)
        a = a + a.T
        values = torch.linalg.eigvalsh(a)
        ends = lanczos(lambda v: a @ v, seeded_randn64(40, seed=1), steps=40, tolerance=1e-12)
        assert ends.largest == pytest.approx(float(values[-1]), rel=1e-12)
        assert ends.smallest == pytest.approx(float(values[0]), rel=1e-12)

    def test_its_error_is_a_bound(self) -> None:
        a = torch.diag(torch.linspace(-1, 3, 200, dtype=torch.float64))
        for steps in (2, 5, 10, 20):
            ends = lanczos(lambda v: a @ v, seeded_randn64(200, seed=2), steps=steps, tolerance=1e-14)
            assert ends.products == steps
            for value in (ends.largest, ends.smallest):
                assert float((a.diagonal() - value).abs().min()) <= ends.error + 1e-14
        assert ends.error > 1e-6

    def test_it_stops_when_nothing_is_left(self) -> None:
        zero = lanczos(torch.zeros_like, seeded_randn64(30), steps=20, tolerance=1e-6)
        assert zero == (0.0, 0.0, 0.0, 1)
        assert lanczos(lambda v: 2 * v, seeded_randn64(30), steps=20, tolerance=1e-12).products == 1
        single = lanczos(lambda v: -3 * v, seeded_randn64(1), steps=20, tolerance=1e-12)
        assert (single.largest, single.smallest) == (-3.0, -3.0)
        assert math.isnan(lanczos(lambda v: v * math.nan, seeded_randn64(3), steps=9, tolerance=1e-6).largest)
