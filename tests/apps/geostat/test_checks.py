"""Scores of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from ooc_chol.apps.geostat import Prediction, gaussian_crps, score

pytestmark = pytest.mark.plan


@pytest.mark.parametrize(("value", "mean", "deviation"), [(0.3, 0.0, 1.0), (-2.0, 1.0, 0.5), (4.0, 4.0, 3.0)])
def test_crps_is_the_integral_of_the_squared_distribution_error(value, mean, deviation):
    def error(t):
        return (ndtr((t - mean) / deviation) - (t >= value)) ** 2

    integral = quad(error, mean - 40, value)[0] + quad(error, value, mean + 40)[0]
    assert gaussian_crps(np.array([value]), np.array([mean]), np.array([deviation]))[0] == pytest.approx(integral, abs=1e-7)


def test_crps_of_a_certain_prediction_is_the_absolute_error():
    assert gaussian_crps(np.array([3.0]), np.array([1.0]), np.array([0.0]))[0] == 2.0


def test_scores_by_hand():
    prediction = Prediction(np.array([0.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0]), "observation")
    scores = score(prediction, [1.0, -1.0, 1.9, 3.0], [2.0, 4.0])
    assert scores.rmse == pytest.approx(np.sqrt((1 + 1 + 3.61 + 9) / 4))
    assert scores.rmse_of_mean == pytest.approx(np.sqrt((4 + 16 + 1.21 + 0) / 4))
    assert (scores.coverage, scores.n, scores.level) == (0.75, 4, 0.95)


def test_the_smooth_field_is_not_what_was_held_out():
    with pytest.raises(ValueError, match="target='observation'"):
        score(Prediction(np.zeros(2), np.ones(2), "field"), [0.0, 1.0], [0.0])


def test_wrong_lengths_and_levels_are_named():
    prediction = Prediction(np.zeros(2), np.ones(2), "observation")
    with pytest.raises(ValueError, match="2 predictions"):
        score(prediction, [0.0], [0.0])
    with pytest.raises(ValueError, match="level is 95"):
        prediction.interval(95)
