"""Tolerances of the geostatistics tests, from the unit roundoff or from the digits that a reference gives."""

from __future__ import annotations

from tests.tolerances import unit_roundoff

#: Relative difference of a closed form from ``scipy.special.kv``, whose own error is some units in the last place.
CLOSED_FORM = 1e-13

#: Relative difference of two routes to one number through a factorization of a matrix of condition below 1e6.
TWO_ROUTES = 1e6 * 64 * unit_roundoff(float)

#: Absolute error of a central difference of the log-likelihood with step 1e-4 in logarithms: curvature times n.
CENTRAL_DIFFERENCE = 1e-5


def printed(decimals: int) -> float:
    """Half a unit of the last of ``decimals`` printed decimals."""
    return 0.5 * 10.0**-decimals * 1.0001


#: Error of a tabulated covariance function and its derivatives, relative to the largest value; promised is 1e-13 of the variance.
TABLE = 1e-13

#: Relative difference from special functions that are printed with 17 digits: some roundings of the arithmetic that leads there.
SEVENTEEN_DIGITS = 5e-14

#: Error of a five-point difference, relative to the largest derivative: step**4 / 30 of the fifth derivative, rounding / step.
FIVE_POINTS = 1e-6

#: Relative difference from scikit-learn, which uses ``scipy.special.kv`` and adds a small number to zero distances.
SCIKIT_LEARN = 1e-8


#: Absolute difference of numbers of order one by two chains of a few elementary functions.
ELEMENTARY = 64 * unit_roundoff(float)

#: Largest of a hundred normal deviates, in standard deviations: exceeded by chance with one seed in a thousand.
MONTE_CARLO_DEVIATIONS = 4.5


#: Difference of predictions and likelihoods from another package's dense route, relative to the spread of the values.
OTHER_PACKAGE = 1e-8

#: Standard errors by which a Monte-Carlo mean of a fixed seed may differ from what it estimates: 1 in 16,000.
MONTE_CARLO_ERRORS = 4.0

#: Standard errors by which an estimate may differ from the truth: by chance with one parameter in 370.
ESTIMATE_ERRORS = 3.0

#: Relative error of a log-likelihood whose smallest pivot is as small as is let pass: some roundings of it.
LEAST_PIVOT = 0.2
