"""Features of pixels: grey levels, Lab colours, or those that the caller gives."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.images.reading import grey_of, lab_of, mask_of, pixels_of, read_image

_NAMED = {"grey": grey_of, "lab": lab_of}


class Features(NamedTuple):
    """Features of the pixels of an image, and which of them take part."""

    values: NDArray[np.float64]  #: (h, w, f); 0 where a pixel is left out
    keep: NDArray[np.bool_]  #: (h, w)

    @property
    def spread(self) -> float:
        """The longest side of the box of all features: 0 where all pixels are the same."""
        values = self.values[self.keep]
        return float((values.max(axis=0) - values.min(axis=0)).max(initial=0.0))


def features_of(
    image: ArrayLike | str | os.PathLike[str], features: str | ArrayLike, mask: ArrayLike | str | os.PathLike[str] | None
) -> Features:
    """Features of all pixels that are kept; ``ValueError`` or ``TypeError`` where an argument makes no sense."""
    pixels = pixels_of(read_image(image) if isinstance(image, str | os.PathLike) else image)
    shape = pixels.channels.shape[:2]
    keep = np.ones(shape, np.bool_) if pixels.keep is None else pixels.keep
    if mask is not None:
        keep = keep & mask_of(mask, shape)
    if not keep.any():
        raise ValueError(f"the mask leaves none of the {keep.size} pixels: it is true where a pixel takes part")
    if isinstance(features, str):
        if features not in _NAMED:
            raise ValueError(f"features is {features!r:.40}; give 'grey', 'lab' or an (h, w, f) array")
        values = _NAMED[features](pixels)
    else:
        values = _given(features, shape)
    lacking = keep & ~np.isfinite(values).all(axis=2)
    if lacking.any():
        y, x = np.argwhere(lacking)[0]
        raise ValueError(
            f"pixel ({y}, {x}) is NaN or infinite, and {int(lacking.sum())} are in all: give a mask that leaves them out"
        )
    return Features(np.where(keep[:, :, None], values, 0.0), keep)


def _given(features: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Features of the caller's own, as (h, w, f) float64."""
    array = tb.plain_array("features", features, gaps_as_nan=True)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"features hold {array.dtype.name}; give real numbers")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[:2] != shape or not array.shape[2]:
        raise ValueError(f"features have shape {np.shape(features)}, but the image {shape}: give (h, w) or (h, w, f) with f >= 1")
    return array.astype(np.float64)
