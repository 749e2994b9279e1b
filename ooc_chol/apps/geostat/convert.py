"""One covariance in other packages' names and numbers, with a line of code that makes it there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.nested import Nested

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
        What the line of code leaves to its user, such as the mean.
    """

    package: str
    parameters: Mapping[str, float]
    code: str
    note: str

    __repr__ = oc.brief_repr

    def __str__(self) -> str:
        numbers = "\n".join(f"  {name} = {value!r}" for name, value in self.parameters.items())
        return f"{self.package}\n{numbers}\n  {self.code}\n  ({self.note})"


def convert_parameters(model: AbstractCovariance, to: str, *, dimensions: int = 2) -> Conversion:
    """Parameters of ``model`` in another package.

    Parameters
    ----------
    model : AbstractCovariance
        A Matérn model or, for scikit-learn, GSTools, gstat and fields, a sum of such; of no other the parameters are converted.
    to : {"sklearn", "gstools", "geoR", "gpgp", "fields", "gstat"}
        Package whose parameters are wanted.
    dimensions : int
        Number of coordinates, which GSTools wants to know.

    Returns
    -------
    Conversion
        Names, numbers and a line of code.

    Raises
    ------
    ValueError
        There is no such package here, it does not have this smoothness or no sums, or the model is no isotropic Matérn model and
        no sum of such.

    Notes
    -----
    With ``a`` for the range: GpGp, geoR and fields have ``K(h / a)`` as here, scikit-learn ``length_scale = a * sqrt(2 nu)``, and
    GSTools ``len_scale = a * sqrt(nu)``, not ``sqrt(2 nu)``. GpGp has the nugget as a ratio to the variance, fields as a standard
    deviation.

    Examples
    --------
    >>> convert_parameters(Matern(variance=2.0, range=0.5, smoothness=0.5, nugget=0.1), to="sklearn").parameters["length_scale"]
    0.5
    """
    if to not in _CONVERSIONS:
        raise ValueError(f"there is no conversion to {to!r}; there are {', '.join(PACKAGES)}")
    if isinstance(model, Matern):
        return _CONVERSIONS[to](model, dimensions)
    if isinstance(model, Nested) and all(isinstance(component, Matern) for component in model.components):
        return _nested(model, to, dimensions)
    raise ValueError(
        "only isotropic Matérn models and sums of them are converted to other packages, but the model is a "
        f"{type(model).__name__}"
    )


def packages_for(model: AbstractCovariance) -> tuple[str, ...]:
    """The packages that have such a model: all for one structure, fewer for sums."""
    return tuple(_JOINED) if isinstance(model, Nested) else PACKAGES


def _nested(model: Nested, to: str, dimensions: int) -> Conversion:
    """A sum: the parameters of each component with its number, and their lines of code put together."""
    if to not in _JOINED:
        raise ValueError(f"{to} has no sums of covariance functions here; there are {', '.join(_JOINED)}")
    parts = [_CONVERSIONS[to](component, dimensions) for component in model.components if isinstance(component, Matern)]
    own = _NUGGETS[to]
    parameters = {
        f"{name}_{number}": value
        for number, part in enumerate(parts, 1)
        for name, value in part.parameters.items()
        if name != own
    }
    whole = _CONVERSIONS[to](Matern(1.0, 1.0, 0.5, model.nugget), dimensions).parameters[own]
    code, note = _JOINED[to](model, [part.code for part in parts])
    return Conversion(parts[0].package, {**parameters, own: whole}, code, note)


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


def _joined_sklearn(model: Nested, codes: Sequence[str]) -> tuple[str, str]:
    kernels = (code[code.index("(") + 1 : code.index(", alpha=")] for code in codes)
    return (
        f"GaussianProcessRegressor({' + '.join(kernels)}, alpha={model.nugget!r}, optimizer=None)",
        "its mean is zero: subtract the mean from the values first",
    )


def _joined_gstools(model: Nested, codes: Sequence[str]) -> tuple[str, str]:
    # the nugget of a sum is that of its parts
    first = codes[0].replace("nugget=0.0", f"nugget={model.nugget!r}")
    return " + ".join([first, *codes[1:]]), "sums are there from GSTools 1.7 on, their nugget being that of their parts"


def _joined_fields(model: Nested, codes: Sequence[str]) -> tuple[str, str]:
    terms = (code[: code.index(" + ")] for code in codes)
    return f"{' + '.join(terms)} + {model.nugget!r} * diag(nrow(x))", "the matrix of the observations at rows of x"


def _joined_gstat(model: Nested, codes: Sequence[str]) -> tuple[str, str]:
    pieces = [code[: code.index(", nugget")] for code in codes]
    code = f"{pieces[-1]}, nugget = {model.nugget!r})"
    for piece in reversed(pieces[:-1]):
        code = f"{piece}, add.to = {code})"
    return code, "structures are nested by add.to"


#: Names of the nugget, and how the lines of code of several structures become one.
_NUGGETS = {"sklearn": "alpha", "gstools": "nugget", "fields": "tau", "gstat": "nugget"}
_JOINED: dict[str, Callable[[Nested, Sequence[str]], tuple[str, str]]] = {
    "sklearn": _joined_sklearn,
    "gstools": _joined_gstools,
    "fields": _joined_fields,
    "gstat": _joined_gstat,
}

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
