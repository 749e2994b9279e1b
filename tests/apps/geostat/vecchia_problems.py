"""Problems of Vecchia's approximation, and how far two ways to compute one may differ."""

from __future__ import annotations

import numpy as np

from ooc_chol.apps.geostat import Matern
from tests.apps.geostat.models import MODELS, plane
from tests.inside.geostat import VecchiaProblem, conditioning, correlation_of

#: Relative difference of the sums of two devices: what is promised.
TWO_DEVICES = 1e-10

CASES = MODELS | {f"Matern {nu}": (Matern(1.3, 0.2, nu, 0.1), plane) for nu in (0.5, 0.889, 2.5)}


def problem_of(case, n, neighbours, *, is_derived=True, has_noise=False):
    """A problem with all derivatives, and a graph that has fewer targets than observations."""
    model, sites = CASES[case]
    rng, places = np.random.default_rng(3), sites(n, 8)
    names = model.parameters if is_derived else None
    table = np.column_stack([rng.normal(size=n), np.ones(n), rng.normal(size=n)])
    noise = rng.uniform(0.05, 1.0, n) if has_noise else None
    # a nugget keeps the condition small where the covariance alone would lose digits
    correlation = correlation_of(model.with_values(nugget=0.1 * model.variance))
    graph = conditioning(model.comparable_sites(places), neighbours).sampled(n - 3)
    return VecchiaProblem(correlation, places, table, noise, names), graph


def assert_same(ours, expected):
    """Compare all that an approximation gives, each relative to its largest entry."""
    assert abs(ours.logdet - expected.logdet) <= TWO_DEVICES * max(1.0, abs(expected.logdet))
    for name in ("whitened", "trace_sums", "crossed", "products"):
        found, wanted = getattr(ours, name), getattr(expected, name)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=TWO_DEVICES * np.abs(wanted).max(initial=1e-3))
