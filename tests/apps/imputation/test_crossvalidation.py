"""Held-out errors: what they are of, that they find the end of the schedule under noise, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.imputation import cross_validate, relative_error
from tests.apps.imputation.tensors_made import N, fourier, graph, tensor
from tests.prints import check_prints

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


def test_errors_are_those_of_slices_that_were_held_out():
    x, mask = tensor(), oc.testing.random_mask((N, 12, 12), 0.9)
    found = cross_validate(x, graph(), mask, folds=3, seed=5)
    held = found.folds == 1
    assert np.array_equal(found.folds >= 0, mask) and np.bincount(found.folds[mask]).tolist() == [24, 24, 24]
    again = oc.impute(x, mask & ~held, fourier(), n_lambdas=found.best)
    assert relative_error(again.tensor, x, held) == pytest.approx(
        np.sqrt(np.average(found.slice_errors[held, found.best - 1] ** 2, weights=(x[held] ** 2).sum(axis=(1, 2)))), rel=1e-3
    )
    assert found.error == found.errors.min() < 0.05 < found.neighbours
    assert np.isnan(found.slice_errors[~mask]).all() and np.isfinite(found.slice_errors[mask]).all()
    assert found.lambdas[0] == 1.0 and np.allclose(found.lambdas[1:] / found.lambdas[:-1], 0.5)


def test_under_noise_it_says_where_lambda_should_end():
    clean = tensor(seed=3)
    noisy = clean + 0.5 * np.random.default_rng(0).standard_normal(clean.shape).astype(np.float32)
    found = cross_validate(noisy, fourier(), folds=4)
    assert found.neighbours > found.error and 3 <= found.best < len(found.errors) - 3
    assert found.errors[-1] > 1.05 * found.error
    mask = oc.testing.random_mask(clean.shape, 0.8)
    ended, last = (oc.impute(noisy, mask, fourier(), n_lambdas=each).tensor for each in (found.best, 20))
    assert relative_error(ended, clean, ~mask) < 0.9 * relative_error(last, clean, ~mask)


def test_entries_are_scored_where_they_are_observed():
    x = tensor()
    gaps = x.copy()
    gaps[oc.testing.random_mask(x.shape, 0.1, by="entry")] = np.nan
    gaps[3] = np.nan
    found = cross_validate(gaps, graph(), folds=2, n_lambdas=8)
    assert found.folds[3] == -1 and (found.folds >= 0).sum() == N - 1 and np.isfinite(found.errors).all()


def test_a_fold_that_leaves_a_column_unseen_says_so():
    mask = np.ones((N, 12, 12), bool)
    mask[1:, :, 3] = False  # one slice alone shows it
    with pytest.warns(oc.errors.ImputationWarning, match="column 3 of every slice"):
        cross_validate(tensor(), fourier(), mask, folds=2, n_lambdas=3)


def test_it_prints_as_objects_do():
    check_prints(found := cross_validate(tensor(), graph(), folds=2, n_lambdas=3))
    assert f"{N} slices held out in 2 folds" in str(found) and found.to_dict()["best"] == found.best


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"folds": 1}, ValueError, "give 2 up to that number"),
        ({"folds": N + 1}, ValueError, f"observed of {N} slices"),
        ({"folds": 2.5}, TypeError, "give a whole number"),
        ({"checkpoint": "a"}, TypeError, "one for each fold"),
        ({"decay": 2}, ValueError, "decay is 2"),
        ({"mask": np.ones(3, bool)}, ValueError, "mask holds bool of shape"),
        ({"mask": np.ones(N)}, ValueError, "mask holds float64"),
        ({"X": np.full((N, 2, 2), 7.0)}, ValueError, "all that is observed is 7, so that there is nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(options, kind, said):
    with pytest.raises(kind, match=said):
        cross_validate(**{"X": tensor(), "graph": fourier(), **options})


@pytest.mark.parametrize("power", [-1060, -700, 700, 1010])
def test_errors_do_not_depend_on_the_unit(power):
    x, mask = tensor().astype(np.float64), oc.testing.random_mask((N, 12, 12), 0.9)
    scaled = np.ldexp(x, power)
    same = np.ldexp(scaled, -power)  # denormal numbers have fewer digits
    options = {"folds": 2, "n_lambdas": 3}
    found, expected = cross_validate(scaled, graph(), mask, **options), cross_validate(same, graph(), mask, **options)
    np.testing.assert_allclose(found.errors, expected.errors, rtol=1e-3)
    assert found.neighbours == pytest.approx(expected.neighbours, rel=1e-3)
    assert relative_error(np.ldexp(same + 1, power), scaled) == pytest.approx(relative_error(same + 1, same), rel=1e-3)
    assert relative_error(scaled, np.zeros_like(scaled)) == np.inf and relative_error(scaled, scaled) == 0
