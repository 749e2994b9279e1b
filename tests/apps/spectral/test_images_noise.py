"""Noise of images: how much there is by its estimate, and least total variation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.apps.spectral.drawn_images import six_regions
from tests.inside.spectral import Features, noise_of, smoothed

pytestmark = pytest.mark.host


def test_noise_is_estimated_beside_slopes_edges_and_what_is_left_out() -> None:
    _, labels = six_regions(0)
    y, x = np.mgrid[:80, :100]
    random = np.random.default_rng(3)
    clean = 30.0 * labels + 0.5 * x - 0.25 * y
    keep = random.uniform(size=clean.shape) > 0.02
    values = np.stack([clean, np.where(keep, clean + random.normal(0, 12, clean.shape), 1e6)], axis=2)
    estimate = noise_of(Features(values, keep))
    assert estimate[0] == pytest.approx(0, abs=1e-12)
    assert estimate[1] == pytest.approx(12, rel=0.1)
    assert noise_of(Features(values[:2], keep[:2])).tolist() == [0, 0]
    assert noise_of(Features(values, np.zeros_like(keep))).tolist() == [0, 0]


def test_least_variation_is_that_of_its_definition_and_stops_at_the_mask() -> None:
    random = np.random.default_rng(5)
    values, keep = random.normal(0, 1, (9, 12, 1)), np.ones((9, 12), np.bool_)
    keep[:, 5] = False
    noise = np.array([0.4])
    found = smoothed(Features(values, keep), noise).values

    def objective(x):
        down, right = np.zeros((9, 12)), np.zeros((9, 12))
        down[:-1] = np.where(keep[1:] & keep[:-1], np.diff(x, axis=0), 0)
        right[:, :-1] = np.where(keep[:, 1:] & keep[:, :-1], np.diff(x, axis=1), 0)
        return ((x - values[:, :, 0]) ** 2)[keep].sum() / 2 + 1.5 * noise[0] * np.hypot(down, right).sum()

    least = objective(found[:, :, 0])
    for size in (0.3, 0.03, 0.003):
        assert all(objective(found[:, :, 0] + random.normal(0, size, (9, 12))) > least for _ in range(50))
    assert least < 0.9 * objective(values[:, :, 0])
    changed = values.copy()
    changed[:, :5] += 7
    np.testing.assert_allclose(smoothed(Features(changed, keep), noise).values[:, 6:], found[:, 6:], atol=1e-12)
    np.testing.assert_array_equal(smoothed(Features(values, keep), np.zeros(1)).values, values)
