"""One covariance in other packages' names and numbers, with a line of code that makes it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ooc_chol.apps.geostat.convert_anisotropic import ANISOTROPIC_PACKAGES, convert_anisotropic
from ooc_chol.apps.geostat.convert_isotropic import PACKAGES as PACKAGES
from ooc_chol.apps.geostat.convert_isotropic import Conversion as Conversion
from ooc_chol.apps.geostat.convert_isotropic import convert_isotropic
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.nested import Nested


def convert_parameters(model: AbstractCovariance, to: str, *, dimensions: int = 2) -> Conversion:
    """Parameters of ``model`` in another package.

    Parameters
    ----------
    model : AbstractCovariance
        A Matérn model; for scikit-learn, GSTools, gstat and fields a sum of such; for GSTools, geoR and GpGp a geometrically
        anisotropic one. Of no other the parameters are converted.
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
        There is no such package here, it does not have this smoothness, no sums or no directions, or the model is of another
        class.

    Notes
    -----
    With ``a`` for the range: GpGp, geoR and fields have ``K(h / a)`` as here, scikit-learn ``length_scale = a * sqrt(2 nu)``, and
    GSTools ``len_scale = a * sqrt(nu)``, not ``sqrt(2 nu)``. GpGp has the nugget as a ratio to the variance, fields as a standard
    deviation. An anisotropic model has the range along its longer axis as ``len_scale`` in GSTools, and that across it as ``phi``
    in geoR.

    Examples
    --------
    >>> convert_parameters(
    ...     Matern(variance=2.0, range=0.5, smoothness=0.5, nugget=0.1),
    ...     to="sklearn",
    ... ).parameters["length_scale"]
    0.5
    """
    if to not in PACKAGES:
        raise ValueError(f"there is no conversion to {to!r}; there are {', '.join(PACKAGES)}")
    if isinstance(model, GeometricAnisotropy):
        return convert_anisotropic(model, to)
    if isinstance(model, Matern):
        return convert_isotropic(model, to, dimensions)
    if isinstance(model, Nested) and all(isinstance(component, Matern) for component in model.components):
        return _nested(model, to, dimensions)
    raise ValueError(
        "only isotropic Matérn models, sums of them and anisotropic ones are converted to other packages, but the model is a "
        f"{type(model).__name__}"
    )


def packages_for(model: AbstractCovariance) -> tuple[str, ...]:
    """The packages that have such a model: all for one structure, fewer for sums and for directions."""
    if isinstance(model, GeometricAnisotropy):
        return ANISOTROPIC_PACKAGES
    return tuple(_JOINED) if isinstance(model, Nested) else PACKAGES


def _nested(model: Nested, to: str, dimensions: int) -> Conversion:
    """A sum: the parameters of each component with its number, and their lines of code put together."""
    if to not in _JOINED:
        raise ValueError(f"{to} has no sums of covariance functions here; there are {', '.join(_JOINED)}")
    parts = [convert_isotropic(component, to, dimensions) for component in model.components if isinstance(component, Matern)]
    own = _NUGGETS[to]
    parameters = {
        f"{name}_{number}": value
        for number, part in enumerate(parts, 1)
        for name, value in part.parameters.items()
        if name != own
    }
    whole = convert_isotropic(Matern(1.0, 1.0, 0.5, model.nugget), to, dimensions).parameters[own]
    code, note = _JOINED[to](model, [part.code for part in parts])
    return Conversion(parts[0].package, {**parameters, own: whole}, code, note)


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
