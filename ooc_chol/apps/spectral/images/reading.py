"""Images as numbers: files that scikit-image reads, grey and colour, alpha, 8 and 16 bits, masks."""

from __future__ import annotations

import gc
import os
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb

#: How TIFF files begin; most bytes of pixels for each byte of one, and those that need no such reason.
_MAGIC, _MOST_GROWTH, _SMALL = (b"II", b"MM"), 50, 256 << 20
#: Grey levels of white, for integers.
WHITE = 255.0
#: Weights of red, green and blue in a grey level: Rec. 709 as scikit-image has it.
_LUMINANCE = np.array([0.2125, 0.7154, 0.0721])
#: Channels by how many there are in the last axis: grey or colour, and alpha.
_GREY, _GREY_ALPHA, _RGB, _RGBA = 1, 2, 3, 4


class Pixels(NamedTuple):
    """An image whose alpha has been laid on white."""

    channels: NDArray[np.float64]  #: (h, w, 1) grey or (h, w, 3) red, green, blue
    white: float  #: What white is: 255 of integers, 1 of floats
    keep: NDArray[np.bool_] | None  #: (h, w), pixels that a masked array has; None where it has all


def read_image(path: str | os.PathLike[str]) -> NDArray[Any]:
    """An image file by scikit-image.

    Returns (h, w) or (h, w, channels): in the type of the file. Raises ``ImportError``, ``OSError`` and ``ValueError``.
    """
    try:
        with tb.guarded_imports():
            from skimage.io import imread
    except ImportError as error:
        raise ImportError(
            f"image files are read by scikit-image, which is not installed: {tb.install_hint('spectral')}"
        ) from error
    _check_tiff(path)
    image, why_not = None, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the readers that are tried will be one day
        try:
            image = np.asarray(imread(path))
        except MemoryError:
            raise
        except Exception as error:  # each of the readers that are tried has errors of its own
            why_not = f"{error!s:.200}"
        if image is None:
            gc.collect()  # readers that were tried have left the file open
    if image is None:
        raise ValueError(f"{os.fspath(path)} is no image that scikit-image reads: {why_not}")
    if image.ndim not in (2, 3):
        raise ValueError(f"{os.fspath(path)} has shape {image.shape}: several images, or none; give one of them as an array")
    return image


def _check_tiff(path: str | os.PathLike[str]) -> None:
    """Refuse a TIFF file that promises far more than its bytes justify; of other formats the readers have a limit of pixels."""
    with tb.input_file(path) as file:  # says at once what is wrong with the path
        if file.read(len(_MAGIC[0])) not in _MAGIC:
            return
    with tb.guarded_imports():
        import tifffile
    try:
        with tifffile.TiffFile(path) as tiff:
            nbytes = sum(each.nbytes for each in tiff.series)
    except Exception:  # of a damaged one it has errors of many kinds, which reading it tells
        return
    size = os.stat(path).st_size
    if nbytes > max(_SMALL, _MOST_GROWTH * size):
        advice = "write it without compression, or give it as an array"
        raise ValueError(f"{os.fspath(path)}: its pixels take {nbytes} bytes, but the file has {size}; {advice}")
    tb.check_room(nbytes, f"memory for the pixels of {os.fspath(path)}", "give fewer of them")


def pixels_of(image: ArrayLike) -> Pixels:
    """An array as an image; ``TypeError`` or ``ValueError`` for what is none."""
    array = np.ma.getdata(image) if np.ma.isMaskedArray(image) else tb.plain_array("the image", image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or not _GREY <= array.shape[2] <= _RGBA:
        raise ValueError(
            f"an image has shape (h, w), or (h, w, channels) with 1 to 4 channels (grey, grey and alpha, RGB, RGBA), but this "
            f"one has {np.shape(image)}: for other channels give features=, an (h, w, f) array"
        )
    if not array.size:
        raise ValueError(f"the image has shape {np.shape(image)}: it has no pixels")
    values, white = _scaled(array)
    keep = None
    if np.ma.isMaskedArray(image):
        left_out = np.ma.getmaskarray(image)
        keep = np.logical_not(left_out if left_out.ndim == 2 else left_out.any(axis=2))
    return Pixels(_on_white(values, white), white, keep)


def _scaled(array: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Values as float64, integers of 8 and 16 bits and truth values from 0 to 255, and what white is."""
    kind = array.dtype
    if kind.kind == "b":
        return array * WHITE, WHITE
    if kind.kind in "iu":
        if kind.itemsize > 2:
            return array.astype(np.float64), WHITE
        limits = np.iinfo(kind)
        return (array.astype(np.float64) - limits.min) * (WHITE / (limits.max - limits.min)), WHITE
    if kind.kind == "f":
        return array.astype(np.float64), 1.0
    raise TypeError(f"the image holds {kind.name}; give integers, floats or truth values")


def _on_white(values: NDArray[np.float64], white: float) -> NDArray[np.float64]:
    """Grey or colour without alpha: laid on white where there is one."""
    count = values.shape[2]
    if count not in (_GREY_ALPHA, _RGBA):
        return values
    alpha = values[:, :, -1:] / white
    outside = (alpha < 0) | (alpha > 1)
    if outside.any():
        y, x = np.argwhere(outside[:, :, 0])[0]
        raise ValueError(f"the alpha of pixel ({y}, {x}) is {alpha[y, x, 0]:g} of {white:g}: it must lie from 0 to {white:g}")
    return np.asarray(alpha * values[:, :, :-1] + (1 - alpha) * white)


def grey_of(pixels: Pixels) -> NDArray[np.float64]:
    """Grey levels, (h, w, 1)."""
    channels = pixels.channels
    return channels if channels.shape[2] == _GREY else (channels @ _LUMINANCE)[:, :, None]


def lab_of(pixels: Pixels) -> NDArray[np.float64]:
    """CIE Lab by scikit-image, (h, w, 3)."""
    try:
        with tb.guarded_imports():
            from skimage.color import rgb2lab
    except ImportError as error:
        hint = tb.install_hint("spectral")
        raise ImportError(f"features='lab' are computed by scikit-image, which is not installed: {hint}") from error
    channels, white = pixels.channels, pixels.white
    with np.errstate(invalid="ignore"):
        outside = (channels < 0) | (channels > white)
    if outside.any():
        y, x, band = np.argwhere(outside)[0]
        raise ValueError(
            f"pixel ({y}, {x}) is {channels[y, x, band]:g}, but features='lab' needs colours from 0 to {white:g}: rescale "
            "the image"
        )
    return np.asarray(rgb2lab(np.broadcast_to(channels, (*channels.shape[:2], _RGB)) / white), np.float64)


def mask_of(mask: ArrayLike | str | os.PathLike[str], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Pixels to be kept, (h, w): where a mask is true or not zero; of colours where any is."""
    array = tb.plain_array("mask", read_image(mask) if isinstance(mask, str | os.PathLike) else mask)
    if array.dtype.kind not in "biu":
        raise TypeError(f"the mask holds {array.dtype.name}; give truth values, true where a pixel takes part")
    if array.ndim == 3 and array.shape[2] in (_GREY_ALPHA, _RGBA):
        array = array[:, :, :-1]
    kept = (array != 0).any(axis=2) if array.ndim == 3 else array != 0
    if kept.shape != shape:
        raise ValueError(f"the mask has shape {kept.shape}, but the image {shape}: give one truth value for every pixel")
    return np.asarray(kept)
