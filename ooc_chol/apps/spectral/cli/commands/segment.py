"""``ooc-chol spectral segment``: segments of an image by normalized cuts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.shared.pictures import check_picture
from ooc_chol.apps.spectral.cli.labels import LABELS, check_labels_name, write_labels
from ooc_chol.apps.spectral.cli.options import FORCE, add_force, add_seed, add_solver, add_trace, save_trace, solver_options
from ooc_chol.apps.spectral.images.normalized import normalized_cut
from ooc_chol.apps.spectral.images.reading import read_image
from ooc_chol.apps.spectral.pictures import PICTURES, save_figure, segments_figure
from ooc_chol.apps.spectral.results import Segmentation

#: Arguments of the call that are passed on where they are given.
_GIVEN = ("sigma_i", "sigma_x", "radius", "max_ncut", "n_segments", "max_depth", "min_size", "split_points", "features")

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol spectral segment coins.png --sigma-i 20 --max-ncut 0.05 --output segments.png",
    "ooc-chol spectral segment coffee.png --features lab --sigma-i 5 --sigma-x 4 --max-depth 3 --picture coffee-segments.png",
    "ooc-chol spectral segment leaf.tif --sigma-i 20 --mask leaf-mask.png --output segments.npy --json --quiet",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Segment an image by normalized cuts: pixels within a radius are alike by their values and places, and segments are "
        "split while the normalized cut of the best split is small, or until there are as many as are wanted."
    )
    parser.add_argument("image", type=Path, metavar="IMAGE", help="any image that scikit-image reads, or a .npy array")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the segments here: .png or .npy")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the segments over the image")
    parser.add_argument("--mask", type=Path, metavar="FILE", help="image or .npy array that is zero where pixels are left out")
    add_trace(parser)
    add_force(parser)
    alike = parser.add_argument_group("which pixels are alike")
    scale = (
        "difference of values at which affinities have fallen to 1/e (default: a tenth of their range; where they are noisy they "
        "are smoothed, and it follows the noise)"
    )
    alike.add_argument("--sigma-i", type=float, help=scale)
    alike.add_argument("--sigma-x", type=float, help="the same for distances, in pixels (default: they do not count)")
    alike.add_argument("--radius", type=float, help="pixels are compared within this distance (default: 5)")
    alike.add_argument("--features", choices=("grey", "lab"), help="compare grey values, or colours in Lab (default: grey)")
    split = parser.add_argument_group("what is split")
    split.add_argument("--max-ncut", type=float, help="split no segment whose best normalized cut is larger (default: 0.01)")
    number = "in place of that threshold: make the best cut next, until there are N segments"
    split.add_argument("--n-segments", type=int, metavar="N", help=number)
    split.add_argument("--max-depth", type=int, help="splits one after another, at most (default: as many as are wanted)")
    split.add_argument("--min-size", type=int, help="fewest pixels of a segment (default: 1)")
    split.add_argument("--split-points", type=int, help="thresholds of an eigenvector that are tried, 10 or more (default: all)")
    add_seed(split)
    add_solver(parser)


def run(options: argparse.Namespace) -> int:
    """Read, segment, write and tell."""
    _check_files(options)
    image = _pixels(options.image)
    mask = None if options.mask is None else _pixels(options.mask)
    given = {name: getattr(options, name) for name in _GIVEN if getattr(options, name) is not None}
    found = normalized_cut(image, mask=mask, **given, **solver_options(options))
    options.answer = _figures(options, found)
    print(found)
    if options.output is not None:
        write_labels(options.output, found.labels, replace=options.force)
        print(f"the segment of every pixel is in {options.output}")
    if options.picture is not None:
        save_figure(segments_figure(image, found.labels, title=options.image.name), options.picture, replace=options.force)
        print(f"the segments are drawn in {options.picture}")
    save_trace(options, found.trace)
    return 0


def _pixels(path: Path) -> NDArray[Any]:
    """An image, or a mask, in a file."""
    if path.suffix.lower() == ".npy":
        return tb.input_npy(path)
    try:
        return read_image(path)
    except ImportError as error:  # which tells what to install
        raise oc.OocCholError(str(error)) from error


def _check_files(options: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or may not be replaced, before anything is read."""
    if options.output is not None:
        check_labels_name(options.output)
    if options.picture is not None:
        check_picture(options.picture)
    outputs = [
        tb.Output("--output", options.output, LABELS),
        tb.Output("--picture", options.picture, PICTURES),
        tb.Output("--trace", options.trace, tb.TRACE_FILES),
    ]
    tb.check_outputs(outputs, [("IMAGE", options.image), ("--mask", options.mask)], replace=options.force, ask=FORCE)


def _figures(options: argparse.Namespace, found: Segmentation) -> dict[str, Any]:
    """Figures of the segments, as plain data."""
    return {
        "image": options.image,
        **found.to_dict(),
        "output": options.output,
        "picture": options.picture,
        "trace": options.trace if found.trace is not None else None,
    }
