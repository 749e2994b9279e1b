"""Facts that the columns of a formula take from the observations: levels of factors, and orthogonal polynomials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.csv_words import number_of

#: Most levels that a factor may have, however many rows there are: each costs a column of the mean.
_MOST_LEVELS = 200


@dataclass(frozen=True)
class Basis:
    """Facts that the columns of a formula take from the observations; made by :meth:`Formula.basis`.

    Parameters
    ----------
    levels : mapping of str to tuple of str
        Levels of each factor, the first of which has no column (treatment contrasts) unless the factor stands for the intercept.
    polynomials : mapping of str to tuple of float
        For each polynomial of degree ``k`` the ``k`` centres and the ``k + 1`` squared norms of its recurrence.
    """

    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    polynomials: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    __repr__ = tb.brief_repr


def text_of_codes(column: NDArray[Any]) -> NDArray[np.str_]:
    """Levels as text: numbers in their shortest form, so that 1, 1.0 and "1" are one level."""
    if column.dtype.kind in "US":
        return np.char.strip(column.astype(np.str_))
    values = tb.plain_array("codes", column, np.float64)
    return np.array([repr(int(v)) if v.is_integer() and abs(v) < 2**53 else repr(v) for v in values.tolist()], dtype=np.str_)


def learned_levels(name: str, column: NDArray[Any]) -> tuple[str, ...]:
    """Levels in ascending order, of numbers as numbers; ``ValueError`` where these are no levels."""
    levels = sorted(set(text_of_codes(column).tolist()), key=_order)
    if len(levels) < 2:
        raise ValueError(f"{name} in the formula has one level, {levels[0]!r}, and so no effect: leave it out")
    if len(levels) > min(_MOST_LEVELS, len(column) // 2):
        raise ValueError(
            f"{name} in the formula has {len(levels)} levels in {len(column)} rows, {levels[0]!r:.40} and {levels[1]!r:.40}: "
            "is it no factor?"
        )
    return tuple(levels)


def _order(level: str) -> tuple[bool, float, str]:
    """Numbers before words."""
    try:
        return False, number_of(level), ""
    except ValueError:
        return True, 0.0, level


def learned_polynomial(name: str, x: NDArray[np.float64], degree: int) -> tuple[float, ...]:
    """Centres and squared norms of the monic polynomials that are orthogonal on ``x``, as R's ``poly`` has them."""
    if len(np.unique(x)) <= degree:
        raise ValueError(f"{name} in the formula needs more than {degree} different values, but there are {len(np.unique(x))}")
    centres: list[float] = []
    norms = [float(len(x))]
    before, current = np.zeros_like(x), np.ones_like(x)
    for _ in range(degree):
        centres.append(float(np.sum(x * current**2) / norms[-1]))
        ratio = norms[-1] / norms[-2] if len(norms) > 1 else 0.0
        before, current = current, (x - centres[-1]) * current - ratio * before
        norms.append(float(np.sum(current**2)))
    return (*centres, *norms)


def polynomial_columns(x: NDArray[np.float64], found: tuple[float, ...]) -> NDArray[np.float64]:
    """Orthonormal polynomials of degree 1 and up at ``x``, shape ``(n, k)``; orthonormal on the observations.

    The recurrence of Forsythe (1957), with the scaling of R's ``poly``: each column has norm 1 on the observations.
    """
    degree = len(found) // 2
    centres, norms = found[:degree], found[degree:]
    columns: list[NDArray[np.float64]] = []
    before, current = np.zeros_like(x), np.ones_like(x)
    for k, centre in enumerate(centres):
        ratio = norms[k] / norms[k - 1] if k else 0.0
        before, current = current, (x - centre) * current - ratio * before
        columns.append(current / np.sqrt(norms[k + 1]))
    return np.column_stack(columns)
