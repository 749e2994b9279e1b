"""``ooc-chol geostat simulate``: draws from a fitted model, with or without its data."""

from __future__ import annotations

import argparse
from pathlib import Path

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
from ooc_chol.apps.geostat.cli.options import add_at, add_settings, factor_settings
from ooc_chol.apps.geostat.data.areas import Area
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
from ooc_chol.apps.geostat.data.observations import design_matrix
from ooc_chol.apps.geostat.kriging.simulation import JITTER, simulate, simulate_conditional
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat simulate zinc.json --grid 50,50 --draws 3 --output draws.csv",
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
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (default: 0)")
    parser.add_argument(
        "--target",
        choices=("field", "observation"),
        default="field",
        help="the smooth field (default), or observations with the nugget's error, and known ones where the sites have them",
    )
    parser.add_argument(
        "--jitter", type=float, default=JITTER, help=f"least error of a value, as a share of the variance (default: {JITTER:g})"
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
    check_layer(options.output, "draws", saved.spec, is_grid=is_grid)
    if options.conditional is not None or (is_grid and options.box is None and not isinstance(options.grid, str)):
        inputs.append(("DATA.csv", file_of(saved_spec(saved.spec, options.conditional or None))))
        check_files(options, inputs, output)
    dataset = None if options.conditional is None else load_saved(saved.spec, options.conditional or None)
    sites, area = _sites(saved.spec, dataset, options)
    positions, covariates = sites.stack(saved.spec.axes), saved.spec.design(sites)
    places = saved.spec.cartesian(positions)
    same = {"draws": options.draws, "seed": options.seed, "target": options.target, "jitter": options.jitter}
    same["error_variances"] = errors_at(saved.spec, sites, options.target)
    if dataset is None:
        mean = design_matrix(len(places), covariates, saved.spec.mean) @ saved.coefficients
        draws = simulate(saved.model, places, mean=mean, settings=factor_settings(options), **same)
    else:
        draws = simulate_conditional(
            dataset.observations, saved.model, places, covariates=covariates, settings=factor_settings(options), **same
        )
    unit = saved.spec.value_unit
    columns = {name: Column(draw, f"draw of {saved.spec.value_name}", unit) for name, draw in zip(names, draws, strict=True)}
    grid, cells = (None, None) if area is None else (area.grid, area.cells)
    title = f"draws of {saved.spec.value_name}: {options.target}, seed {options.seed}"
    write_layer(options.output, Layer(saved.spec, positions, columns, title, grid, cells), replace=options.force)
    options.answer = {"output": options.output, "draws": options.draws, "n": len(places), "seed": options.seed}
    options.answer["observations"] = None if dataset is None else dataset.observations.n
    given = "without data" if dataset is None else f"given {dataset.observations.n} observations"
    print(f"{options.draws} draws at {len(places)} sites, {given}, in {options.output}, of seed {options.seed}")
    return 0


def _sites(spec: DataSpec, dataset: Dataset | None, options: argparse.Namespace) -> tuple[Table, Area | None]:
    """Sites of the draws, with time and covariates, and the area that they are, unless they are sites of a file."""
    if options.sites is not None:
        return load_named_sites(spec, options.sites, options.at), None
    sites, area = grid_sites(spec, options, lambda: (dataset or load_saved(spec, None)).places)
    check_layer(options.output, "draws", spec, is_grid=True, grid=area.grid)
    return sites, area
