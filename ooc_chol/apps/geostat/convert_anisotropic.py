"""A geometrically anisotropic Matérn covariance in other packages' names and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ooc_chol.apps.geostat.convert_isotropic import Conversion, convert_isotropic
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.matern import Matern


def convert_anisotropic(model: GeometricAnisotropy, to: str) -> Conversion:
    """Parameters of an anisotropic model in another package that has such models."""
    if to not in _CONVERSIONS:
        raise ValueError(f"{to} has no geometric anisotropy of any direction; {', '.join(_CONVERSIONS)} have")
    if not isinstance(model.base, Matern):
        raise ValueError(
            f"only Matérn models are converted to other packages, but this is an anisotropic {type(model.base).__name__}"
        )
    canonical = model.canonical()
    assert isinstance(canonical.base, Matern), "the canonical form has the same base"
    return _CONVERSIONS[to](canonical, canonical.base)


def _gstools(model: GeometricAnisotropy, base: Matern) -> Conversion:
    """Lengths along the main axis, the ratio, and the angle counter-clockwise from the first axis."""
    plain = convert_isotropic(base, "gstools", 2)
    return replace(
        plain,
        parameters={**plain.parameters, "anis": model.ratio, "angles": model.angle},
        code=f"{plain.code[:-1]}, anis={model.ratio!r}, angles={model.angle!r})",
        note=f"{plain.note}; its angles are radians counter-clockwise from the first axis",
    )


def _geor(model: GeometricAnisotropy, base: Matern) -> Conversion:
    """``phi`` is the shorter range there: geoR shrinks what lies along the longer axis, by ``psiR``."""
    angle, ratio = math.radians(model.azimuth), 1.0 / model.ratio
    plain = convert_isotropic(replace(base, range=model.range_minor), "geoR", 2)
    return replace(
        plain,
        parameters={**plain.parameters, "psiA": angle, "psiR": ratio},
        code=f"{plain.code[:-1]}, aniso.pars = c({angle!r}, {ratio!r}))",
        note=f"{plain.note}; psiA is the azimuth in radians, and phi the range across the longer axis",
    )


def _gpgp(model: GeometricAnisotropy, base: Matern) -> Conversion:
    """``matern_anisotropic2D`` takes the lower triangle L of ``L' L = A``, where ``h' A h`` is the squared scaled distance."""
    cosine, sine = math.cos(model.angle), math.sin(model.angle)
    along, across = model.range_major**-2, model.range_minor**-2
    # A[1, 1] = L22**2, A[0, 1] = L21 L22, and the determinant is L11**2 L22**2
    l22 = math.sqrt(along * sine**2 + across * cosine**2)
    l21 = (along - across) * cosine * sine / l22
    l11 = math.sqrt(along * across) / l22
    ratio = base.nugget / base.variance
    names = ("variance", "L11", "L21", "L22", "smoothness", "nugget")
    values = (base.variance, l11, l21, l22, base.smoothness, ratio)
    listed = ", ".join(map(repr, values))
    note = "its nugget is the ratio of nugget to variance"
    return Conversion("GpGp", dict(zip(names, values, strict=True)), f"matern_anisotropic2D(c({listed}), locs)", note)


_CONVERSIONS: dict[str, Callable[[GeometricAnisotropy, Matern], Conversion]] = {
    "gstools": _gstools,
    "geoR": _geor,
    "gpgp": _gpgp,
}

#: Packages to which anisotropic models are converted.
ANISOTROPIC_PACKAGES = tuple(_CONVERSIONS)
