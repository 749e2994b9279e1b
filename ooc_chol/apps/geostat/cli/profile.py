"""``ooc-chol geostat plot profile``: the likelihood along one parameter, its interval, and a file that keeps the values."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.stepwise import Steps
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.data.io import read_table, write_table
from ooc_chol.apps.geostat.estimation.inference import infer
from ooc_chol.apps.geostat.estimation.profiles import ProfileLikelihood, profile_likelihood
from ooc_chol.apps.geostat.estimation.search import NUGGET_RATIO
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.pictures.labels import FigureWords
from ooc_chol.apps.geostat.pictures.plots import save_figure
from ooc_chol.apps.geostat.pictures.plots_checks import profile_figure
from ooc_chol.apps.geostat.results import SavedFit

#: Ends of the values on either side of the estimate: standard errors of its logarithm, and factors within which they stay.
_ERRORS = 3.0
_FACTORS = (1.5, 20.0)

#: Relative difference from the estimate below which a value is the estimate.
_SAME_VALUE = 1e-6

#: A nugget that is next to nothing may be larger in truth: values of its ratio go at least from here to there.
_NUGGET_RATIOS = (1e-6, 0.1)

#: A profile of the same data is as high as the fit at its estimate, or, where COBYQA stopped early, so much higher.
_SAME_LOGLIK = 0.2


def add_profile_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of ``plot profile``."""
    parser.add_argument(
        "--parameter",
        default="range",
        metavar="NAME",
        help="of the profile: nugget_ratio, or one that fit prints (default: range)",
    )
    parser.add_argument("--points", type=int, default=11, metavar="N", help="of the profile, a search each (default: 11)")
    parser.add_argument("--from", dest="lowest", type=float, metavar="A", help="least value (default: by the standard error)")
    parser.add_argument("--to", dest="highest", type=float, metavar="B", help="largest value (default: by the standard error)")
    parser.add_argument("--level", type=float, default=0.95, help="of the profile's interval (default: 0.95)")
    parser.add_argument(
        "--values", type=Path, metavar="VALUES.csv", help="keep the profile here; if the file is there, draw it without searching"
    )


def draw_profile(dataset: Dataset, saved: SavedFit, options: argparse.Namespace, settings: FactorSettings) -> None:
    """Compute or read the profile, print its interval, and draw it."""
    if not 0 < options.level < 1:
        raise ValueError(f"--level is {options.level}, but a probability between 0 and 1 is needed")
    name = options.parameter
    _check_parameter(saved.model, name, dataset.observations.coordinates)
    if options.values is not None and options.values.exists():
        profile = _kept_profile(options.values, name, saved)
        note(f"the profile is that of {options.values}: nothing was searched for")
    else:
        grid = _grid(dataset, saved, options, settings)
        profile = _searched(dataset, saved, grid, options, settings)
        if options.values is not None:
            finite = np.isfinite(profile.loglik)
            write_table(options.values, {name: profile.values[finite], "loglik": profile.loglik[finite]}, replace=options.force)
            print(f"profile in {options.values}")
    _tell(profile, options.level)
    options.answer = {"parameter": name, "values": profile.values, "loglik": profile.loglik}
    options.answer |= {"level": options.level, "interval": profile.interval(options.level)}
    unit = dataset.spec.unit if name.startswith("range") else ""
    kind = "restricted profile likelihood" if saved.reml else "profile likelihood"
    words = FigureWords(f"{dataset.spec.value_name}: {kind} of the {name.replace('_', ' ')}")
    label = name.replace("_", " ") + (f" ({unit})" if unit else "")
    figure = profile_figure(profile.values, profile.loglik, words, name=label, level=options.level)
    save_figure(figure, options.output, replace=options.force)


def _searched(
    dataset: Dataset, saved: SavedFit, grid: NDArray[np.float64], options: argparse.Namespace, settings: FactorSettings
) -> ProfileLikelihood:
    """The profile, a search at each value, with a word of progress."""
    steps = Steps(len(grid), f"values of the {options.parameter.replace('_', ' ')}", quiet=options.quiet)
    try:
        return profile_likelihood(
            dataset.observations,
            saved.model,
            options.parameter,
            grid,
            estimated=saved.estimated,
            reml=saved.reml,
            settings=settings,
            progress=steps.done,
        )
    finally:
        steps.close()


def _tell(profile: ProfileLikelihood, level: float) -> None:
    """The interval in words; an end beyond the values is said to be so."""
    lower, upper = profile.interval(level)
    ends = (
        f"below {profile.values[0]:.6g}" if lower == 0.0 else f"{lower:.6g}",
        f"above {profile.values[-1]:.6g}" if math.isinf(upper) else f"{upper:.6g}",
    )
    best = int(np.argmax(profile.loglik))
    name = profile.name.replace("_", " ")
    print(f"{100 * level:g} % interval of the {name} by its profile likelihood: {ends[0]} to {ends[1]}")
    print(f"  largest of {len(profile.values)} values {profile.loglik[best]:.6f}, at {profile.values[best]:.6g}")
    if lower == 0.0 or math.isinf(upper):
        note(
            "the likelihood does not fall far enough within the values; widen them by --from and --to, or the data have no bound"
        )


def _check_parameter(model: AbstractCovariance, name: str, coordinates: NDArray[np.float64]) -> None:
    """Raise ``ValueError`` unless the parameter has a profile, along its logarithm."""
    scales = model.scales(coordinates)
    known = (*(other for other in model.parameters if other in scales and scales[other].is_logarithmic), NUGGET_RATIO)
    if name not in known:
        raise ValueError(
            f"--parameter is {name!r}, but of this {type(model).__name__} model there are {', '.join(known)} to profile"
        )


def _value(model: AbstractCovariance, name: str) -> float:
    """The parameter at the estimate."""
    return model.nugget / model.variance if name == NUGGET_RATIO else model.values[name]


def _grid(dataset: Dataset, saved: SavedFit, options: argparse.Namespace, settings: FactorSettings) -> NDArray[np.float64]:
    """Values from ``--from`` to ``--to``, evenly in the logarithm, and the estimate."""
    if options.points < 3:
        raise ValueError(f"--points is {options.points}, but a profile needs 3 or more")
    estimate = _value(saved.model, options.parameter)
    lowest, highest = options.lowest, options.highest
    if lowest is None or highest is None:
        ends = _ends(dataset, saved, options.parameter, settings)
        lowest, highest = lowest or ends[0], highest or ends[1]
    if not (0 < lowest < highest and math.isfinite(highest)):
        raise ValueError(f"values from {lowest} to {highest} are asked for, but they must be positive, finite and ascending")
    grid = np.geomspace(lowest, highest, options.points)
    if not estimate > 0:
        return grid
    # the middle of the values is the estimate but for rounding
    return np.sort([*grid[~np.isclose(grid, estimate, rtol=_SAME_VALUE, atol=0.0)], estimate])


def _ends(dataset: Dataset, saved: SavedFit, name: str, settings: FactorSettings) -> tuple[float, float]:
    """How far the values go by themselves: three standard errors of the logarithm, within the bounds of a search."""
    is_nugget = name == NUGGET_RATIO
    if is_nugget and saved.model.nugget == 0.0:
        raise ValueError("the nugget is zero, about which no values of its ratio lie: give --from and --to")
    own = "nugget" if is_nugget else name
    names = tuple(dict.fromkeys((*saved.estimated, own)))
    found = infer(dataset.observations, saved.model, estimated=names, reml=saved.reml, settings=settings).parameters[own]
    low, high = _FACTORS
    factor = min(max(math.exp(min(_ERRORS * found.standard_error / found.value, math.log(high))), low), high)
    estimate = _value(saved.model, name)
    if is_nugget:
        least, most = _NUGGET_RATIOS
        return max(estimate / factor, least), max(estimate * factor, most)
    scale = saved.model.scales(dataset.observations.coordinates)[name]
    return max(estimate / factor, scale.lower), min(estimate * factor, scale.upper)


def _kept_profile(path: Path, name: str, saved: SavedFit) -> ProfileLikelihood:
    """The profile of a file; that of another fit is told by its likelihood at the estimate."""
    if not _value(saved.model, name) > 0:
        raise ValueError(f"a profile about a {name} of zero cannot be told from another one's by its file: leave out --values")
    table = read_table(path, (name, "loglik"))
    values, loglik = table.columns[name], table.columns["loglik"]
    estimate = _value(saved.model, name)
    nearest = int(np.argmin(np.abs(values - estimate)))
    if values[nearest] != estimate or abs(loglik[nearest] - saved.loglik) > _SAME_LOGLIK:
        raise ValueError(f"{path} has not the log-likelihood of this fit at its {name}: it is of another one; remove it")
    return ProfileLikelihood(name, values, loglik, (None,) * len(values))
