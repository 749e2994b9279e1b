"""``ooc-chol geostat predict``: kriging mean and standard error at new sites."""

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
from ooc_chol.apps.geostat.cli.columns import errors_at, load_named_sites, saved_spec
from ooc_chol.apps.geostat.cli.files import check_files, file_of, layer_outputs
from ooc_chol.apps.geostat.cli.local import NewSites, add_method, check_method, predicted_as_asked, settings_said
from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.options import add_at, add_settings, factor_settings, numbers
from ooc_chol.apps.geostat.cli.scale import (
    Scale,
    add_distribution,
    add_scale,
    chosen_scale,
    distribution_columns,
    distribution_names,
)
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.data.areas import Area
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, example_spec, load_dataset
from ooc_chol.apps.geostat.data.drift import with_rasters
from ooc_chol.apps.geostat.data.io import Table
from ooc_chol.apps.geostat.data.layers import check_layer
from ooc_chol.apps.geostat.kriging.block_means import predict_block_means, rectangular_blocks
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, score
from ooc_chol.apps.geostat.kriging.factorial import component_of, component_prediction
from ooc_chol.apps.geostat.kriging.kriged import Kriging
from ooc_chol.apps.geostat.kriging.outputs import Predicted, write_predictions
from ooc_chol.apps.geostat.kriging.prediction import Prediction, kriging
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed
from ooc_chol.apps.geostat.results import read_result

#: Shown below the help of the command.
EXAMPLES = (
    "ooc-chol geostat predict zinc.json sites.csv --output predicted.csv",
    "ooc-chol geostat predict zinc.json --grid 100,80 --block 40,40 --scale fitted --output blocks.csv",
    "ooc-chol geostat predict zinc.json --grid 100,80 --target field --output map.nc",
    "ooc-chol geostat predict modis.json sites.csv --neighbours 400 --output predicted.csv",
    "ooc-chol geostat predict zinc.json --cell 40 --mask area.gpkg --level 0.9 --output map.tif",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.usage = "ooc-chol geostat predict MODEL.json [DATA.csv] [SITES.csv] [options]"
    parser.description = (
        "Without DATA.csv the observations are those of the file or example that was fitted; one file alone is SITES.csv, and "
        "with --grid, which needs no SITES.csv, it is DATA.csv."
    )
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("first", nargs="?", metavar="DATA.csv", help="the observations (default: those that were fitted)")
    parser.add_argument(
        "second", nargs="?", metavar="SITES.csv", help="where to predict; with a value column predictions are scored too"
    )
    parser.add_argument("--example", metavar="jacksboro[:N]", help="the built-in terrain in place of DATA.csv")
    add_grid(parser)
    add_grid_parts(parser)
    add_raster(parser)
    add_at(parser)
    parser.add_argument(
        "--block", metavar="A,B", type=numbers, help="means over rectangles of these sides about the sites: block kriging"
    )
    parser.add_argument("--block-points", type=int, default=4, metavar="K", help="points along each side of a block (default: 4)")
    add_scale(parser)
    add_distribution(parser)
    parser.add_argument(
        "--target",
        choices=("observation", "field"),
        default="observation",
        help="a new observation with its nugget, and its known error where the sites have that column (default), or the field",
    )
    parser.add_argument("--level", type=float, metavar="P", help="also lower and upper, the ends of the interval of this level")
    parser.add_argument(
        "--component",
        type=int,
        metavar="K",
        help="of nested structures the field of the K-th alone, without mean (factorial kriging)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="OUT.csv",
        help="write sites, prediction and standard_error here; .nc, .gpkg or .parquet too, and .tif or .asc of a grid",
    )
    add_method(parser)
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    """Predict at the sites, write the predictions, and score them where the sites have values."""
    _check_distribution(options.quantiles, options.exceed)
    is_grid = wants_grid(options)
    output = layer_outputs(options.output, _columns(options))
    check_files(options, [("MODEL.json", options.model), *area_files(options)], output)
    check_layer(options.output, "predictions", is_grid=is_grid)
    saved = with_other_rasters(read_result(options.model), options)
    check_layer(options.output, "predictions", saved.spec, names=dict.fromkeys(_columns(options)), is_grid=is_grid)
    scale = chosen_scale(saved.spec, options)
    scale.check()
    part = None if options.component is None else component_of(saved.model, options.component)
    if part is not None:
        _check_component(scale, options)
    is_distribution = bool(options.quantiles or options.exceed or options.level is not None or scale.transform is not None)
    check_method(options, only_exact=options.block is not None or part is not None, needs_variance=is_distribution)
    if options.certified and scale.transform is not None:
        raise ValueError("of values on the original scale nothing is certified: ask for --scale fitted, or leave out --certified")
    if options.block is not None:
        _check_block(saved.spec, scale, options)
    spec, sites_path = _predict_inputs(saved.spec, options)
    inputs = [("MODEL.json", options.model), ("DATA.csv", file_of(spec)), ("SITES.csv", sites_path), *area_files(options)]
    check_files(options, inputs, output)
    dataset = load_dataset(spec)
    sites, area = _sites(dataset, sites_path, options)
    settings = factor_settings(options)
    if dataset.observations.n != saved.n:
        note(f"the model was fitted to {saved.n} observations, and predicts from {dataset.observations.n} now")
    positions = sites.stack(spec.axes)
    if part is not None:
        settings = settings_said(dataset, saved.model, len(positions), settings, in_full=options.verbose)
        with kriging(dataset.observations, saved.model, settings=settings) as kriged:
            fitted, how = component_prediction(kriged, part, spec.cartesian(positions)), {"method": "exact"}
    elif options.block is None:
        new = NewSites(spec.cartesian(positions), spec.design(sites), options.target, errors_at(spec, sites, options.target))
        fitted, how = predicted_as_asked(dataset, saved, new, settings, options)
    else:
        settings = settings_said(dataset, saved.model, len(positions), settings, in_full=options.verbose)
        with kriging(dataset.observations, saved.model, settings=settings) as kriged:
            fitted, how = _block_means(kriged, spec, positions, options), {"method": "exact"}
    prediction, named = scale.of(fitted), dataset.spec if scale.transform is None else dataset.spec.as_observed
    more = distribution_columns(prediction, named, options.quantiles, options.exceed)
    grid, cells = (None, None) if area is None else (area.grid, area.cells)
    predicted = Predicted(named, positions, prediction, grid, cells, options.level, more)
    write_predictions(options.output, predicted, replace=options.force)
    what = "a new observation" if options.target == "observation" else "the smooth field"
    if options.block is not None:
        what = f"means over blocks of {' x '.join(f'{side:g}' for side in options.block)}"
    if part is not None:
        what = f"structure {options.component}"
    target = options.target if part is None else "component"
    options.answer = {"output": options.output, "n": len(positions), "target": target, "held_out": None, **how}
    options.answer |= _half_widths(fitted)
    errors_too = " with their standard errors" if "standard_error" in predicted.columns else ""
    options.answer |= {"scale": "fitted" if scale.transform is None else "original", "columns": list(predicted.columns)}
    print(f"{len(positions)} predictions of {what}{scale.words}{errors_too} in {options.output}")
    if part is None and fitted.target == "observation" and spec.value in sites.columns:
        if not fitted.has_variance:
            note("not scored: scores need standard errors, so leave out --no-variance")
            return 0
        scores = _scores(prediction, sites, dataset, scale)
        if scores is not None:
            options.answer["held_out"] = vars(scores)
            print(score_text(scores))
    return 0


def _predict_inputs(spec: DataSpec, options: argparse.Namespace) -> tuple[DataSpec, str | None]:
    """Observations and sites from the words of ``predict``: DATA.csv may be left out, and a grid needs no SITES.csv."""
    words = [word for word in (options.first, options.second) if word is not None]
    if options.example is not None:
        spec = example_spec(options.example)
    needed = [] if wants_grid(options) else ["SITES.csv"]
    allowed = needed if spec.kind == "example" else ["DATA.csv", *needed]
    if not len(needed) <= len(words) <= len(allowed):
        expected = " and ".join(allowed) or "no file"
        more = "" if allowed == needed else f", or {' and '.join(needed) or 'no file'} for the data that were fitted"
        raise ValueError(f"predict needs {expected} after MODEL.json{more}, but {len(words)} files are given")
    sites_path = words.pop() if needed else None
    return saved_spec(spec, words[0] if words else None), sites_path


def _columns(options: argparse.Namespace) -> tuple[str, ...]:
    """Names of the columns that are written besides the coordinates; ``ValueError`` for a level that is none."""
    if options.level is not None and not 0 < options.level < 1:
        raise ValueError(f"--level is {options.level}, but a probability between 0 and 1 is needed")
    ends = ("lower", "upper") if options.level is not None else ()
    certified = ("prediction_half_width", "standard_error_half_width") if options.certified else ()
    return ("prediction", "standard_error", *certified, *ends, *distribution_names(options.quantiles, options.exceed))


def _sites(dataset: Dataset, path: str | None, options: argparse.Namespace) -> tuple[Table, Area | None]:
    """Positions and covariates where predictions are wanted, and the area that they are, unless they are sites of a file."""
    if path is not None:
        return load_named_sites(dataset.spec, path, options.at), None
    sites, area = grid_sites(dataset.spec, options, lambda: dataset.places)
    check_layer(options.output, "predictions", dataset.spec, is_grid=True, grid=area.grid)
    return sites, area


def _check_component(scale: Scale, options: argparse.Namespace) -> None:
    """Refuse what one structure alone cannot have."""
    if options.block is not None:
        raise ValueError("--component and --block cannot be asked for together: leave one out")
    if scale.transform is not None:
        raise ValueError("one structure alone is no transform of the values: ask for --scale fitted")


def _check_block(spec: DataSpec, scale: Scale, options: argparse.Namespace) -> None:
    """Refuse blocks where they have no sense, or no known mean."""
    if spec.lonlat or spec.axes != spec.coordinates:
        raise ValueError("--block is for sites in the plane or in space: of degrees, times and variables there are no rectangles")
    if len(options.block) != len(spec.coordinates):
        raise ValueError(f"--block has {len(options.block)} sides, but there are {len(spec.coordinates)} coordinates")
    if spec.columns_off_grid:
        raise ValueError(
            f"--block needs {', '.join(spec.columns_off_grid)} within each block, but the sites have them at its middle only"
        )
    if scale.transform is not None:
        raise ValueError(
            "the mean over a block is no transform of the mean of transformed values: ask for --scale fitted, or average draws "
            "(simulate)"
        )


def _block_means(kriged: Kriging, spec: DataSpec, middles: NDArray[np.float64], options: argparse.Namespace) -> Prediction:
    """Block kriging about sites; terms of coordinates in the mean are averaged, too."""
    blocks = rectangular_blocks(middles, options.block, points=options.block_points)
    points = blocks.points.reshape(-1, middles.shape[1])
    terms = spec.design(with_rasters(spec, Table("blocks", dict(zip(spec.axes, points.T, strict=True)), 0)))
    return predict_block_means(kriged, blocks, covariates=terms.reshape(*blocks.points.shape[:2], -1))


def _half_widths(prediction: Prediction) -> dict[str, object]:
    """The largest of each half-width, and the gap, where ``--certified`` asked for them; none where nothing is certified."""
    found = prediction.half_width
    if found is None:
        return {"gap": None, "half_widths": None}
    if not found.is_certified:
        return {"gap": found.gap if np.isfinite(found.gap) else None, "half_widths": None}
    columns = {name: column for name, column in prediction.columns.items() if name.endswith("_half_width")}
    return {"gap": found.gap, "half_widths": {name: float(column.max(initial=0.0)) for name, column in columns.items()}}


def _check_distribution(quantiles: tuple[float, ...], thresholds: tuple[float, ...]) -> None:
    """Find out early that a quantile or a threshold is none."""
    if wrong := [p for p in quantiles if not 0 < p < 1]:
        raise ValueError(f"--quantiles has {wrong[0]:g}, but probabilities between 0 and 1 are needed")
    if np.isnan(thresholds).any():
        raise ValueError("--exceed has nan, but numbers are needed")


def _scores(prediction: Prediction | BackTransformed, sites: Table, dataset: Dataset, scale: Scale) -> HeldOutScores | None:
    """Score where the sites file has a value, and no observation is: that would be no prediction."""
    is_known = np.isfinite(sites.columns[dataset.spec.value])
    is_observed = _observed(dataset, sites.stack(dataset.spec.axes))
    if count := int(np.sum(is_known & is_observed)):
        note(f"{count} of {int(np.sum(is_known))} sites with a value are places of observations: not held out, and not scored")
    known = np.flatnonzero(is_known & ~is_observed)
    if not len(known):
        return None
    rows = None if sites.rows is None else sites.rows.take(known)
    values = dataset.spec.observed({name: column[known] for name, column in sites.columns.items()}, rows)
    return score(prediction.take(known), scale.values(values), scale.values(dataset.observations.values))


def _observed(dataset: Dataset, positions: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of some positions are those of observations."""
    places = set(map(tuple, dataset.positions.tolist()))
    return np.array([tuple(position) in places for position in positions.tolist()], dtype=np.bool_)
