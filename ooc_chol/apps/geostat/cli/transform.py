"""Transformations of the values that ``fit`` makes: given ones, and the power of Box and Cox estimated with the covariance."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ooc_chol.apps.geostat.cli.search import fit_from_options, searched
from ooc_chol.apps.geostat.data.dataset import Dataset, load_dataset
from ooc_chol.apps.geostat.data.transforms import transform_named, transform_text
from ooc_chol.apps.geostat.estimation.box_cox import BoxCoxFit, fit_box_cox
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan
from ooc_chol.apps.geostat.estimation.fit_result import FitResult
from ooc_chol.apps.geostat.factorization import FactorSettings

#: The word for a power that is estimated.
ESTIMATED = "boxcox"


def add_transform(parser: argparse._ActionsContainer) -> None:
    """Add ``--transform``."""
    parser.add_argument(
        "--transform",
        type=_transform,
        metavar="log|boxcox|boxcox=LAMBDA",
        help="fit transformed values, and predict on their original scale; the power of boxcox is estimated unless it is given",
    )


def check_estimated(dataset: Dataset, options: argparse.Namespace) -> None:
    """Refuse what has no sense while the power of the transformation is not known."""
    spec = dataset.spec
    if spec.formula is not None and spec.value_name != spec.value:
        raise ValueError("the left side of the formula transforms the values already: leave it a column, or --transform out")
    if options.checkpoint is not None:
        raise ValueError("--checkpoint is for values of one power: give it, as in --transform boxcox=0.5")
    if dataset.observations.error_variances is not None or isinstance(options.nugget, float):
        raise ValueError("known errors, or a nugget of a given variance, need a power: give it, as in --transform boxcox=0.5")


def transformed_fit(
    dataset: Dataset,
    options: argparse.Namespace,
    settings: FactorSettings,
    plan: FitPlan,
    on_estimate: Callable[[FitResult[Any]], None],
) -> tuple[Dataset, FitResult[Any], BoxCoxFit | None]:
    """The fit of the values as they are transformed, with the data as they were fitted."""
    if options.transform != ESTIMATED:
        return dataset, fit_from_options(dataset, options, settings, plan, on_estimate), None
    power = searched(dataset, options, settings, partial(fit_box_cox, plan=plan))
    spec = replace(dataset.spec, transform=transform_text(power.transform))
    return load_dataset(spec), power.result, power


def transform_lines(dataset: Dataset, result: FitResult[Any], power: BoxCoxFit | None) -> str:
    """Lines on the transformation, and the log-likelihood of the untransformed values, by which transformations compare."""
    text = dataset.spec.transform
    if text is None:
        return ""
    transform = transform_named(text)
    estimated = "" if power is None else f" (estimated; 95 %: {power.interval[0]:.3g} to {power.interval[1]:.3g})"
    jacobian = transform.log_jacobian(transform.inverse(dataset.observations.values))
    lines = [f"  transform    {transform}{estimated}; loglik of {dataset.spec.value} itself {result.loglik + jacobian:.6f}"]
    if not transform.has_mean:
        lines.append("               a negative power has medians and quantiles, but no original mean (--point median)")
    if power is not None and not power.converged:
        lines.append(f"  warning      the power still moved after {power.fits} fits; give it, as in --transform boxcox=0.5")
    return "".join(f"{line}\n" for line in lines)


def power_content(power: BoxCoxFit | None) -> dict[str, Any]:
    """The part of a result file with an estimated power; empty where none was estimated."""
    return {} if power is None else {"transform": power.to_dict()}


def _transform(text: str) -> str:
    if text == ESTIMATED:
        return text
    try:
        return transform_text(transform_named(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
