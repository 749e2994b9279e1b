"""When a run that converges is looked at."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.inside.eigen import ChebyshevFilter, Forecast

pytestmark = pytest.mark.host


@pytest.mark.parametrize("first", [1e-2, 1e-5, math.inf])
@pytest.mark.parametrize("gain", [0.5, 0.05, 1e-3])
def test_a_run_ends_at_most_a_few_steps_after_its_goal_is_reached(first, gain):
    residual, forecast, looks = first, Forecast(1e-9, 4), 0
    for step in range(4, 100):
        residual = 1.0 if math.isinf(residual) else residual * gain
        if step == forecast.due:
            looks += 1
            if forecast.is_reached(step, residual):
                break
    assert residual <= 1e-9 < residual / min(gain**2, 1e-3)
    assert looks <= 40


def test_residuals_that_do_not_fall_are_looked_at_after_each_step():
    forecast = Forecast(1e-9, 3)
    assert [(forecast.is_reached(step, 1.0), forecast.due) for step in range(3, 6)] == [(False, 4), (False, 5), (False, 6)]
    assert forecast.is_reached(6, 0.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_residuals_of_a_polynomial_bound_those_of_the_matrix(sign):
    """Of diagonal matrices and any vectors."""
    rng = np.random.default_rng(5)
    chebyshev = ChebyshevFilter(12, sign * 0.4, sign * 0.5, 10)
    d = sign * np.concatenate([rng.uniform(-0.1, 0.9, 200), [0.95, 1.0, 1.1]])
    filtered = np.cos(12 * np.arccos(((d - 0.4 * sign) / (0.5 * sign)).astype(complex))).real
    for wanted in (-1, -2, -3):
        for size in (1e-8, 1e-5):
            v = size * rng.standard_normal(len(d))
            v[wanted] = 1.0
            v /= np.linalg.norm(v)
            value = float(v @ (filtered * v))
            bound = chebyshev.bounds(np.array([value]), np.array([np.linalg.norm(filtered * v - value * v)]))
            assert np.linalg.norm(d * v - float(v @ (d * v)) * v) <= bound[0] < math.inf
    assert np.isinf(chebyshev.bounds(np.array([0.5]), np.array([1e-9]))).all()
