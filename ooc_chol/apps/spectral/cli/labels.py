"""Segments of an image in a file: a PNG with a grey value for each, or an array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

_MARK = "ooc_chol spectral segments"
_ENDINGS = (".png", ".npy")
#: Grey values of a PNG.
_GREYS_8, _GREYS_16 = 255, 65535

#: Files that new segments may replace: pictures; arrays have no mark.
LABELS = tb.FileKind("picture of segments of ooc-chol spectral", _MARK.encode(), anywhere=True, endings=_ENDINGS)


def check_labels_name(path: Path) -> None:
    """Find out early whether segments can be written under this name."""
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{path}: segments are written as .png or .npy; give a name that ends in one of these")


def write_labels(path: Path, labels: NDArray[np.int32], *, replace: bool) -> None:
    """Write segments: as they are into an array, one more than that into a picture, whose zeros a mask left out."""
    check_labels_name(path)
    with tb.output_file(path, kind=LABELS, replace=replace) as part, part.open("wb") as file:
        if path.suffix.lower() == ".npy":
            np.save(file, labels)
        else:
            _write_png(file, labels)


def _write_png(file: Any, labels: NDArray[np.int32]) -> None:
    """Grey values from 1, with the mark by which the file is known again."""
    with tb.guarded_imports(blas=False):
        from PIL import Image, PngImagePlugin  # which scikit-image and Matplotlib bring

    greys = labels + 1
    most = int(greys.max(initial=0))
    if most > _GREYS_16:
        raise ValueError(f"a PNG has {_GREYS_16} grey values, but there are {most} segments: write them as .npy")
    about = PngImagePlugin.PngInfo()
    about.add_text("Software", _MARK)
    Image.fromarray(greys.astype(np.uint8 if most <= _GREYS_8 else np.uint16)).save(file, format="PNG", pnginfo=about)
