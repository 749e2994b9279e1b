"""Land-surface temperatures of MODIS (Heaton et al. 2019): the likelihood prefers one model, predictions in gaps the other."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import compare, cross_validate, folds, make_observations, predict, score

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("one_blas_thread")]

#: First column and row of a window of 60 x 56 pixels with few gaps, and of one whose gaps are cut into it.
WINDOW, GAPS, SIZE = (195, 72), (395, 180), (60, 56)


def lattice(data_dir):
    """Where the training values are, where the test sites are, and the training values in degrees Celsius."""
    with np.load(data_dir / "modis.npz") as data:
        shape = len(data["lon_axis"]), len(data["lat_axis"])
        train, test, values = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool), np.full(shape, np.nan)
        train[data["train_ix"], data["train_iy"]] = True
        test[data["test_ix"], data["test_iy"]] = True
        values[data["train_ix"], data["train_iy"]] = 0.02 * data["train_dn"] - 273.15
        places = np.stack(np.meshgrid(data["lon_axis"], data["lat_axis"], indexing="ij"), axis=-1)
    return train, test, values, places


@pytest.fixture(scope="module")
def window(data_dir):
    """Sites and values of the window, and of what gaps of the shape of true ones cut out of it."""
    train, test, values, places = lattice(data_dir)
    part, gaps = (tuple(slice(a, a + size) for a, size in zip(first, SIZE, strict=True)) for first in (WINDOW, GAPS))
    is_known, is_gap = train[part], test[gaps]
    held, kept = is_known & is_gap, np.flatnonzero(is_known & ~is_gap)
    sites, known = places[part].reshape(-1, 2), values[part].ravel()
    return sites[kept], known[kept], places[part][held], values[part][held]


def test_folds_by_gaps_choose_what_predicts_better_and_the_likelihood_does_not(window):
    sites, values, held_sites, held = window
    centre = sites.mean(axis=0)
    plain, trend = make_observations(sites, values), make_observations(sites, values, covariates=sites - centre)
    how = {"method": "vecchia", "neighbours": 15, "exact_check": "skip"}
    rough, smooth = geostat.fit(plain, smoothness=0.5, **how), geostat.fit(trend, smoothness="free", **how)
    # two parameters of the mean and one of the covariance more
    assert smooth.aic < rough.aic - 100
    assert rough.comparison.is_rejected and any("--how gaps" in text for text in rough.warnings)

    def compared(chosen):
        pairs = (("rough", plain, rough.model), ("smooth", trend, smooth.model))
        return compare({name: cross_validate(data, model, folds=chosen) for name, data, model in pairs})

    chosen = folds(plain, how="gaps", sites=held_sites)
    by_gaps, at_random = compared(chosen), compared(folds(plain))
    assert chosen.mismatch < 0.25
    assert at_random.best == "smooth" and by_gaps.best == "rough"
    assert by_gaps.scores["rough"].rmse < by_gaps.scores["smooth"].rmse
    # and the gaps themselves agree
    truth = [
        score(predict(plain, rough.model, held_sites), held, values),
        score(predict(trend, smooth.model, held_sites, covariates=held_sites - centre), held, values),
    ]
    assert truth[0].crps < truth[1].crps and truth[0].rmse < truth[1].rmse
