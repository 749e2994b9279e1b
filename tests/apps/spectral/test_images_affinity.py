"""Affinities of pixels: every weight against its formula, symmetric to the bit, whatever the bands and masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from tests.inside.spectral import Features, Scales, affinity, check_scales, pixel_affinity

pytestmark = pytest.mark.host


def by_pairs(features: Features, scales: Scales) -> NDArray[np.float64]:
    """All pairs of pixels, one matrix of distances."""
    y, x = np.nonzero(features.keep)
    values = features.values[features.keep]
    far = (y[:, None] - y) ** 2 + (x[:, None] - x) ** 2
    weights = np.exp(-((values[:, None] - values) ** 2).sum(axis=2) / scales.sigma_i**2)
    if scales.sigma_x is not None:
        weights *= np.exp(-far / scales.sigma_x**2)
    return np.where((far > 0) & (far <= scales.radius**2), weights, 0)


def check_form(matrix: csr_array) -> None:
    """What a Graph promises."""
    assert (matrix != matrix.T).nnz == 0
    assert not matrix.diagonal().any()
    assert matrix.data.min(initial=1) > 0
    fresh = csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
    assert fresh.has_sorted_indices
    assert fresh.has_canonical_format


@settings(max_examples=40)
@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.integers(1, 3),
    radius=st.sampled_from([1, 1.5, 2, 3, 5, 20]),
    sigma_x=st.sampled_from([None, 2.5]),
    masked=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_weights_are_those_of_the_formula(
    height: int, width: int, channels: int, radius: float, sigma_x: float | None, masked: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    keep = rng.random((height, width)) < 0.7 if masked else np.ones((height, width), bool)
    features = Features(rng.uniform(0, 100, (height, width, channels)), keep)
    scales = check_scales(radius, 30.0, sigma_x)
    graph = pixel_affinity(features, scales)
    check_form(graph.adjacency)
    np.testing.assert_allclose(graph.adjacency.toarray(), by_pairs(features, scales), rtol=1e-13)


@pytest.mark.parametrize("shape", [(9, 9000), (13, 6000), (700, 60)])
def test_bands_do_not_show(shape: tuple[int, int]) -> None:
    """Bands of one row, of two, and of 273: the weights to rows further down come from bands before."""
    rng = np.random.default_rng(3)
    values, keep = rng.uniform(0, 255, (*shape, 1)), rng.random(shape) < 0.9
    matrix = pixel_affinity(Features(values, keep), check_scales(3, 60.0, 4.0)).adjacency
    check_form(matrix)
    number = np.cumsum(keep).reshape(shape) - 1
    rows, columns, data = [], [], []
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            if not 0 < dy**2 + dx**2 <= 9:
                continue
            y, x = np.nonzero(keep)
            inside = (y + dy >= 0) & (y + dy < shape[0]) & (x + dx >= 0) & (x + dx < shape[1])
            y, x = y[inside], x[inside]
            both = keep[y + dy, x + dx]
            y, x = y[both], x[both]
            rows.append(number[y, x])
            columns.append(number[y + dy, x + dx])
            far = (values[y, x, 0] - values[y + dy, x + dx, 0]) ** 2 / 60.0**2 + (dy**2 + dx**2) / 16
            data.append(np.exp(-far))
    n = int(keep.sum())
    wanted = coo_array((np.concatenate(data), (np.concatenate(rows), np.concatenate(columns))), shape=(n, n)).tocsr()
    wanted.sort_indices()
    np.testing.assert_array_equal(matrix.indptr, wanted.indptr)
    np.testing.assert_array_equal(matrix.indices, wanted.indices)
    np.testing.assert_allclose(matrix.data, wanted.data, rtol=1e-13)


def test_entries_of_a_camera_are_those_of_the_radius() -> None:
    """609,016 pairs of 80 x 100 pixels lie at most 5 apart."""
    features = Features(np.zeros((80, 100, 1)), np.ones((80, 100), bool))
    assert pixel_affinity(features, check_scales(5, 20.0, None)).adjacency.nnz == 609_016


def test_weights_too_small_for_float64_are_no_entries() -> None:
    values = np.array([[0.0, 1.0, 2000.0]])[:, :, None]
    matrix = pixel_affinity(Features(values, np.ones((1, 3), bool)), check_scales(2, 1.0, None)).adjacency
    assert matrix.nnz == 2
    assert matrix[0, 1] == np.exp(-1.0)


@pytest.mark.parametrize(("sigma_x", "entries"), [(1e200, 4), (1e160, 4), (1e-160, 0), (1e-200, 0), (5e-324, 0)])
def test_scales_of_any_magnitude(sigma_x: float, entries: int) -> None:
    features = Features(np.zeros((1, 3, 1)), np.ones((1, 3), bool))
    matrix = pixel_affinity(features, check_scales(1, 1.0, sigma_x)).adjacency
    assert matrix.nnz == entries and (matrix.data == 1).all()


@pytest.mark.parametrize(
    ("radius", "sigma_i", "sigma_x", "told"),
    [
        (0, 20.0, None, "radius is 0: it must be at least 1"),
        (0.9, 20.0, None, "radius"),
        (float("nan"), 20.0, None, "radius"),
        (5, 0.0, None, "sigma_i is 0: it must be a positive number"),
        (5, -1.0, None, "sigma_i"),
        (5, float("inf"), None, "sigma_i"),
        (5, 20.0, 0.0, "sigma_x is 0"),
    ],
)
def test_scales_that_make_no_sense(radius: float, sigma_i: float, sigma_x: float | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_scales(radius, sigma_i, sigma_x)


def test_an_image_needs_sigma_i() -> None:
    with pytest.raises(TypeError, match="sigma_i"):
        check_scales(5, None, None)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("sigma_i", [60.0, 5.0])  # with 5, some weights are too small and close up
@pytest.mark.parametrize("entries", [1, 5000])
def test_bits_do_not_depend_on_how_rows_are_cut_for_threads(monkeypatch, entries, sigma_i, is_masked):
    random = np.random.default_rng(5)
    keep = random.random((23, 17)) > (0.2 if is_masked else -1)
    features, scales = Features(random.integers(0, 255, (23, 17, 3)) * 1.0, keep), Scales(4.5, sigma_i, 4.0)
    whole = pixel_affinity(features, scales).adjacency
    monkeypatch.setattr(affinity, "_BAND_ENTRIES", entries)
    cut = pixel_affinity(features, scales).adjacency
    for name in ("data", "indices", "indptr"):
        assert getattr(cut, name).tobytes() == getattr(whole, name).tobytes()
    wanted = by_pairs(features, scales)
    assert cut.nnz == np.count_nonzero(wanted >= np.finfo(float).tiny)
    np.testing.assert_allclose(cut.toarray(), np.where(wanted >= np.finfo(float).tiny, wanted, 0), rtol=1e-12)
