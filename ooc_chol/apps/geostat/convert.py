"""One covariance in other packages' names and numbers, with a line of code that makes it there."""

from __future__ import annotations

from ooc_chol.apps.geostat.convert_anisotropic import convert_anisotropic
from ooc_chol.apps.geostat.convert_isotropic import PACKAGES as PACKAGES
from ooc_chol.apps.geostat.convert_isotropic import Conversion as Conversion
from ooc_chol.apps.geostat.convert_isotropic import convert_isotropic
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy


def convert_parameters(model: AbstractCovariance, to: str, *, dimensions: int = 2) -> Conversion:
    """Parameters of ``model`` in another package.

    Parameters
    ----------
    model : AbstractCovariance
        A Matérn model, or a geometrically anisotropic one, which GSTools, geoR and GpGp have.
    to : {"sklearn", "gstools", "geoR", "gpgp", "fields"}
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
        There is no such package here, it does not have this smoothness or no anisotropy, or the model is of another class.

    Notes
    -----
    With ``a`` for the range: GpGp, geoR and fields have ``K(h / a)`` as here, scikit-learn ``length_scale = a * sqrt(2 nu)``, and
    GSTools ``len_scale = a * sqrt(nu)``, not ``sqrt(2 nu)``. GpGp has the nugget as a ratio to the variance, fields as a standard
    deviation. An anisotropic model has the range along its longer axis as ``len_scale`` in GSTools, and that across it as ``phi``
    in geoR.

    Examples
    --------
    >>> convert_parameters(Matern(variance=2.0, range=0.5, smoothness=0.5, nugget=0.1), to="sklearn").parameters["length_scale"]
    0.5
    """
    if to not in PACKAGES:
        raise ValueError(f"there is no conversion to {to!r}; there are {', '.join(PACKAGES)}")
    if isinstance(model, GeometricAnisotropy):
        return convert_anisotropic(model, to)
    if not isinstance(model, Matern):
        raise ValueError(
            "only isotropic Matérn models, and geometrically anisotropic ones, are converted to other packages, but the model is "
            f"a {type(model).__name__}"
        )
    return convert_isotropic(model, to, dimensions)
