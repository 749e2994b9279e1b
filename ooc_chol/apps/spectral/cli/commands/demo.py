"""``ooc-chol spectral demo``: a mesh is cut, an image is segmented, and everything is left in a folder."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import ooc_chol.toolbox as tb
from ooc_chol.apps.shared.pictures import check_picture
from ooc_chol.apps.spectral.cli.options import FORCE, add_force, add_seed, add_solver, solver_options
from ooc_chol.apps.spectral.demo import Peer, demo_image, metis, wing_mesh
from ooc_chol.apps.spectral.images.normalized import normalized_cut
from ooc_chol.apps.spectral.partitions.bisect import bisect
from ooc_chol.apps.spectral.partitions.kway import partition
from ooc_chol.apps.spectral.pictures import PICTURES, partition_figure, save_figure, segments_figure
from ooc_chol.apps.spectral.results import Partition, Segmentation

_FORMAT = "ooc-chol spectral demo"
_RESULTS = tb.FileKind(f"result of {_FORMAT}", f'{{\n "format": "{_FORMAT}"'.encode(), endings=(".json",))
_SEGMENTS, _RESULT = "segments.png", "result.json"
#: Of the segmentation: it finds the coins.
_SIGMA_I, _MAX_NCUT, _MAX_DEPTH = 18.0, 0.06, 6

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol spectral demo",
    "ooc-chol spectral demo --points 20000 --parts 12 --output large-demo",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.description = (
        "Cut a triangulation around a wing into 2 and into N parts, beside METIS where pymetis is installed, segment an image, "
        "and draw both. Everything is made here, or comes with scikit-image: nothing is downloaded."
    )
    folder = "folder for the files (default: spectral-demo)"
    parser.add_argument("--output", type=Path, default=Path("spectral-demo"), metavar="DIR", help=folder)
    parser.add_argument("--points", type=int, default=4000, metavar="N", help="points of the mesh, about (default: 4000)")
    parser.add_argument("--parts", type=int, default=6, metavar="N", help="parts of the second partition (default: 6)")
    add_seed(parser)
    add_force(parser)
    add_solver(parser)


def run(options: argparse.Namespace) -> int:
    """Cut, segment and draw, into one folder."""
    since = time.perf_counter()
    if options.points < 100:
        raise ValueError(f"--points {options.points} make no mesh around a wing: take 100 or more")
    if options.parts < 2:
        raise ValueError(f"--parts {options.parts} leaves nothing to cut: take 2 or more")
    tb.output_folder(options.output, option="--output")
    files = _files(options)
    mesh, solver = wing_mesh(options.points, seed=options.seed), solver_options(options)
    print(f"{mesh.graph.name}: {mesh.graph.n:,} vertices, {mesh.graph.n_edges:,} edges", flush=True)
    print(f"{'':<20}{'parts':>6}{'cut':>8}{'imbalance':>12}{'seconds':>10}")
    cuts: list[dict[str, Any]] = []
    for n_parts in sorted({2, options.parts}):
        found = bisect(mesh.graph, **solver) if n_parts == 2 else partition(mesh.graph, n_parts, **solver)
        cuts += _compared(found, metis(mesh.graph, n_parts))
        title = f"{mesh.graph.name}: {n_parts} parts, {found.cut:,.10g} of {mesh.graph.n_edges:,} edges cut"
        figure = partition_figure(mesh.graph, found.labels, mesh.places, title=title)
        save_figure(figure, files[f"mesh-{n_parts}.png"], replace=options.force)
    segmentation = _segmented(options, files[_SEGMENTS], solver)
    content = {"format": _FORMAT, "version": 1, "vertices": mesh.graph.n, "edges": mesh.graph.n_edges, "cuts": cuts}
    content |= {"n_segments": segmentation.n_segments, "ncut": segmentation.ncut}
    with tb.output_file(files[_RESULT], kind=_RESULTS, replace=options.force, ask=FORCE) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    options.answer = {**content, "files": files}
    print(f"files      {', '.join(map(str, files.values()))}")
    print(f"all in {time.perf_counter() - since:.0f} s")
    return 0


def _files(options: argparse.Namespace) -> dict[str, Path]:
    """The files that are left, by name, none of which may be somebody else's."""
    kinds = {f"mesh-{n_parts}.png": PICTURES for n_parts in sorted({2, options.parts})}
    kinds |= {_SEGMENTS: PICTURES, _RESULT: _RESULTS}
    check_picture(options.output / _SEGMENTS)
    tb.check_outputs(
        [tb.Output("--output", options.output / name, kind) for name, kind in kinds.items()], replace=options.force, ask=FORCE
    )
    return {name: options.output / name for name in kinds}


def _compared(found: Partition, peer: Peer | None) -> list[dict[str, Any]]:
    """Print what was found, and what METIS finds; both as plain data."""
    own = Peer("ooc_chol", found.cut, found.imbalance, found.report.seconds.total)
    rows = [own] if peer is None else [own, peer]
    for row in rows:
        print(f"{row.name:<20}{found.n_parts:>6}{row.cut:>8.0f}{100 * row.imbalance:>10.2f} %{row.seconds:>10.2f}", flush=True)
    return [{**row._asdict(), "parts": found.n_parts} for row in rows]


def _segmented(options: argparse.Namespace, picture: Path, solver: dict[str, Any]) -> Segmentation:
    """Segment an image and draw the segments."""
    image, name = demo_image()
    found = normalized_cut(image, sigma_i=_SIGMA_I, max_ncut=_MAX_NCUT, max_depth=_MAX_DEPTH, **solver)
    rows, columns = image.shape
    print(f"{name}, {rows} x {columns} pixels: {found.n_segments} segments in {found.report.seconds.total:.1f} s", flush=True)
    save_figure(segments_figure(image, found.labels, title=name), picture, replace=options.force)
    assert np.all(found.labels >= 0), "without a mask every pixel has a segment"
    return found
