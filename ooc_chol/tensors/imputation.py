"""One imputation from its first value of lambda to its report: where it is done, checkpoints, callbacks, interrupts."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple, NoReturn, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import OpenReporter, ends_call
from ooc_chol.calls.report import CallBytes, CallSeconds
from ooc_chol.errors import ImputationInterrupted, ImputationWarning
from ooc_chol.files.outputs import AnyPath
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.tensors.checkpoint import Checkpoint
from ooc_chol.tensors.device_space import DeviceTensorSpace
from ooc_chol.tensors.fourier import GraphFourier
from ooc_chol.tensors.host_space import HostTensorSpace
from ooc_chol.tensors.plan import TensorPlan
from ooc_chol.tensors.problem import Given, check_finite, real_tensor
from ooc_chol.tensors.report import Imputed, ImputeReport
from ooc_chol.tensors.schedule import (
    ALL_THE_SAME,
    ALL_ZERO,
    INTERRUPTED,
    NOTHING_MISSING,
    LambdaRow,
    Schedule,
    descend,
    noise_floor,
    number_of,
)
from ooc_chol.tensors.space import AbstractTensorSpace, StepFigures
from ooc_chol.tensors.storage import check_work_folder

#: ``callback(row, estimate)``: a row of the history, and a function that copies the tensor as it is. True ends the run.
Callback: TypeAlias = Callable[[LambdaRow, Callable[[], NDArray[Any]]], object]


def space_of(
    plan: TensorPlan, given: Given, fourier: GraphFourier, folder: AnyPath | None, *, trace: bool
) -> AbstractTensorSpace:
    """Where the tensor is imputed, as the plan says: whole arrays of the host, or devices."""
    order = plan.problem.order
    basis, eigenspaces = fourier.basis[:, order], plan.problem.placed(fourier.eigenspaces)
    space: AbstractTensorSpace
    if plan.is_whole:
        (device,), slices = plan.devices, given.observed.shape[1:]
        how: dict[str, Any] = {"folder": folder, "device": device, "trace": trace, "eigenspaces": eigenspaces}
        sizes = slices[0], slices[1]
        space = HostTensorSpace(basis, sizes, given.precision, plan.problem.svt, threads=host_threads(1), **how)
    else:
        space = DeviceTensorSpace(plan, basis, folder=folder, trace=trace, eigenspaces=eigenspaces)
    space.numbers = order
    return space


def as_it_is(X: Any, plan: TensorPlan, key: Mapping[str, Any], parts: Mapping[str, float]) -> Imputed:
    """A tensor that has no gaps."""
    warnings.warn("nothing is missing: X is returned as it is", ImputationWarning, stacklevel=4)
    seconds = CallSeconds(parts={**parts, "run": 0.0})
    return Imputed(np.asarray(X), ImputeReport(plan, key, 1.0, 0.0, 0.0, NOTHING_MISSING, seconds=seconds))


def check_beside(start: Any, first_lambda: object, callback: object, work_folder: AnyPath | None) -> None:
    """Refuse arguments that make no sense whatever the tensor is."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is a {type(callback).__name__}; give a function of a row and an estimate")
    if work_folder is not None:
        check_work_folder(work_folder)
    _first_of(first_lambda)
    if not (start is None or isinstance(start, Imputed)):
        real_tensor("start", start)


def _first_of(first_lambda: object) -> float | None:
    """The first value of lambda as the caller gives it."""
    first = None if first_lambda is None else number_of("first_lambda", first_lambda)
    if first is not None and first <= 0:
        raise ValueError(f"first_lambda is {first:g}; give a number above 0, in units of singular values of slices")
    return first


def start_of(start: Any, first_lambda: object, given: Given) -> tuple[float | None, NDArray[Any] | None]:
    """The first value of lambda, None for s_1, and estimates to start from."""
    first = _first_of(first_lambda)
    if first is None and isinstance(start, Imputed):
        first = start.last_lambda
    if first is not None:
        with np.errstate(over="ignore"):
            first = float(np.ldexp(first, -given.power))
        if first == np.inf:
            raise ValueError(f"first_lambda is {first_lambda:g}, which is beyond all bounds beside the entries of X")
    if start is None:
        return first, None
    if first is None and not isinstance(start, Imputed):
        raise ValueError("start is an array: give first_lambda too, since the usual one, s_1, would wipe it out")
    tensor = real_tensor("start", start.tensor if isinstance(start, Imputed) else start)
    if tensor.shape != given.observed.shape:
        raise ValueError(f"start has shape {tensor.shape}, but X has {given.observed.shape}")
    check_finite("start", tensor, ~given.mask, given.precision, "give finite numbers where nothing is observed")
    scaled = given.scaled(tensor)
    if not given.center:
        return first, scaled
    with np.errstate(all="ignore"):  # what is observed may be anything there
        return first, scaled - given.center


class Begun(NamedTuple):
    """Facts of a call before its first step."""

    plan: TensorPlan
    key: Mapping[str, Any]
    unreached: int  #: Slices that no path connects to what is observed
    since: float  #: Start of the call
    run_since: float  #: Start of its run
    parts: Mapping[str, float]  #: Seconds of what is done


@final
class ImputationRun:
    """One imputation, with what accompanies it: checkpoints, the callback, what is shown, and interrupts."""

    def __init__(
        self,
        space: AbstractTensorSpace,
        given: Given,
        schedule: Schedule,
        kept: Checkpoint | None,
        callback: Callback | None,
        show: OpenReporter,
        begun: Begun,
    ) -> None:
        self._space, self._given, self._schedule, self._kept = space, given, schedule, kept
        self._callback, self._show, self._begun = callback, show, begun
        self._history: list[LambdaRow] = []
        self._floor, self._steps, self._seconds_checkpoints = 0.0, 0, begun.parts.get("checkpoints", 0.0)

    def run(self, first: float | None, start: NDArray[Any] | None) -> Imputed:
        """Go on from a checkpoint where there is one; else begin."""
        space, given = self._space, self._given
        began = time.perf_counter()
        there = None if self._kept is None else self._kept.read(space, self._schedule)
        self._seconds_checkpoints += time.perf_counter() - began
        space.load(given.observed, given.mask, start if there is None else there.tensor, center=given.center)
        if there is not None:
            self._history = there.history
            space.warm_up(there.warm)
        del there
        largest = space.largest()
        self._floor = noise_floor(given.precision, space.shape.rows, space.shape.columns, largest)
        if not largest:
            if given.center:
                return self._imputed(ALL_THE_SAME)
            _warn_of_zeros(given)
            return self._imputed(ALL_ZERO)
        self._steps = sum(row.steps for row in self._history)
        with HeldInterrupts() as held:
            stopped = descend(
                space,
                self._schedule,
                largest if first is None else first,
                self._floor,
                self._history,
                missing=1 - given.share,
                at_step=lambda figures: self._at_step(figures, held),
                at_lambda=self._at_lambda,
            )
        return self._imputed(stopped)

    def _at_step(self, figures: StepFigures, held: HeldInterrupts) -> None:
        self._steps += 1
        if self._show is not None:
            note = f"rank {figures.ranks.mean():.1f}"
            self._show(self._steps, note, time.perf_counter() - self._begun.since)
        if (error := held.take()) is not None:
            self._interrupt(error)

    def _interrupt(self, error: KeyboardInterrupt) -> NoReturn:
        """Raise what the run has come to."""
        told = ImputationInterrupted(self._imputed(INTERRUPTED))
        if self._kept is not None and self._kept.is_there:
            told.add_note(f"{self._kept.path} holds what the last value of lambda left: the same call goes on from it")
        raise told from error

    def _at_lambda(self, row: LambdaRow) -> bool:
        began = time.perf_counter()
        if self._kept is not None:
            self._kept.save(self._space, self._history)
        self._seconds_checkpoints += time.perf_counter() - began
        if self._callback is None:
            return False
        return ends_call(self._callback(self._told(row), lambda: self._given.told(np.array(self._space.take()))))

    def _told(self, row: LambdaRow) -> LambdaRow:
        """A row of the history in the units of the caller."""
        return replace(row, lam=math.ldexp(row.lam, self._given.power))

    def _imputed(self, stopped: str) -> Imputed:
        """The tensor as it is, and what was done."""
        space, kept, begun = self._space, self._kept, self._begun
        now = time.perf_counter()
        parts = {**begun.parts, "run": now - begun.run_since, **asdict(space.seconds), "checkpoints": self._seconds_checkpoints}
        report = ImputeReport(
            begun.plan,
            begun.key,
            observed=self._given.share,
            largest=math.ldexp(space.largest(), self._given.power),
            floor=math.ldexp(self._floor, self._given.power),
            stopped=stopped,
            history=tuple(map(self._told, self._history)),
            unreached=begun.unreached,
            center=math.ldexp(self._given.center, self._given.power),
            seconds=CallSeconds(now - begun.since, parts),
            bytes=CallBytes(dict(space.planned_bytes), dict(space.executed_bytes)),
            resumed=0 if kept is None else kept.resumed,
            checkpoints=0 if kept is None else kept.written,
        )
        return Imputed(self._given.told(space.take()), report, space.trace)


def _warn_of_zeros(given: Given) -> None:
    """Warn where all that is observed is zero, and what is missing is not."""
    where = given.mask if given.mask.ndim == 3 else given.mask[:, None, None]
    if np.nan_to_num(np.where(where, 0, given.tensor)).any():
        text = (
            "all that is observed is zero, and so is the estimate, but what is missing is not: mask is True where X is observed"
        )
        warnings.warn(text, ImputationWarning, stacklevel=5)
