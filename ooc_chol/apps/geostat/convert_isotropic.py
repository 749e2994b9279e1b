"""A Matérn covariance in other packages' names and numbers, with a line of code that makes it there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import Matern

#: Smoothness for which GSTools' Matérn is this function: outside it refuses the number, or takes the Gaussian limit in its place.
_GSTOOLS_SMOOTHNESS = (0.2, 20.0)


@dataclass(frozen=True)
class Conversion:
    """A covariance as another package has it.

    Parameters
    ----------
    package : str
        Name of the package, with the versions that this is true of.
    parameters : mapping of str to float
        Numbers by that package's names.
    code : str
        One line, Python or R, that makes the same covariance there; every number is written so that it reads back exactly.
    note : str
        Facts that the line of code leaves to its user, such as the mean.
    """

    package: str
    parameters: Mapping[str, float]
    code: str
    note: str

    __repr__ = tb.brief_repr

    def __str__(self) -> str:
        numbers = "\n".join(f"  {name} = {value!r}" for name, value in self.parameters.items())
        return f"{self.package}\n{numbers}\n  {self.code}\n  ({self.note})"


def convert_isotropic(model: Matern, to: str, dimensions: int) -> Conversion:
    """The conversion of a Matérn model, to one of :data:`PACKAGES`."""
    return _CONVERSIONS[to](model, dimensions)


def _sklearn(model: Matern, dimensions: int) -> Conversion:
    length = model.range * math.sqrt(2 * model.smoothness)
    return Conversion(
        "scikit-learn",
        {"constant_value": model.variance, "length_scale": length, "nu": model.smoothness, "alpha": model.nugget},
        f"GaussianProcessRegressor(ConstantKernel({model.variance!r}) * Matern(length_scale={length!r}, "
        f"nu={model.smoothness!r}), alpha={model.nugget!r}, optimizer=None)",
        "its mean is zero: subtract the mean from the values first",
    )


def _gstools(model: Matern, dimensions: int) -> Conversion:
    low, high = _GSTOOLS_SMOOTHNESS
    if not low <= model.smoothness <= high:
        raise ValueError(f"smoothness is {model.smoothness}, but the Matérn function of GSTools has {low} to {high} only")
    length = model.range * math.sqrt(model.smoothness)
    return Conversion(
        "GSTools 1.3 or later",
        {"var": model.variance, "len_scale": length, "nu": model.smoothness, "nugget": model.nugget},
        f"gstools.Matern(dim={dimensions}, var={model.variance!r}, len_scale={length!r}, nu={model.smoothness!r}, "
        f"nugget={model.nugget!r})",
        "the default rescale of 1 is meant; its integral_scale and percentile_scale are other lengths",
    )


def _geor(model: Matern, dimensions: int) -> Conversion:
    return Conversion(
        "geoR",
        {"sigmasq": model.variance, "phi": model.range, "kappa": model.smoothness, "tausq": model.nugget},
        f'krige.control(cov.model = "matern", cov.pars = c({model.variance!r}, {model.range!r}), kappa = {model.smoothness!r}, '
        f"nugget = {model.nugget!r})",
        "for krige.conv, with a constant mean; kappa is 0.5 there unless it is given",
    )


def _gpgp(model: Matern, dimensions: int) -> Conversion:
    ratio = model.nugget / model.variance
    return Conversion(
        "GpGp",
        {"variance": model.variance, "range": model.range, "smoothness": model.smoothness, "nugget": ratio},
        f"matern_isotropic(c({model.variance!r}, {model.range!r}, {model.smoothness!r}, {ratio!r}), locs)",
        "its nugget is the ratio of nugget to variance",
    )


def _fields(model: Matern, dimensions: int) -> Conversion:
    tau = math.sqrt(model.nugget)
    return Conversion(
        "fields",
        {"sigma2": model.variance, "aRange": model.range, "smoothness": model.smoothness, "tau": tau},
        f"Matern(rdist(x), range = {model.range!r}, smoothness = {model.smoothness!r}, phi = {model.variance!r}) "
        f"+ {model.nugget!r} * diag(nrow(x))",
        "its tau is the standard deviation of the nugget, its lambda tau^2 / sigma2",
    )


def _gstat(model: Matern, dimensions: int) -> Conversion:
    return Conversion(
        "gstat",
        {"psill": model.variance, "range": model.range, "kappa": model.smoothness, "nugget": model.nugget},
        f'vgm({model.variance!r}, "Mat", {model.range!r}, kappa = {model.smoothness!r}, nugget = {model.nugget!r})',
        "a variogram model for krige and gstat; its fits are by least squares of the variogram, not by likelihood",
    )


_CONVERSIONS: dict[str, Callable[[Matern, int], Conversion]] = {
    "sklearn": _sklearn,
    "gstools": _gstools,
    "geoR": _geor,
    "gpgp": _gpgp,
    "fields": _fields,
    "gstat": _gstat,
}

#: Packages to which :func:`convert_parameters` converts.
PACKAGES = tuple(_CONVERSIONS)
