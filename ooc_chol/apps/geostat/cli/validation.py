"""Inputs, folds and printed results of ``cv``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from ooc_chol.apps.geostat.cli.columns import load_saved
from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.scale import Scale, chosen_scale
from ooc_chol.apps.geostat.cli.summary import score_text
from ooc_chol.apps.geostat.data.dataset import Dataset, dropped_note, load_sites
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.comparison import Comparison, same_values
from ooc_chol.apps.geostat.kriging.folds import Folds, folds
from ooc_chol.apps.geostat.kriging.local_validation import cross_validate_locally
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.validation import CrossValidation, cross_validate, leave_one_out
from ooc_chol.apps.geostat.results import SavedFit

#: A mismatch of distances above which folds do not ask for the prediction that is wanted.
_POOR_MATCH = 0.25


#: Observations up to which folds are predicted with the factor of all data: above, its inverse takes hours on a small machine.
EXACT_LIMIT = 20_000

#: Scores in a table of several models.
_TITLES = ("RMSE", "MAE", "CRPS", "interval", "log", "coverage")


def models_and_data(words: list[str]) -> tuple[list[Path], str | None]:
    """The results, which end in .json, and the data, if they are given last."""
    data = words[-1] if len(words) > 1 and not words[-1].lower().endswith(".json") else None
    models = words if data is None else words[:-1]
    for word in models[1:]:
        if not word.lower().endswith(".json"):
            raise ValueError(f"{word} does not end in .json, as results of fit do; DATA.csv comes last, and once")
    if len(set(models)) < len(models):
        raise ValueError("a result is given twice: a comparison is of different ones")
    return [Path(word) for word in models], data


def names_of(models: list[Path]) -> list[str]:
    """Names of the models: their files without folder and ending where that tells them apart."""
    short = [path.stem for path in models]
    return short if len(set(short)) == len(short) else [str(path) for path in models]


def checked_scale(saved: SavedFit, options: argparse.Namespace) -> Scale:
    """The scale on which a model is scored."""
    scale = chosen_scale(saved.spec, options)
    scale.check()
    if scale.point == "unbiased":
        raise ValueError("cross-validation scores means or medians: take one of these for --point")
    return scale


def on_scale(found: CrossValidation, scale: Scale) -> CrossValidation:
    """A cross-validation on another scale than that of the fit, where one is asked for."""
    if scale.transform is None:
        return found
    assert isinstance(found.prediction, Prediction), "validation is on the fitted scale"
    return replace(found, values=scale.values(found.values), prediction=scale.of(found.prediction))


def load_all(saved: list[SavedFit], data: str | None, names: list[str], scales: list[Scale]) -> list[Dataset]:
    """The observations of each model, which must be the same values at the same places."""
    datasets = [load_saved(each.spec, data) for each in saved]
    places, values = datasets[0].observations.coordinates, scales[0].values(datasets[0].observations.values)
    for name, dataset, scale in zip(names, datasets, scales, strict=True):
        other = dataset.observations
        if not (np.array_equal(other.coordinates, places) and same_values(scale.values(other.values), values)):
            raise ValueError(
                f"{name} has other observations than {names[0]} (columns, transformation, distance or rows left out): models "
                "are compared on the same values at the same places; --scale original takes transformed ones back"
            )
    return datasets


def check_fold_options(options: argparse.Namespace) -> None:
    """Refuse options of folds that do not go together, before anything is read."""
    how = options.how
    if (options.sites is None) == (how == "gaps"):
        raise ValueError("--how gaps needs --sites SITES.csv, the sites to predict; no other --how takes them")
    if (options.buffer is None) == (how == "distance"):
        raise ValueError("--how distance needs --buffer D; no other --how takes it")
    if how in ("tiles", "kmeans") and options.folds is None:
        raise ValueError(f"--how {how} needs --folds K; without them every observation is left out alone")


def chosen_folds(dataset: Dataset, options: argparse.Namespace) -> Folds | None:
    """The folds that the options ask for; None where every observation is left out alone."""
    spec, how, sites = dataset.spec, options.how, None
    if options.folds is None and how == "random":
        return None
    if how in ("gaps", "distance") and (spec.axes != spec.coordinates or spec.distance == "great-circle"):
        raise ValueError(f"--how {how} is for models of space with straight distances: take --how kmeans, or tiles")
    if how == "gaps":
        table = load_sites(replace(spec, covariates=(), formula=None), options.sites)
        for text in dropped_note(table):
            note(text)
        sites = spec.cartesian(table.stack(spec.axes))
    found = folds(dataset.observations, options.folds, how=how, sites=sites, buffer=options.buffer, seed=options.seed)
    if found.mismatch is not None and found.mismatch > _POOR_MATCH:
        note(
            "no folds are as far from the other observations as the sites are (see below): scores are of another prediction "
            "than that of the sites; another number of --folds may come nearer, a smaller one for larger gaps"
        )
    return found


def chosen_method(dataset: Dataset, options: argparse.Namespace) -> Literal["exact", "vecchia", "nearest"]:
    """How folds are predicted: as asked, or from neighbours where there are many observations, with a note."""
    n, folded = dataset.observations.n, options.folds is not None or options.how == "gaps"
    method: Literal["exact", "vecchia", "nearest"] | None = options.method
    if method == "exact" and options.neighbours is not None:
        raise ValueError("--neighbours is for predictions from neighbours: leave it out, or take --method vecchia or nearest")
    if method is None:
        method = "vecchia" if options.neighbours is not None or n > EXACT_LIMIT else "exact"
        if method != "exact" and options.neighbours is None:
            note(f"{n} observations are cross-validated from neighbours (--method vecchia); --method exact takes all")
    if method != "exact" and not folded:
        raise ValueError(
            "neighbours are looked for anew without each fold: give --folds K or --how gaps, or --method exact, which leaves out "
            "every observation alone"
        )
    return method


def validated_as_asked(
    dataset: Dataset,
    saved: SavedFit,
    chosen: Folds | None,
    method: Literal["exact", "vecchia", "nearest"],
    options: argparse.Namespace,
    settings: FactorSettings,
) -> CrossValidation:
    """The cross-validation of one model."""
    observations, model = dataset.observations, saved.model
    if chosen is None:
        return leave_one_out(observations, model, settings=settings)
    if method == "exact":
        return cross_validate(observations, model, folds=chosen, settings=settings)
    return cross_validate_locally(observations, model, folds=chosen, method=method, neighbours=options.neighbours)


def distance_lines(found: Folds | None, unit: str) -> list[str]:
    """How far sites to predict, and held-out values, are from the nearest observation."""
    if found is None or found.site_distances is None or found.mismatch is None:
        return []
    pairs = (("sites to predict", found.site_distances), ("held out", found.distances))
    quantiles = [(name, *np.quantile(distances, [0.1, 0.5, 0.9])) for name, distances in pairs]
    suffix = f" {unit}" if unit else ""
    text = "; ".join(f"{name} {low:.3g}, {middle:.3g}, {high:.3g}" for name, low, middle, high in quantiles)
    return [f"  nearest    observation{suffix and f' ({unit})'}, deciles 1, 5 and 9: {text}; mismatch {found.mismatch:.2g}"]


def folds_text(found: Folds | None, options: argparse.Namespace, unit: str) -> str:
    """Text on the observations that were left out together."""
    suffix = f" {unit}" if unit else ""
    if found is None:
        return "each observation left out"
    if options.how != "distance":
        return f"{found.n_folds} folds ({options.how})"
    what = "each observation" if options.folds is None else f"{found.n_folds} clusters"
    return f"{what} left out with all nearer than {options.buffer:g}{suffix}"


def validation_text(found: CrossValidation, how: str, options: argparse.Namespace) -> str:
    """Scores of one model on a few lines."""
    scores = found.scores(options.level)
    return (
        f"{score_text(scores)}\n"
        f"  cross-validation  {how}\n"
        f"  errors     mean {scores.bias:.4g} (bias), mean absolute {scores.mae:.4g}, mean square {scores.mspe:.4g}\n"
        f"  standardized residuals have mean square {np.mean(found.standardized**2):.4g} (1 for a right model)\n"
        f"  scores     interval {scores.interval_score:.4g}, logarithmic {scores.log_score:.4g}: smaller is better"
    )


def comparison_text(found: Comparison, how: str) -> str:
    """Scores of several models as a table, with paired differences."""
    differences = {each.model: each for each in found.differences}
    n, width = next(iter(found.scores.values())).n, max(5, *map(len, found.scores))
    lines = [
        f"held out     {n} values, {how}; {found.score} decides",
        f"  {'model':{width}s}  " + " ".join(f"{title:>9s}" for title in _TITLES) + "  less the best's",
    ]
    for name, one in found.scores.items():
        numbers = " ".join(f"{value:9.4g}" for value in (one.rmse, one.mae, one.crps, one.interval_score, one.log_score))
        if name == found.best:
            less = "best"
        else:
            each = differences[name]
            less = f"{each.difference:.3g} ± {each.standard_error:.2g}, better in {each.better_folds} of {found.n_folds} folds"
        lines.append(f"  {name:{width}s}  {numbers} {100 * one.coverage:8.1f}%  {less}")
    return "\n".join([*lines, "  ± is a standard error by folds, which it takes for independent"])
