"""``ooc-chol geostat simulate``: draws from a fitted model, with or without its data."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.columns import errors_at, load_named_sites, load_saved, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of
from ooc_chol.apps.geostat.cli.options import add_at, add_settings, factor_settings, grid_size, numbers
from ooc_chol.apps.geostat.cli.scale import add_scale, chosen_scale
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, grid_table
from ooc_chol.apps.geostat.data.endings import TABLE, check_output_path
from ooc_chol.apps.geostat.data.grids import Grid, grid_over
from ooc_chol.apps.geostat.data.io import Table, write_table
from ooc_chol.apps.geostat.data.observations import design_matrix
from ooc_chol.apps.geostat.kriging.circulant import is_stationary
from ooc_chol.apps.geostat.kriging.grid_simulation import LARGE_GRID, simulate_grid, simulate_grid_conditional
from ooc_chol.apps.geostat.kriging.simulation import JITTER, simulate, simulate_conditional
from ooc_chol.apps.geostat.results import SavedFit, read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat simulate zinc.json --grid 50,50 --draws 3 --output draws.csv",
    "ooc-chol geostat simulate zinc.json --grid 1000,1000 --conditional --output draws.csv",
    "ooc-chol geostat simulate zinc.json --sites sites.csv --conditional --output draws.csv",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    places = parser.add_mutually_exclusive_group(required=True)
    places.add_argument("--sites", type=Path, metavar="SITES.csv", help="where, with the coordinate columns that fit used")
    places.add_argument("--grid", type=grid_size, metavar="NX,NY", help="on a grid over the observations, or over --box")
    add_at(parser)
    parser.add_argument("--box", type=numbers, metavar="X0,Y0,X1,Y1", help="two corners of the grid")
    parser.add_argument(
        "--conditional",
        nargs="?",
        const="",
        metavar="DATA.csv",
        help="draws that agree with these observations (with no file: with those that were fitted)",
    )
    parser.add_argument("--draws", type=int, default=1, help="number of draws (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")
    parser.add_argument(
        "--target",
        choices=("field", "observation"),
        default="field",
        help="the smooth field (default), or observations with the nugget's error, and known ones where the sites have them",
    )
    add_scale(parser, with_point=False)
    parser.add_argument(
        "--jitter", type=float, default=JITTER, help=f"least error of a value, as a share of the variance (default: {JITTER:g})"
    )
    parser.add_argument(
        "--method",
        choices=("auto", "dense", "fft"),
        default="auto",
        help=f"of a --grid: Fourier transforms from {LARGE_GRID} nodes on, where the covariance allows (default), or one of them",
    )
    parser.add_argument(
        "--clip", action="store_true", help="with Fourier transforms: accept an error where the covariances have no embedding"
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="OUT.csv", help="write sites and a column per draw here: draw1, draw2, ..."
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Draw, with or without data, and write the draws."""
    inputs = [("MODEL.json", options.model), ("--sites", options.sites), ("--conditional", options.conditional or None)]
    check_files(options, inputs, [oc.Output("--output", options.output)])
    check_output_path(options.output, TABLE, "draws")
    saved = read_result(options.model)
    if options.conditional is not None or (options.grid is not None and options.box is None):
        inputs.append(("DATA.csv", file_of(saved_spec(saved.spec, options.conditional or None))))
        check_files(options, inputs, [oc.Output("--output", options.output)])
    dataset = None if options.conditional is None else load_saved(saved.spec, options.conditional or None)
    sites = _sites(saved.spec, dataset, options)
    positions, scale = sites.stack(saved.spec.axes), chosen_scale(saved.spec, options)
    grid = _transformed_grid(saved, dataset, options)
    if grid is None and options.clip:
        raise ValueError("--clip is for draws by Fourier transforms: a --grid with --method fft")
    if grid is None:
        draws = _draws_at_sites(saved, dataset, sites, options)
    else:
        draws = _draws_on_grid(saved, dataset, sites, grid, options)
    columns = dict(zip(saved.spec.axes, positions.T, strict=True))
    columns |= {f"draw{k + 1}": scale.values(draw) for k, draw in enumerate(draws)}
    write_table(options.output, columns, replace=options.force)
    options.answer = {"output": options.output, "draws": options.draws, "n": len(positions), "seed": options.seed}
    options.answer["observations"] = None if dataset is None else dataset.observations.n
    given = "without data" if dataset is None else f"given {dataset.observations.n} observations"
    original = "" if scale.transform is None else f" on the original scale of {saved.spec.value}"
    options.answer["method"] = "dense" if grid is None else "fft"
    how = "" if grid is None else ", by Fourier transforms"
    print(f"{options.draws} draws{original} at {len(positions)} sites, {given}{how}, in {options.output}, of seed {options.seed}")
    return 0


def _draws_at_sites(saved: SavedFit, dataset: Dataset | None, sites: Table, options: argparse.Namespace) -> NDArray[np.float64]:
    """Draws by factorizations."""
    covariates, places = saved.spec.design(sites), saved.spec.cartesian(sites.stack(saved.spec.axes))
    same = {"draws": options.draws, "seed": options.seed, "target": options.target, "jitter": options.jitter}
    same |= {"error_variances": errors_at(saved.spec, sites, options.target), "settings": factor_settings(options)}
    if dataset is None:
        mean = design_matrix(len(places), covariates, saved.spec.mean) @ saved.coefficients
        return simulate(saved.model, places, mean=mean, **same)
    return simulate_conditional(dataset.observations, saved.model, places, covariates=covariates, **same)


def _draws_on_grid(
    saved: SavedFit, dataset: Dataset | None, sites: Table, grid: Grid, options: argparse.Namespace
) -> NDArray[np.float64]:
    """Draws by Fourier transforms."""
    covariates = saved.spec.design(sites)
    same = {"draws": options.draws, "seed": options.seed, "target": options.target, "jitter": options.jitter}
    same["clip"] = options.clip
    if dataset is None:
        mean = design_matrix(grid.size, covariates, saved.spec.mean) @ saved.coefficients
        return simulate_grid(saved.model, grid, mean=mean, **same)
    return simulate_grid_conditional(
        dataset.observations, saved.model, grid, covariates=covariates, settings=factor_settings(options), **same
    )


def _transformed_grid(saved: SavedFit, dataset: Dataset | None, options: argparse.Namespace) -> Grid | None:
    """The grid, where draws are to be by Fourier transforms."""
    if options.grid is None or options.method == "dense":
        if options.method == "fft":
            raise ValueError("--method fft is for a --grid: sites are drawn by a factorization")
        return None
    problem = None
    if saved.spec.lonlat or saved.spec.axes != saved.spec.coordinates:
        problem = "the grid is one of degrees, times or variables, over which covariances are not those of lags"
    elif not is_stationary(saved.model):
        problem = f"a {type(saved.model).__name__} is no function of lags alone"
    elif min(options.grid) < 2:
        problem = "the grid has an axis of one point"
    if problem is not None and options.method == "fft":
        raise ValueError(f"--method fft: {problem}; draw by a factorization (--method dense)")
    is_large = options.method == "fft" or math.prod(options.grid) >= LARGE_GRID
    return _grid(saved.spec, dataset, options) if problem is None and is_large else None


def _grid(spec: DataSpec, dataset: Dataset | None, options: argparse.Namespace) -> Grid:
    """The nodes that --grid asks for."""
    if len(spec.coordinates) != 2:
        raise ValueError(f"--grid has two axes, but the model has {len(spec.coordinates)} coordinates: give --sites")
    if options.box is not None:
        if len(options.box) != 4:
            raise ValueError(f"--box has {len(options.box)} numbers, but X0,Y0,X1,Y1 are four")
        corners = options.box[:2], options.box[2:]
    else:
        positions = (dataset or load_saved(spec, None)).places
        corners = positions.min(axis=0), positions.max(axis=0)
    return grid_over(*corners, options.grid)


def _sites(spec: DataSpec, dataset: Dataset | None, options: argparse.Namespace) -> Table:
    """Sites of the draws, with time and covariates: those of a file, or of a grid."""
    if options.sites is not None:
        if options.box is not None:
            raise ValueError("--box is the box of a --grid: leave it out with --sites")
        return load_named_sites(spec, options.sites, options.at)
    grid = _grid(spec, dataset, options)
    return grid_table(spec, grid.points(0, grid.size), options.at)
