"""Monotone transformations to a scale on which values are Gaussian: logarithms, roots, and those of Box and Cox, and back."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows

#: Powers below this, in absolute value, are logarithms: the difference is rounding.
_LOGARITHM = 1e-10

#: Powers of data, the largest of them, that are too small beside 1: half of the digits are lost.
_LOST = 1e-8

Array = NDArray[np.float64]


class TransformError(oc.OocCholError, ValueError):
    """Values that a transformation does not take, or a moment that does not exist on the original scale."""


@dataclass(frozen=True)
class Transform:
    """``y = offset + scale * ((z + shift)**power - 1) / power``, with ``log(z + shift)`` for power 0: Box and Cox (1964).

    Parameters
    ----------
    power : float
        The power ``lambda``, finite; 0 is the logarithm and 1 nothing but a shift.
    scale : float
        Positive factor: ``1 / log(10)`` makes decimal logarithms.
    offset : float
        Constant that is added then.
    shift : float
        Constant that is added to the values first, in their unit.
    """

    power: float
    scale: float = 1.0
    offset: float = 0.0
    shift: float = 0.0

    __repr__ = tb.brief_repr

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.power, self.scale, self.offset, self.shift))) or self.scale <= 0:
            raise ValueError(
                f"power {self.power}, scale {self.scale}, offset {self.offset}: finite, the scale positive, is needed"
            )

    @property
    def is_log(self) -> bool:
        """True if it is a logarithm."""
        return abs(self.power) < _LOGARITHM

    @property
    def has_mean(self) -> bool:
        """True if the original values have a mean where the transformed ones are Gaussian: not for negative powers."""
        return self.is_log or self.power > 0

    def __str__(self) -> str:
        return "log" if self.is_log else f"Box-Cox, lambda {self.power:g}"

    def forward(self, values: Array, *, rows: Rows | None = None) -> Array:
        """The transformed values.

        Parameters
        ----------
        values : array
            Original values of any shape.
        rows : Rows, optional
            Names of the values in messages; numbers counted from zero when not given.

        Returns
        -------
        array
            Their transforms.

        Raises
        ------
        TransformError
            A value with its shift is not positive; for a positive power it may be zero.
        """
        shifted = tb.plain_array("values", values, np.float64) + self.shift
        wrong = ~(shifted > 0) if self.power <= _LOGARITHM else ~(shifted >= 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            where = (rows or counted_rows(row + 1, "row")).named(row)
            raise TransformError(
                f"value {np.ravel(values)[row]:g} in {where} cannot be transformed ({self}): it must be "
                f"{'positive' if self.power <= _LOGARITHM else 'zero or positive'}; leave such rows out, or add a constant to all"
            )
        return np.asarray(self.offset + self.scale * _box_cox(shifted, 0.0 if self.is_log else self.power))

    def threshold(self, values: Array) -> Array:
        """As :meth:`forward`, but minus infinity for values below all that can be transformed."""
        shifted = tb.plain_array("values", values, np.float64) + self.shift
        found = self.offset + self.scale * _box_cox(np.maximum(shifted, 0.0), 0.0 if self.is_log else self.power)
        return np.where(shifted < 0, -np.inf, found)

    def inverse(self, transformed: Array) -> Array:
        """The original values.

        Parameters
        ----------
        transformed : array
            Transformed values of any shape.

        Returns
        -------
        array
            Values that :meth:`forward` takes to them. Below all that it can give, for a positive power, that is the smallest
            original value; above, for a negative power, infinity.
        """
        y = (tb.plain_array("transformed", transformed, np.float64) - self.offset) / self.scale
        with np.errstate(over="ignore", divide="ignore"):
            if self.is_log:
                return np.asarray(np.exp(y) - self.shift)
            return np.asarray(np.exp(np.log1p(np.maximum(self.power * y, -1.0)) / self.power) - self.shift)

    def log_jacobian(self, values: Array) -> float:
        """``sum(log(dy / dz))``, which a log-likelihood of the transformed values lacks of that of the original ones.

        Parameters
        ----------
        values : (n,) array
            Original values.

        Returns
        -------
        float
            The sum.
        """
        shifted = tb.plain_array("values", values, np.float64) + self.shift
        return float(shifted.size * math.log(self.scale) + (self.power - 1.0) * np.sum(np.log(shifted)))

    def log_slope(self, values: Array) -> Array:
        """``log(dy / dz)`` at each of the original values."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(
                math.log(self.scale) + (self.power - 1.0) * np.log(tb.plain_array("values", values, np.float64) + self.shift)
            )


def box_cox(power: float) -> Transform:
    """The transformation of Box and Cox (1964), ``(z**power - 1) / power``; power 0 is the logarithm.

    Parameters
    ----------
    power : float
        The power ``lambda``.

    Returns
    -------
    Transform
        With ``forward``, ``inverse`` and the Jacobian.

    Examples
    --------
    >>> (
    ...     box_cox(0.5).forward(np.array([4.0])),
    ...     box_cox(0.5).inverse(np.array([2.0])),
    ... )
    (array([2.]), array([4.]))
    """
    return Transform(float(power))


def transformed(transform: Transform, values: Array, rows: Rows | None = None) -> Array:
    """Transforms of data, refused where powers of all of them are lost beside the 1 that is taken off.

    Raises ``TransformError``: as for :meth:`Transform.forward`; or no power of a value is as large as :data:`_LOST`.
    """
    found = transform.forward(values, rows=rows)
    if not transform.is_log:
        with np.errstate(divide="ignore"):
            powers = transform.power * np.log(tb.plain_array("values", values, np.float64) + transform.shift)
        if powers.size and powers.max() < math.log(_LOST):
            most = float(powers.max())
            largest = math.exp(most / transform.power)
            raise TransformError(
                f"values to the power {transform.power:g} are {math.exp(most):.2g} at most, of {largest:g}, and few "
                f"digits of that are left beside the 1 that is taken off ({transform}): divide all values by {largest:.0e}"
            )
    return found


def transform_named(text: str) -> Transform:
    """The transformation of ``log`` or ``boxcox=LAMBDA``, as result files and the shell write it."""
    name, equals, number = text.partition("=")
    if name == "log" and not equals:
        return Transform(0.0)
    try:
        if name == "boxcox" and equals:
            return Transform(float(number))
    except ValueError:
        pass
    raise ValueError(f"there is no transformation {text!r:.80}; there are log and boxcox=LAMBDA")


def transform_text(transform: Transform) -> str:
    """Text that :func:`transform_named` reads."""
    return "log" if transform.is_log else f"boxcox={transform.power!r}"


def transform_of(expression: str) -> tuple[str, Transform] | None:
    """Column and transformation of the left side of a formula, such as ``log(zinc)``; None where it is another expression."""
    node = ast.parse(expression, mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1):
        return None
    known = {
        "log": Transform(0.0),
        "log10": Transform(0.0, scale=1.0 / math.log(10.0)),
        "log1p": Transform(0.0, shift=1.0),
        "sqrt": Transform(0.5, scale=0.5, offset=1.0),
    }
    name, column = known.get(node.func.id), node.args[0]
    return (column.id, name) if name is not None and isinstance(column, ast.Name) else None


def _box_cox(shifted: Array, power: float) -> Array:
    """``(z**power - 1) / power``, in full accuracy also for small powers."""
    with np.errstate(divide="ignore"):
        logs = np.log(shifted)
    return np.asarray(logs if power == 0.0 else np.expm1(power * logs) / power)
