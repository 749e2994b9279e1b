"""Gaussian-process regression on many points: parameters by Vecchia's approximation, then one exact factorization to predict.

50,000 points take a covariance matrix of 20 GB, whose factor takes 10: give ``--store FILE`` where memory has less room.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from ooc_chol.apps import geostat


def surface(points: np.ndarray) -> np.ndarray:
    """The function that is to be learnt, at points of the unit square."""
    x, y = points.T
    return np.sin(9 * x) * np.cos(7 * y) + 0.5 * np.sin(25 * (x + y))


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit noisy values of a function, and predict it elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=50_000, help="points to learn from (default: 50000)")
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation of the errors of the values (default: 0.1)")
    parser.add_argument("--store", help="a new file that holds the factor in place of memory")
    parser.add_argument("--memory-budget", help="memory per device, such as '4 GiB' (default: half of what is free on the host)")
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    points, elsewhere = rng.uniform(size=(options.n, 2)), rng.uniform(size=(1000, 2))
    values = surface(points) + options.noise * rng.normal(size=options.n)
    observations = geostat.make_observations(points, values)
    settings = geostat.FactorSettings(store=options.store, memory_budget=options.memory_budget)
    print(settings.plan(geostat.covariance_source(geostat.Matern(1.0, 0.1, 2.5, 0.01), points)))

    # a search on the approximation takes no factorization; exact_check="value" would add one and say how far off it is
    found = geostat.fit(observations, smoothness=2.5, method="vecchia", exact_check="skip", settings=settings)
    print(f"Matérn 5/2 with range {found.model.range:.4g}, found in {found.report.seconds.total:.1f} s")
    print(f"noise {np.sqrt(found.model.nugget):.3g}, where {options.noise:g} is true")

    with geostat.kriging(observations, found.model, settings=settings) as kriged:
        prediction = kriged.predict(elsewhere, target="field")
        print(kriged.factor.report)
    lower, upper = prediction.interval(0.95)
    truth = surface(elsewhere)
    print(f"root mean square error {np.sqrt(np.mean((prediction.mean - truth) ** 2)):.3g} at {len(truth)} other points")
    print(f"95 % intervals hold {100 * np.mean((lower <= truth) & (truth <= upper)):.1f} % of the true values")


if __name__ == "__main__":
    main()
