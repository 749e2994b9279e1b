"""How far predictions from neighbourhoods are from kriging with all data, or with many more of them, at a sample of the sites."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.kriged import match_sites
from ooc_chol.apps.geostat.kriging.local import LocalKriging
from ooc_chol.apps.geostat.kriging.neighbourhoods import site_groups
from ooc_chol.apps.geostat.kriging.predicted import Prediction, Target, check_target
from ooc_chol.apps.geostat.kriging.prediction import kriging

#: Clusters of sites that are compared, the most sites in each, and the data around that the reference takes.
CLUSTERS = 16
CLUSTER_SITES = 32
REFERENCE_DATA = 3000


@dataclass(frozen=True)
class LocalCheck:
    """Predictions from neighbourhoods beside a reference, at a sample of the sites.

    Parameters
    ----------
    sites : int
        Sites that were compared.
    data : int
        Data from which the reference predicts each of them.
    is_exact : bool
        True if these are all data.
    mean_difference : float
        Root mean square difference of the means, in standard errors of the reference.
    largest_difference : float
        The largest one.
    error_ratio : float
        Standard errors over those of the reference, root mean square of the ratios; above 1, since less is known.
    """

    sites: int
    data: int
    is_exact: bool
    mean_difference: float
    largest_difference: float
    error_ratio: float

    __repr__ = tb.brief_repr

    def __str__(self) -> str:
        of = "exact kriging" if self.is_exact else f"kriging from the {self.data:,} data around"
        return (
            f"against {of}, at {self.sites} of the sites: means differ by {self.mean_difference:.2g} standard errors (root mean "
            f"square; at most {self.largest_difference:.2g}), standard errors are {self.error_ratio:.4f} times as large"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON.

        Returns
        -------
        dict
            The fields by name.
        """
        return asdict(self)


def check_local_kriging(
    kriged: LocalKriging,
    sites: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    target: Target = "observation",
    data: int = REFERENCE_DATA,
    settings: FactorSettings | None = None,
) -> LocalCheck:
    """Compare predictions from neighbourhoods with kriging from all data, or from many more, at a sample of the sites.

    Parameters
    ----------
    kriged : LocalKriging
        Result of :func:`~ooc_chol.apps.geostat.local_kriging`.
    sites : (m, d) array
        Sites that are predicted.
    covariates : (m, q) array, optional
        Covariates of the mean there.
    target : {"observation", "field"}
        Whose standard errors are the unit.
    data : int
        Data from which the reference predicts, or twice the neighbours of ``kriged`` where these are more. Where there are no
        more, it is exact kriging of all.
    settings : FactorSettings, optional
        Options of the one factorization that this takes then.

    Returns
    -------
    LocalCheck
        Differences over up to 512 sites: sixteen clusters of 32 or fewer, from all over.

    Raises
    ------
    ValueError
        Dimension or covariates do not match the observations, there is no such target, or ``data`` is not positive.
    NotPositiveDefiniteError
        A covariance matrix is not positive definite in floating point.

    Notes
    -----
    Cost sixteen factorizations of ``data`` values. A reference from 3,000 data around has an error of its own, of which the
    difference between 400 and 3,000 is an idea.
    """
    check_target(target)
    if data < 1:
        raise ValueError(f"data is {data}, but the reference predicts from at least one")
    places, design = match_sites(kriged.observations, sites, covariates)
    comparable = kriged.model.comparable_sites
    clusters = site_groups(comparable(places), CLUSTER_SITES)
    chosen = [clusters[i] for i in np.unique(np.linspace(0, len(clusters) - 1, CLUSTERS).astype(np.intp))]
    # as many neighbours would compare the predictions with themselves
    count = min(max(data, 2 * kriged.neighbours), kriged.observations.n)
    larger = replace(kriged, method="vecchia", neighbours=count, spread=True)
    if count < kriged.observations.n:
        # one system for each cluster: where many data lie between its sites, a part of them
        search = larger.search()
        chosen = [search.divided(comparable(places), [cluster])[0] for cluster in chosen]
    sample = np.concatenate(chosen)
    own = chosen if kriged.shares_neighbours else list(sample[:, np.newaxis])
    ours = kriged.predict_groups(own, places, design, target=target).take(sample)
    if count == kriged.observations.n:
        columns = None if covariates is None else tb.plain_array("covariates", covariates)[sample]
        reference = _exact(kriged, places[sample], columns, target, settings)
    else:
        reference = larger.predict_groups(chosen, places, design, target=target).take(sample)
    return _compared(ours, reference, count, is_exact=count == kriged.observations.n)


def _exact(
    kriged: LocalKriging,
    sites: NDArray[np.float64],
    covariates: NDArray[np.float64] | None,
    target: Target,
    settings: FactorSettings | None,
) -> Prediction:
    """Kriging from all data."""
    known = kriged.coefficients if kriged.is_mean_known else None
    with kriging(kriged.observations, kriged.model, coefficients=known, settings=settings) as exact:
        return exact.predict(sites, covariates=covariates, target=target)


def _compared(ours: Prediction, reference: Prediction, data: int, *, is_exact: bool) -> LocalCheck:
    """Differences in standard errors; sites that are known without error have none, and are left out."""
    error = reference.standard_error
    uncertain = error > 0.0
    off = (ours.mean - reference.mean)[uncertain] / error[uncertain]
    ratio = ours.standard_error[uncertain] / error[uncertain]
    if not len(off):
        return LocalCheck(0, data, is_exact, 0.0, 0.0, 1.0)
    rms = float(np.sqrt(np.mean(off**2)))
    return LocalCheck(len(off), data, is_exact, rms, float(np.abs(off).max()), float(np.sqrt(np.mean(ratio**2))))
