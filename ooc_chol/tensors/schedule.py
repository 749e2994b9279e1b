"""The schedule of an imputation: how lambda falls, how many steps each value takes, and when the run ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ooc_chol.config import real_number, whole_number
from ooc_chol.kernels.interfaces.tensors import Shrinkage
from ooc_chol.kernels.tensor_shapes import check_shrinkage
from ooc_chol.precision.triples import Precision
from ooc_chol.tensors.space import AbstractTensorSpace, StepFigures

#: Multiple of ``u sqrt(max(m, n)) s_1`` that is the noise of singular values.
_FLOOR = 8.0
#: Why a run ended.
ALL_LAMBDAS, NOISE_FLOOR, CALLBACK = "all values of lambda were used", "lambda reached the noise floor", "the callback ended it"
NOTHING_MISSING, ALL_ZERO = "nothing is missing", "all that was observed is zero"
ALL_THE_SAME = "all that was observed is one number"
INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class Schedule:
    """How lambda falls."""

    n_lambdas: int  #: Values of lambda, the first being ``first``
    decay: float  #: Each is this share of the last one, between 0 and 1
    max_inner: int  #: Most steps for a value
    #: A value has had enough steps when the mean square of changes of missing entries is at most ``tol`` times the mean square of
    #: all entries
    tol: float
    momentum: float  #: How far beyond each estimate a step goes, from 0 to less than 1
    shrinkage: Shrinkage  #: What singular values above lambda become

    def lam(self, number: int, first: float) -> float:
        """Value of that number."""
        return first * self.decay**number

    def key(self) -> dict[str, Any]:
        """All of it, to the bit."""
        return {name: value.hex() if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class LambdaRow:
    """Work for one value of lambda: a row of the history.

    Parameters
    ----------
    lam : float
        The value, in units of singular values of slices.
    steps : int
        Steps that were done.
    mean_rank : float
        Singular values above it in the last step, a slice; slices of one eigenvalue have those of the matrix of all of them.
    change : float
        Change in the last step: mean square of changes of missing entries, as a share of the mean square of all entries.
    full_route : float
        Share of slices for which all eigenpairs were computed, of all slices of all steps.
    seconds : float
        Wall clock.
    """

    lam: float
    steps: int
    mean_rank: float
    change: float
    full_route: float
    seconds: float


def schedule_of(
    n_lambdas: object, decay: object, max_inner: object, tol: object, momentum: object, shrinkage: Shrinkage
) -> Schedule:
    """A schedule, once all is known to make sense; ``ValueError`` or ``TypeError`` says what does not."""
    for name, value in (("n_lambdas", n_lambdas), ("max_inner", max_inner)):
        if whole_number(value, name) < 1:
            raise ValueError(f"{name} is {value}; give at least 1")
    share, least, beyond = number_of("decay", decay), number_of("tol", tol), number_of("momentum", momentum)
    if not 0 < share < 1:
        raise ValueError(f"decay is {share:g}, but lambda falls by a factor between 0 and 1, such as 0.5")
    if not 0 <= least < 1:
        raise ValueError(f"tol is {least:g}; give a share of squares, at least 0 and less than 1, such as 1e-8")
    if not 0 <= beyond < 1:
        raise ValueError(f"momentum is {beyond:g}; give at least 0 (none) and less than 1")
    check_shrinkage(shrinkage)
    return Schedule(whole_number(n_lambdas, "n_lambdas"), share, whole_number(max_inner, "max_inner"), least, beyond, shrinkage)


def number_of(name: str, value: object) -> float:
    """A finite number."""
    number = real_number(value, name)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; give a finite number")
    return number


def noise_floor(precision: Precision, m: int, n: int, largest: float) -> float:
    """``8 u sqrt(max(m, n)) s_1``: below that, singular values of slices are of roundings of what is stored."""
    unit_roundoff = float(np.finfo(precision.storage).eps) / 2
    return _FLOOR * unit_roundoff * math.sqrt(max(m, n)) * largest


def descend(
    space: AbstractTensorSpace,
    schedule: Schedule,
    first: float,
    floor: float,
    history: list[LambdaRow],
    *,
    missing: float,
    at_step: Callable[[StepFigures], None],
    at_lambda: Callable[[LambdaRow], bool],
) -> str:
    """Let lambda fall, from the first value that ``history`` does not have yet; why it ended.

    ``missing`` is the share of entries that are. ``at_step`` is told of each step; ``at_lambda``
    of each value, and says whether the run ends.
    """
    while len(history) < schedule.n_lambdas:
        lam = schedule.lam(len(history), first)
        if lam <= floor:
            return NOISE_FLOOR
        before = sum(row.steps for row in history)
        history.append(_steps(space, schedule, lam, missing, at_step, before))
        if at_lambda(history[-1]):
            return CALLBACK
    return ALL_LAMBDAS


def _steps(
    space: AbstractTensorSpace,
    schedule: Schedule,
    lam: float,
    missing: float,
    at_step: Callable[[StepFigures], None],
    before: int,
) -> LambdaRow:
    """The steps for one value, ``before`` others."""
    since, full, steps = time.perf_counter(), 0, 0
    while True:
        figures = space.step(lam, schedule.momentum, schedule.shrinkage, before + steps)
        steps, full = steps + 1, full + figures.full_route
        at_step(figures)
        change = figures.change / (missing * figures.size) if figures.size else 0.0
        if steps == schedule.max_inner or change <= schedule.tol:
            break
    share = full / (steps * space.shape.components)
    return LambdaRow(lam, steps, float(figures.ranks.mean()), change, share, time.perf_counter() - since)
