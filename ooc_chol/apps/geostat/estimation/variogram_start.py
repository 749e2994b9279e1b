"""A start of a fit from the data's semivariogram, by least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.estimation.search import SearchSpace
from ooc_chol.apps.geostat.variography.empirical import empirical_variogram
from ooc_chol.apps.geostat.variography.least_squares import fit_variogram


def variogram_start(observations: Observations, space: SearchSpace[Any]) -> NDArray[np.float64]:
    """The point of the Matérn model whose semivariogram is nearest to that of the residuals, its range within what was seen."""
    template = space.template
    if not isinstance(template, Matern):
        raise ValueError(
            f"starts is 'variogram', which is for the isotropic Matérn covariance, not for {type(template).__name__}; there are "
            "'auto', 'template' and 'vecchia'"
        )
    variogram = empirical_variogram(observations, max_sites=None)
    model = fit_variogram(variogram, smoothness="best" if "smoothness" in space.shape else template.smoothness).model
    seen = float(variogram.edges[-1])
    variance = max(model.variance, 1e-3 * model.sill)
    nugget = model.nugget if space.fixed_nugget is None else space.fixed_nugget
    return space.raised(space.point(model.with_values(range=min(model.range, seen), variance=variance, nugget=nugget)))
