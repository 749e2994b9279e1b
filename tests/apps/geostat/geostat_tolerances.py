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


#: Difference of predictions and likelihoods from another package's dense route, relative to the spread of the values.
OTHER_PACKAGE = 1e-8
