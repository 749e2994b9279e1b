"""On which scale commands predict, draw and score values that were transformed, and what they predict besides a number."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.cli.options import numbers
from ooc_chol.apps.geostat.data.layer import Column
from ooc_chol.apps.geostat.data.spec import DataSpec
from ooc_chol.apps.geostat.data.transforms import Transform
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed, Point, back_transform


@dataclass(frozen=True)
class Scale:
    """The scale that answers are given on."""

    spec: DataSpec  #: With the names and units of that scale
    transform: Transform | None  #: What leads back to it; None on the scale of the fit
    point: Point = "mean"

    def check(self) -> None:
        """Find out early that the original values have no such prediction."""
        nothing = np.empty(0)
        self.of(Prediction(nothing, nothing, "field", nothing))

    def of(self, prediction: Prediction) -> Prediction | BackTransformed:
        """A prediction on this scale."""
        return prediction if self.transform is None else back_transform(prediction, self.transform, point=self.point)

    def values(self, fitted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the fit on this scale."""
        return fitted if self.transform is None else self.transform.inverse(fitted)

    @property
    def words(self) -> str:
        """Name of the predicted quantity, where that is not the fitted values."""
        if self.transform is None:
            return ""
        how = {"mean": "means", "median": "medians", "unbiased": "unbiased for an estimated mean"}[self.point]
        return f" on the original scale of {self.spec.value} ({how})"


@dataclass(frozen=True)
class Quantity:
    """A quantity that a map shows in place of the standard error."""

    kind: Literal["exceed", "quantile"]
    number: float  #: A threshold, or a probability

    def of(self, prediction: Prediction | BackTransformed) -> NDArray[np.float64]:
        """The quantity at each site."""
        return prediction.exceedance(self.number) if self.kind == "exceed" else prediction.quantile(self.number)

    def title(self, value: str) -> str:
        """Name of the quantity, in words."""
        number = _exact(self.number)
        return f"P({value} > {number})" if self.kind == "exceed" else f"quantile {number}"


def add_quantity(parser: argparse._ActionsContainer) -> None:
    """Add ``--quantity``."""
    parser.add_argument(
        "--quantity",
        type=_quantity,
        metavar="exceed:C|quantile:P",
        help="in place of the standard error: the probability of exceeding C, or a quantile",
    )


def _quantity(text: str) -> Quantity:
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not exceed:C or quantile:P with a number") from None
    if kind == "exceed":
        return Quantity("exceed", value)
    if kind == "quantile" and 0 < value < 1:
        return Quantity("quantile", value)
    raise argparse.ArgumentTypeError(f"{text!r} is not exceed:C, or quantile:P with P between 0 and 1")


def add_scale(parser: argparse._ActionsContainer, *, with_point: bool = True) -> None:
    """Add ``--scale`` and ``--point``."""
    parser.add_argument(
        "--scale",
        choices=("original", "fitted"),
        help="of transformed values: as observed (default after fit --transform), or as fitted (default after a formula)",
    )
    if with_point:
        parser.add_argument(
            "--point",
            choices=("mean", "median", "unbiased"),
            help="on the original scale: the mean of the distribution (default), its median, or for logarithms the predictor "
            "that is unbiased for an estimated mean",
        )


def chosen_scale(spec: DataSpec, options: argparse.Namespace) -> Scale:
    """The scale that the options ask for, a note where a formula's is kept, and refusals of what has no sense."""
    back, point = spec.way_back, getattr(options, "point", None)
    if options.scale == "original" and back is None and spec.value_name != spec.value:
        raise ValueError(
            f"{spec.value_name!r} has no known way back: log, log10, log1p and sqrt of a column have one, and --transform"
        )
    is_original = options.scale == "original" or (options.scale is None and spec.transform is not None)
    if back is None or not is_original:
        if point is not None:
            raise ValueError("--point is for the original scale of transformed values: ask for --scale original")
        if back is not None and options.scale is None:
            note(f"values are {spec.value_name}, as in the formula; --scale original gives {spec.value}")
        return Scale(spec, None)
    return Scale(spec.as_observed, back, point or "mean")


def add_distribution(parser: argparse._ActionsContainer) -> None:
    """Add ``--quantiles`` and ``--exceed``."""
    parser.add_argument("--quantiles", type=numbers, default=(), metavar="0.05,0.5,0.95", help="columns of quantiles")
    parser.add_argument(
        "--exceed", type=numbers, default=(), metavar="C,...", help="columns of the probability of exceeding a threshold"
    )


def distribution_names(quantiles: tuple[float, ...], thresholds: tuple[float, ...]) -> tuple[str, ...]:
    """Names of the columns of :func:`distribution_columns`, which every format takes."""
    return (*(f"quantile_{_word(p)}" for p in quantiles), *(f"exceed_{_word(c)}" for c in thresholds))


def distribution_columns(
    prediction: Prediction | BackTransformed, spec: DataSpec, quantiles: tuple[float, ...], thresholds: tuple[float, ...]
) -> dict[str, Column]:
    """Columns of quantiles and of probabilities of exceedance."""
    value, unit = spec.value_name, spec.value_unit
    columns = [Column(prediction.quantile(p), f"quantile {_exact(p)} of {value}", unit) for p in quantiles]
    columns += [Column(prediction.exceedance(c), f"probability that {value} exceeds {_exact(c)}", "1") for c in thresholds]
    return dict(zip(distribution_names(quantiles, thresholds), columns, strict=True))


def _word(number: float) -> str:
    """A number as part of a name."""
    return _exact(number).replace("-", "minus_").replace("+", "").replace(".", "_")


def _exact(number: float) -> str:
    """A number in few digits that read back as it."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number).removesuffix(".0")
