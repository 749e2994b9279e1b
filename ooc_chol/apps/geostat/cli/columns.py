"""Options that say which columns of which file are what, and the data that they name."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.areas import add_raster, chosen_rasters
from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.options import column_names
from ooc_chol.apps.geostat.data.crs import Crs, described
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, dropped_note, example_spec, load_dataset, load_sites
from ooc_chol.apps.geostat.data.formula import parse_formula
from ooc_chol.apps.geostat.data.geopackage import layer_of
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.observations import Mean
from ooc_chol.apps.geostat.data.spec import Distance
from ooc_chol.apps.geostat.data.tables import columns_of, geometry_axes

#: ExaGeoStat's words for distances, too.
_DISTANCES: dict[str, Distance] = {
    "euclidean": "euclidean",
    "ed": "euclidean",
    "great-circle": "great-circle",
    "gcd": "great-circle",
}


def add_data_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of columns other than coordinates and values, of distances and of the mean."""
    parser.add_argument(
        "--covariates", metavar="A,B", type=column_names, default=(), help="columns of the mean besides the intercept"
    )
    add_raster(parser, text="read this covariate from a raster (.tif, .asc, .nc) at every place, and not from a column of DATA")
    parser.add_argument(
        "--crs", metavar="EPSG:N", help="reference system of the coordinates, where the file tells none; output files tell it on"
    )
    parser.add_argument("--lonlat", action="store_true", help="coordinates are degrees; distances are chords in kilometres")
    parser.add_argument(
        "--distance",
        "--dm",
        metavar="euclidean|great-circle",
        type=_distance,
        default="euclidean",
        help="with --lonlat: the chord (default), or the arc, for smoothness up to 1/2; --dm ed|gcd in ExaGeoStat",
    )
    parser.set_defaults(variance_covariates=(), range_covariates=())
    parser.add_argument("--time", metavar="COLUMN", help="the time, of a space-time covariance")
    parser.add_argument("--variable", metavar="COLUMN", help="which variable was observed, 0 or 1, of a bivariate covariance")
    errors = parser.add_mutually_exclusive_group()
    errors.add_argument(
        "--error-variance", metavar="COLUMN", help="known variance of the error of each observation, besides the nugget"
    )
    errors.add_argument("--error-sd", metavar="COLUMN", help="the same as a standard deviation, in the unit of the values")
    parser.add_argument(
        "--mean", choices=("constant", "zero"), default="constant", help="with or without intercept (default: constant)"
    )


def named_spec(options: argparse.Namespace) -> DataSpec:
    """The data and columns that the options name."""
    coordinates = tuple(name for name in (options.x, options.y, options.z) if name)
    crs = None if options.crs is None else _named_crs(options)
    return DataSpec(
        "csv",
        options.data,
        coordinates,
        options.value,
        options.covariates,
        options.lonlat or (crs is not None and crs.is_geographic),
        options.mean,
        dict.fromkeys(coordinates[:2], crs.unit) if crs is not None and crs.unit and not crs.is_geographic else {},
        None if crs is None else crs.name,
        time=options.time,
        variable=options.variable,
        distance=options.distance,
        error_variance=options.error_variance,
        error_sd=options.error_sd,
        local_covariates=tuple(dict.fromkeys((*options.variance_covariates, *options.range_covariates))),
        transform=given_transform(options),
        rasters=chosen_rasters(options),
    )


def given_transform(options: argparse.Namespace) -> str | None:
    """The transformation of the words of ``fit``, unless its power is yet to be estimated."""
    text: str | None = getattr(options, "transform", None)  # loglik has none
    return None if text == "boxcox" else text


def fit_spec(options: argparse.Namespace) -> DataSpec:
    """Which data the words of ``fit`` name: a file with columns or a formula, or the built-in example."""
    if (options.data is None) == (options.example is None):
        raise ValueError("give either DATA.csv or --example jacksboro[:N]")
    if options.example is not None:
        return replace(_example(options), transform=given_transform(options))
    options = _with_axes(options)
    if options.x is None or (options.value is None and options.formula is None):
        there = ", ".join(columns_of(options.data))
        missing = "--value" if options.x is not None else "--x, --y and --value"
        raise ValueError(f"which columns? give {missing} (or --formula) with names of these: {there}")
    if options.formula is None:
        return named_spec(options)
    if options.value is not None or options.covariates or options.mean != "constant":
        raise ValueError("--formula says what --value, --covariates and --mean do: leave these out")
    formula = parse_formula(options.formula)
    mean: Mean = "constant" if formula.intercept else "zero"
    spec = named_spec(argparse.Namespace(**{**vars(options), "value": formula.value_column, "mean": mean, "raster": []}))
    return replace(spec, covariates=formula.term_columns, formula=options.formula, rasters=chosen_rasters(options))


def _named_crs(options: argparse.Namespace) -> Crs:
    """The reference system of ``--crs``, which must be known and must not contradict ``--lonlat``."""
    crs = described(options.crs, "--crs")
    if not crs.unit:
        raise ValueError(f"--crs {options.crs} is not known to PROJ: give a number such as EPSG:28992, or well-known text")
    if options.lonlat and not crs.is_geographic:
        raise ValueError(f"--crs {options.crs} has no longitude and latitude: leave out --lonlat")
    return crs


def _with_axes(options: argparse.Namespace) -> argparse.Namespace:
    """The options with the coordinates of the file's own points, where it has points and none are named."""
    if options.x is not None or options.y is not None:
        return options
    axes = geometry_axes(options.data)
    if not axes:
        return options
    if "z" in axes and options.z is None:
        note(f"distances are those in the plane: the points of {Path(options.data).name} have heights, too (--z z takes them)")
    return argparse.Namespace(**{**vars(options), "x": "x", "y": "y"})


def errors_at(spec: DataSpec, sites: Table, target: str) -> NDArray[np.float64] | None:
    """Known error variances of new observations; a note where the sites lack those that the data have."""
    name = spec.error_variance or spec.error_sd
    if target == "field" or name is None:
        return None
    errors = spec.errors(sites.columns, sites.rows)
    if errors is None:
        note(
            f"the sites have no column {name!r}: a new observation there is one whose error has the variance of the nugget alone"
        )
    return errors


def load_saved(spec: DataSpec, path: str | None) -> Dataset:
    """The observations: those of the fit, where its file says, or those of another file if one is given."""
    dataset = load_dataset(saved_spec(spec, path))
    for text in dataset.notes:
        note(text)
    return dataset


def saved_spec(spec: DataSpec, path: str | None) -> DataSpec:
    """Where the observations are: in the file or example that was fitted, or in another file if one is given."""
    if spec.kind == "example":
        if path is not None:
            raise ValueError(f"the model was fitted to the built-in example {spec.source}: leave out {path}")
    elif path is not None:
        return replace(spec, source=path)
    elif not Path(layer_of(spec.source)[0]).exists():
        raise FileNotFoundError(
            f"{spec.source}, to which the model was fitted, is not there: give the observations as DATA.csv, with the columns "
            "that fit used"
        )
    return spec


def load_named_sites(spec: DataSpec, path: str | Path, at: float | None) -> Table:
    """The sites of a file, which say themselves at which time or of which variable they are; a note of rows left out."""
    if at is not None:
        raise ValueError("--at is for a --grid: a file of sites has a column of its own")
    table = load_sites(spec, path)
    for text in (*table.notes, *dropped_note(table)):
        note(text)
    return table


def _example(options: argparse.Namespace) -> DataSpec:
    """The built-in terrain, which has columns of its own."""
    names = ("x", "y", "z", "value", "formula", "time", "variable", "error_variance", "error_sd", "crs")
    columns = (*(getattr(options, name) for name in names), *options.covariates, *options.raster)
    columns = (*columns, *options.variance_covariates, *options.range_covariates)
    if any(columns) or options.lonlat or options.distance != "euclidean":
        raise ValueError(
            "the example has columns of its own: leave out --x, --y, --z, --value, --formula, --covariates, --time, --variable, "
            "--error-variance, --error-sd, --variance-covariates, --range-covariates, --raster, --crs, --lonlat and --distance"
        )
    return example_spec(options.example)


def _distance(text: str) -> Distance:
    if text not in _DISTANCES:
        raise argparse.ArgumentTypeError(f"{text!r} is not euclidean or great-circle (ed or gcd)")
    return _DISTANCES[text]
