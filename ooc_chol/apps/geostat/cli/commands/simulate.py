"""``ooc-chol geostat simulate``: draws from a fitted model, with or without its data."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.areas import (
    add_grid,
    add_grid_parts,
    add_raster,
    area_files,
    grid_sites,
    wants_grid,
    with_other_rasters,
)
from ooc_chol.apps.geostat.cli.columns import errors_at, load_named_sites, load_saved, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of, layer_outputs
from ooc_chol.apps.geostat.cli.options import add_at, add_settings, factor_settings, seed
from ooc_chol.apps.geostat.cli.scale import add_scale, chosen_scale
from ooc_chol.apps.geostat.data.areas import Area, area_sites
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
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
    add_grid(places)
    add_at(parser)
    add_grid_parts(parser)
    add_raster(parser)
    parser.add_argument(
        "--conditional",
        nargs="?",
        const="",
        metavar="DATA.csv",
        help="draws that agree with these observations (with no file: with those that were fitted)",
    )
    parser.add_argument("--draws", type=int, default=1, help="number of draws (default: 1)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the random numbers (default: 0)")
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
        "--output",
        type=Path,
        required=True,
        metavar="OUT.csv",
        help="write sites and a column per draw here: draw1, draw2, ...; .nc, .gpkg or .parquet too, and .tif or .asc of a grid",
    )
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Draw, with or without data, and write the draws."""
    is_grid = wants_grid(options)
    names = tuple(f"draw{k + 1}" for k in range(options.draws))
    output = layer_outputs(options.output, names)
    inputs: list[tuple[str, str | Path | None]] = [("MODEL.json", options.model), ("--sites", options.sites)]
    inputs += [("--conditional", options.conditional or None), *area_files(options)]
    check_files(options, inputs, output)
    check_layer(options.output, "draws", is_grid=is_grid)
    saved = with_other_rasters(read_result(options.model), options)
    check_layer(options.output, "draws", saved.spec, names=names, is_grid=is_grid)
    if options.conditional is not None or (is_grid and options.box is None and not isinstance(options.grid, str)):
        inputs.append(("DATA.csv", file_of(saved_spec(saved.spec, options.conditional or None))))
        check_files(options, inputs, output)
    dataset = None if options.conditional is None else load_saved(saved.spec, options.conditional or None)
    sites, area = _sites(saved.spec, dataset, options)
    positions, scale = sites.stack(saved.spec.axes), chosen_scale(saved.spec, options)
    is_transformed = _is_transformed(saved, area, options)
    if options.clip and not is_transformed:
        raise ValueError("--clip is for draws by Fourier transforms: a --grid with --method fft")
    if is_transformed and area is not None:
        draws = _draws_on_grid(saved, dataset, area, options)
    else:
        draws = _draws_at_sites(saved, dataset, sites, options)
    spec = saved.spec if scale.transform is None else saved.spec.as_observed
    columns = {
        name: Column(scale.values(draw), f"draw of {spec.value_name}", spec.value_unit)
        for name, draw in zip(names, draws, strict=True)
    }
    grid, cells = (None, None) if area is None else (area.grid, area.cells)
    title = f"draws of {spec.value_name}: {options.target}, seed {options.seed}"
    write_layer(options.output, Layer(spec, positions, columns, title, grid, cells), replace=options.force)
    options.answer = {"output": options.output, "draws": options.draws, "n": len(positions), "seed": options.seed}
    options.answer["observations"] = None if dataset is None else dataset.observations.n
    given = "without data" if dataset is None else f"given {dataset.observations.n} observations"
    original = "" if scale.transform is None else f" on the original scale of {saved.spec.value}"
    options.answer["method"] = "fft" if is_transformed else "dense"
    how = ", by Fourier transforms" if is_transformed else ""
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


def _draws_on_grid(saved: SavedFit, dataset: Dataset | None, area: Area, options: argparse.Namespace) -> NDArray[np.float64]:
    """Draws by Fourier transforms, on the whole grid, at the points of the area."""
    grid = area.grid
    table, _, _ = area_sites(saved.spec, Area(grid), options.at)
    covariates = saved.spec.design(table)
    same = {"draws": options.draws, "seed": options.seed, "target": options.target, "jitter": options.jitter}
    same["clip"] = options.clip
    if dataset is None:
        mean = design_matrix(grid.size, covariates, saved.spec.mean) @ saved.coefficients
        draws = simulate_grid(saved.model, grid, mean=mean, **same)
    else:
        draws = simulate_grid_conditional(
            dataset.observations, saved.model, grid, covariates=covariates, settings=factor_settings(options), **same
        )
    return draws if area.cells is None else draws[:, area.cells]


def _is_transformed(saved: SavedFit, area: Area | None, options: argparse.Namespace) -> bool:
    """Tell whether draws are to be by Fourier transforms."""
    if area is None or options.method == "dense":
        if options.method == "fft":
            raise ValueError("--method fft is for a --grid: sites are drawn by a factorization")
        return False
    problem = None
    if saved.spec.lonlat or saved.spec.axes != saved.spec.coordinates:
        problem = "the grid is one of degrees, times or variables, over which covariances are not those of lags"
    elif not is_stationary(saved.model):
        problem = f"a {type(saved.model).__name__} is no function of lags alone"
    elif min(map(len, area.grid.axes)) < 2:
        problem = "the grid has an axis of one point"
    elif not area.grid.is_regular:
        problem = "the grid has steps of several lengths"
    elif saved.spec.rasters:
        problem = "rasters may have gaps within the grid"
    if problem is not None and options.method == "fft":
        raise ValueError(f"--method fft: {problem}; draw by a factorization (--method dense)")
    return problem is None and (options.method == "fft" or area.grid.size >= LARGE_GRID)


def _sites(spec: DataSpec, dataset: Dataset | None, options: argparse.Namespace) -> tuple[Table, Area | None]:
    """Sites of the draws, with time and covariates, and the area that they are, unless they are sites of a file."""
    if options.sites is not None:
        return load_named_sites(spec, options.sites, options.at), None
    sites, area = grid_sites(spec, options, lambda: (dataset or load_saved(spec, None)).places)
    check_layer(options.output, "draws", spec, is_grid=True, grid=area.grid)
    return sites, area
