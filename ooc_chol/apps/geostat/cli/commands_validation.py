"""``ooc-chol geostat synth``, ``simulate``, ``cv`` and ``loglik``: made-up data, draws, cross-validation, one likelihood."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.command_data import add_data_options, errors_at, named_spec
from ooc_chol.apps.geostat.cli.command_files import check_files
from ooc_chol.apps.geostat.cli.command_options import (
    add_at,
    add_settings,
    bare,
    factor_settings,
    grid_size,
    note,
    numbers,
    theta,
)
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.geometry import GreatCircle
from ooc_chol.apps.geostat.data.dataset import Dataset, DataSpec, dropped_note, grid_table, load_dataset, load_sites
from ooc_chol.apps.geostat.data.endings import TABLE, check_output_path
from ooc_chol.apps.geostat.data.grids import grid_over
from ooc_chol.apps.geostat.data.io import Table, write_table
from ooc_chol.apps.geostat.data.observations import design_matrix
from ooc_chol.apps.geostat.estimation.likelihood import log_likelihood
from ooc_chol.apps.geostat.kriging.simulation import JITTER, simulate, simulate_conditional
from ooc_chol.apps.geostat.kriging.validation import CrossValidation, cross_validate, leave_one_out
from ooc_chol.apps.geostat.results import read_result
from ooc_chol.apps.geostat.synth import synthesize

#: ExaGeoStat's names of the covariance functions that are here, without case and underscores, and their parameters.
KERNELS = {"univariatematernstationary": 3, "univariatematernnuggetsstationary": 4}

_THETA_HELP = "parameters with commas (or colons) between: VARIANCE,RANGE,SMOOTHNESS[,NUGGET]"


def add_validation_commands(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the four commands."""
    _add_synth(actions)
    _add_simulate(actions)
    _add_cv(actions)
    _add_loglik(actions)


def _add_synth(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "synth",
        help="generate ExaGeoStat's synthetic data",
        description="Sites and values are those that ExaGeoStat generates for this seed. Its option names are understood, too, "
        "whatever their case, dashes and underscores: --N, --kernel, --ttheta, --initial_theta, --dts, --dimension.",
    )
    parser.add_argument("--n", type=int, required=True, help="number of observations")
    parser.add_argument("--theta", "--ttheta", "--itheta", "--initial-theta", type=theta, required=True, help=_THETA_HELP)
    parser.add_argument("--seed", type=int, default=0, help="0 to 4095 (default: 0)")
    parser.add_argument("--dimension", type=_dimension, default=2, metavar="2D|3D", help="unit square or unit cube (default: 2D)")
    _add_kernel(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DATA.csv", help="write x, y (and z in three dimensions) and value here"
    )
    add_settings(parser)
    parser.set_defaults(run=_synth)


def _add_simulate(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("simulate", help="draw from a fitted model, with or without its data")
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
        help="draws that agree with these observations (with no file: with the built-in example that was fitted)",
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
        "--output", type=Path, required=True, metavar="OUT.csv", help="write sites and a column per draw here: draw1, draw2, ..."
    )
    add_settings(parser)
    parser.set_defaults(run=_simulate)


def _add_cv(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "cv",
        help="cross-validate a fitted model: leave one out, or folds",
        description="One factorization; the covariance function is kept, the mean is estimated without each fold.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.json", help="what fit wrote")
    parser.add_argument("data", nargs="?", metavar="DATA.csv", help="the observations; none for the built-in example")
    parser.add_argument("--folds", type=int, metavar="K", help="number of folds (default: every observation alone)")
    parser.add_argument(
        "--how",
        choices=("random", "tiles", "kmeans"),
        default="random",
        help="folds at random (default), as pieces of a Morton curve, or as clusters",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of folds (default: 0)")
    parser.add_argument("--level", type=float, default=0.95, help="level of the intervals (default: 0.95)")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="OUT.csv",
        help="write coordinates, value, prediction, standard_error and fold here",
    )
    add_settings(parser)
    parser.set_defaults(run=_cv)


def _add_loglik(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser("loglik", help="log-likelihood of given parameters, or of a fitted model")
    parser.add_argument("data", metavar="DATA.csv", help="text file whose first line names the columns")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--theta", "--ttheta", "--itheta", "--initial-theta", type=theta, help=_THETA_HELP)
    what.add_argument(
        "--model", type=Path, metavar="MODEL.json", help="what fit wrote, of any covariance; it names the columns, too"
    )
    parser.add_argument("--x", metavar="COLUMN", help="first coordinate; the longitude with --lonlat (default: x)")
    parser.add_argument("--y", metavar="COLUMN", help="second coordinate (default: y)")
    parser.add_argument("--z", metavar="COLUMN", help="third coordinate, if there is one")
    parser.add_argument("--value", metavar="COLUMN", help="the observed values (default: value)")
    add_data_options(parser)
    _add_kernel(parser)
    add_settings(parser)
    parser.set_defaults(run=_loglik)


def _add_kernel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kernel",
        type=_kernel,
        metavar="NAME",
        help="of --theta: univariate_matern_stationary or univariate_matern_nuggets_stationary",
    )


def _synth(options: argparse.Namespace) -> int:
    check_output_path(options.output, TABLE, "synthetic data")
    _check_kernel(options.kernel, options.theta)
    check_files(options, [], [oc.Output("--output", options.output)])
    sample = synthesize(
        options.theta, options.n, seed=options.seed, dimension=options.dimension, settings=factor_settings(options)
    )
    axes = dict(zip("xyz", sample.coordinates.T, strict=False))
    write_table(options.output, {**axes, "value": sample.values}, replace=options.force)
    print(f"{options.n} observations of {_model_text(options.theta)} in {options.output}, of seed {options.seed}")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    inputs = [("MODEL.json", options.model), ("--sites", options.sites), ("--conditional", options.conditional or None)]
    check_files(options, inputs, [oc.Output("--output", options.output)])
    check_output_path(options.output, TABLE, "draws")
    saved = read_result(options.model)
    dataset = None if options.conditional is None else _load(saved.spec, options.conditional or None)
    sites = _sites(saved.spec, dataset, options)
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
    columns = dict(zip(saved.spec.axes, positions.T, strict=True))
    columns |= {f"draw{k + 1}": draw for k, draw in enumerate(draws)}
    write_table(options.output, columns, replace=options.force)
    given = "without data" if dataset is None else f"given {dataset.observations.n} observations"
    print(f"{options.draws} draws at {len(places)} sites, {given}, in {options.output}, of seed {options.seed}")
    return 0


def _cv(options: argparse.Namespace) -> int:
    check_files(options, [("MODEL.json", options.model), ("DATA.csv", options.data)], [oc.Output("--output", options.output)])
    if options.output is not None:
        check_output_path(options.output, TABLE, "predictions of a cross-validation")
    saved = read_result(options.model)
    dataset = _load(saved.spec, options.data)
    settings = factor_settings(options)
    if options.folds is None:
        found = leave_one_out(dataset.observations, saved.model, settings=settings)
    else:
        found = cross_validate(
            dataset.observations, saved.model, folds=options.folds, how=options.how, seed=options.seed, settings=settings
        )
    print(_validation_text(found, options))
    if options.output is not None:
        columns: dict[str, NDArray[Any]] = dict(zip(saved.spec.axes, dataset.positions.T, strict=True))
        columns |= {saved.spec.value_name: found.values, "prediction": found.prediction.mean}
        columns |= {"standard_error": found.prediction.standard_error, "fold": found.folds}
        write_table(options.output, columns, replace=options.force)
        print(f"predictions in {options.output}")
    return 0


def _loglik(options: argparse.Namespace) -> int:
    check_files(options, [("DATA.csv", options.data), ("--model", options.model)])
    if options.model is not None:
        _check_no_columns(options)
        saved = read_result(options.model)
        spec, model = saved.spec, saved.model
    else:
        _check_kernel(options.kernel, options.theta)
        defaults = {"x": options.x or "x", "y": options.y or "y", "value": options.value or "value"}
        spec = named_spec(argparse.Namespace(**{**vars(options), **defaults}))
        if spec.time is not None or spec.variable is not None:
            raise ValueError(
                "--theta is of a Matérn covariance, which knows no --time and no --variable; give --model MODEL.json"
            )
        model = GreatCircle(options.theta) if spec.distance == "great-circle" else options.theta
    dataset = _load(spec, options.data)
    found = log_likelihood(dataset.observations, model, settings=factor_settings(options))
    pairs = zip(dataset.observations.mean_columns, found.coefficients, strict=True)
    n, variance = dataset.observations.n, model.variance
    print(
        f"{n} observations of {spec.value_name}, {_model_text(model)}\n"
        f"  loglik       {found.loglik:.15g}\n"
        f"  quadratic    {found.quadratic / variance:.15g}\n"
        f"  logdet       {found.logdet + n * float(np.log(variance)):.15g}\n"
        f"  mean         {', '.join(f'{name} {value:.6g}' for name, value in pairs) or 'zero'}\n"
        f"  seconds      {found.seconds:.2f}"
    )
    return 0


def _check_no_columns(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` where columns are named although the model's file does that."""
    names = ("x", "y", "z", "value", "covariates", "lonlat", "time", "variable", "error_variance", "error_sd", "kernel")
    if any(getattr(options, name) for name in names) or options.mean != "constant" or options.distance != "euclidean":
        raise ValueError("MODEL.json says which columns are what, and which covariance it is: leave out the options of columns")


def _load(spec: DataSpec, path: str | None) -> Dataset:
    """The observations, from another file than those of the fit if one is given."""
    if spec.kind == "example":
        if path is not None:
            raise ValueError(f"the model was fitted to the built-in example {spec.source}: leave out {path}")
    elif path is None:
        raise ValueError("the observations are needed: give DATA.csv, with the columns that fit used")
    else:
        spec = DataSpec(**{**vars(spec), "source": path})
    dataset = load_dataset(spec)
    for text in dataset.notes:
        note(text)
    return dataset


def _sites(spec: DataSpec, dataset: Dataset | None, options: argparse.Namespace) -> Table:
    """Where draws are wanted."""
    if options.sites is not None:
        if options.box is not None:
            raise ValueError("--box is the box of a --grid: leave it out with --sites")
        if options.at is not None:
            raise ValueError("--at is for a --grid: a file of sites has a column of its own")
        table = load_sites(spec, options.sites)
        for text in dropped_note(table):
            note(text)
        return table
    if len(spec.coordinates) != 2:
        raise ValueError(f"--grid has two axes, but the model has {len(spec.coordinates)} coordinates: give --sites")
    if options.box is not None:
        if len(options.box) != 4:
            raise ValueError(f"--box has {len(options.box)} numbers, but X0,Y0,X1,Y1 are four")
        corners = options.box[:2], options.box[2:]
    elif dataset is not None or spec.kind == "example":
        positions = (dataset or load_dataset(spec)).places
        corners = positions.min(axis=0), positions.max(axis=0)
    else:
        raise ValueError("where is the grid? give --box X0,Y0,X1,Y1, or --conditional DATA.csv for a grid over the observations")
    grid = grid_over(*corners, options.grid)
    return grid_table(spec, grid.points(0, grid.size), options.at)


def _validation_text(found: CrossValidation, options: argparse.Namespace) -> str:
    """Scores on a few lines."""
    scores = found.scores(options.level)
    how = "each observation left out" if options.folds is None else f"{found.n_folds} folds ({options.how})"
    return (
        f"{score_text(scores)}\n"
        f"  cross-validation  {how}\n"
        f"  errors     mean {scores.bias:.4g} (bias), mean absolute {scores.mae:.4g}, mean square {scores.mspe:.4g}\n"
        f"  standardized residuals have mean square {np.mean(found.standardized**2):.4g} (1 for a right model)\n"
        f"  scores     interval {scores.interval_score:.4g}, logarithmic {scores.log_score:.4g}: smaller is better"
    )


def _model_text(model: AbstractCovariance) -> str:
    values = {"variance": model.variance, **model.values, "nugget": model.nugget}
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


def _dimension(text: str) -> int:
    dimensions = {"2d": 2, "2": 2, "3d": 3, "3": 3}
    if text.lower() not in dimensions:
        raise argparse.ArgumentTypeError(f"{text!r} is not 2D or 3D (space-time data are not generated here)")
    return dimensions[text.lower()]


def _kernel(text: str) -> str:
    name = bare(text)
    if name not in KERNELS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is none of ExaGeoStat's covariance functions that are here: univariate_matern_stationary and "
            "univariate_matern_nuggets_stationary"
        )
    return name


def _check_kernel(kernel: str | None, model: Matern) -> None:
    """Raise ``ValueError`` unless the kernel has as many parameters as the model."""
    if kernel is not None and (KERNELS[kernel] == 3) != (model.nugget == 0):
        raise ValueError(f"{kernel} has {KERNELS[kernel]} parameters, but the nugget of --theta is {model.nugget:g}")
