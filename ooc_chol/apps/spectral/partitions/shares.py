"""Bounds on the weights of the two sides of a bisection, so that all parts can have their shares in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.cutting.target import Target
from ooc_chol.apps.spectral.graphs.packing import grain, nearest_sum

Weights = NDArray[np.float64]

#: Whole weights up to this many times their greatest common divisor are balanced to the last unit.
_FINE_WEIGHTS = 100
#: Of heavier weights, and of those that are not whole: the share of the vertices that are light enough to balance with.
_LIGHT = 0.9
#: By how much sums of weights may differ by rounding, relative to them.
_ROUNDING = 1e-12
#: By how much target sizes may miss the sum that they are to have, relative to it.
_SUM_TOL = 1e-6


@final
@dataclass(frozen=True, eq=False)
class Shares:
    """Weights that parts are to have.

    Where all vertices weigh the same, ``least`` and ``most`` are the multiples of that next to the targets, and parts keep to
    them. Elsewhere every bisection is as near as its vertices allow.
    """

    targets: Weights  #: (n_parts,)
    least: Weights
    most: Weights
    unit: float  #: Weight of every vertex; 0 where they differ
    balance: float

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def bounds(self) -> tuple[Weights, Weights]:
        """Least and most weights of the parts: a balance lets them be lighter, too."""
        most = np.maximum(self.most, (1 + self.balance) * self.targets * (1 + _ROUNDING))
        return np.zeros(len(self)) if self.balance else self.least, np.floor(most) if self.unit == 1 else most

    def in_units(self) -> Shares:
        """Counts of vertices, where all weigh the same; else as they are."""
        if self.unit in (0.0, 1.0):
            return self
        return Shares(
            self.targets / self.unit, np.rint(self.least / self.unit), np.rint(self.most / self.unit), 1.0, self.balance
        )

    def of(self, parts: slice) -> Shares:
        """Shares of some of the parts."""
        return Shares(self.targets[parts], self.least[parts], self.most[parts], self.unit, self.balance)

    def target(self, weights: Weights, first: int) -> Target:
        """Target weight of the first parts together, for vertices that weigh this."""
        total = float(weights.sum())
        if not len(weights):
            return Target(0.0, 0.0, 0.0)
        share = total * float(self.targets[:first].sum() / self.targets.sum())
        if self.unit:
            low, high = self._whole(total, share, first)
        else:
            slack = slack_of(weights, share)
            low, high = share - slack, share + slack
        if self.balance:
            levels = max(1, (len(self) - 1).bit_length())
            room = max(1.0, (1 + self.balance) * float(self.targets.sum()) / total) ** (1 / levels)
            if not self.unit and not grain(weights):  # a balance, and not light vertices, says what is near enough
                low, high = share - (least := _left_over(weights, share)), share + least
            low, high = min(low, total - (total - share) * room), max(high, share * room)
        return Target((low + high) / 2, total, (high - low) / 2)

    def _whole(self, total: float, share: float, first: int) -> tuple[float, float]:
        """From what to what the first parts must weigh so that they and the others can have what they must."""
        low = max(float(self.least[:first].sum()), total - float(self.most[first:].sum()))
        high = min(float(self.most[:first].sum()), total - float(self.least[first:].sum()))
        # balance may have let the group have more or less than its parts are to have without it
        return (low, high) if low <= high else (share - self.unit / 2, share + self.unit / 2)


def slack_of(weights: Weights, wanted: float) -> float:
    """By how much a part of these vertices must be allowed to miss a weight.

    The least that any subset misses it by, where weights are whole and none is heavy; else half of what light vertices weigh, so
    that the cut is not given up for the last digit of the balance.
    """
    unit, heaviest = grain(weights), float(weights.max(initial=0.0))
    if unit and heaviest <= _FINE_WEIGHTS * unit:
        nearest = nearest_sum(weights, wanted)
        if nearest is not None:
            return abs(nearest - wanted)
    light = float(np.quantile(weights, _LIGHT)) if len(weights) else 0.0
    return max(light / 2, _left_over(weights, wanted))


def _left_over(weights: Weights, wanted: float) -> float:
    """Weight that is missing where vertices are taken largest first while they fit."""
    order = np.sort(weights)[::-1]
    room = wanted
    for weight in order.tolist():
        if weight <= room:
            room -= weight
    return room


def shares_of(weights: Weights, n_parts: int, target_sizes: ArrayLike | None, balance: float) -> Shares:
    """Shares of the whole weight; ``ValueError`` for target sizes that make no sense."""
    total = float(weights.sum())
    targets = np.full(n_parts, total / n_parts) if target_sizes is None else _targets(target_sizes, n_parts, total)
    unit = float(weights[0]) if len(weights) and np.all(weights == weights[0]) else 0.0
    if not unit:
        return Shares(targets, targets, targets, 0.0, balance)
    counts = targets / unit
    given = _rounded(counts, len(weights))
    least = np.minimum(np.floor(counts + 1e-9), given)
    most = np.maximum(np.ceil(counts - 1e-9), given)
    return Shares(targets, np.maximum(least, np.minimum(given, 1)) * unit, most * unit, unit, balance)


def checked_sizes(target_sizes: ArrayLike, n_parts: int) -> Weights:
    """Target sizes as the caller gives them, one positive number for each part."""
    try:
        sizes = tb.plain_array("target_sizes", target_sizes, np.float64)
    except oc.errors.MissingValueError:
        raise
    except ValueError:
        raise TypeError(f"target_sizes is {target_sizes!r:.40}; give {n_parts} numbers, one for each part") from None
    if sizes.shape != (n_parts,):
        raise ValueError(f"target_sizes has shape {sizes.shape}; give {n_parts} numbers, one for each part")
    if not np.all(np.isfinite(sizes)) or not np.all(sizes > 0):
        worst = int(np.argmin(np.where(np.isfinite(sizes), sizes, -np.inf)))
        raise ValueError(f"target_sizes[{worst}] is {sizes[worst]:g}; give positive numbers")
    return sizes


def _targets(target_sizes: ArrayLike, n_parts: int, total: float) -> Weights:
    """Target sizes as weights: given as shares of 1, or as weights."""
    sizes = checked_sizes(target_sizes, n_parts)
    for whole in (1.0, total):
        if abs(sizes.sum() - whole) <= _SUM_TOL * whole:
            return np.asarray(sizes * (total / sizes.sum()))
    raise ValueError(
        f"target_sizes sum up to {sizes.sum():.9g}; give shares that sum up to 1, or weights that sum up to {total:.9g}, what "
        "all vertices weigh"
    )


def _rounded(counts: Weights, n: int) -> Weights:
    """Whole numbers that sum up to n, next to these, and at least 1 where n allows."""
    given = np.floor(counts + 1e-9)
    if n >= len(counts):
        given = np.maximum(given, 1)
    while (missing := n - int(given.sum())) != 0:
        step = 1 if missing > 0 else -1
        order = np.argsort(step * (given - counts), kind="stable")
        if step < 0:
            order = order[given[order] > 1]
        given[order[: abs(missing)]] += step
    return given


def text_of_least(weights: Sequence[float] | Weights, wanted: float) -> str | None:
    """A sentence where no vertices weigh together what a part is to weigh; None where some do, or it is not known."""
    weights = np.asarray(weights, np.float64)
    if len(weights) < 2 or np.all(weights == weights[0]):
        return None
    nearest = nearest_sum(weights, wanted)
    if nearest is None or abs(nearest - wanted) <= 1e-9 * max(1.0, wanted):
        return None
    total = float(weights.sum())
    return (
        f"No vertices weigh {wanted:.12g} together, half of {total:.12g}: the least imbalance is a part of {nearest:.12g} beside "
        f"one of {total - nearest:.12g}."
    )
