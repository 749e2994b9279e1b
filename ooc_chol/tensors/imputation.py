"""One imputation from its first value of lambda to its report: where it is done, checkpoints, callbacks, interrupts."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.progress import OpenReporter
from ooc_chol.errors import ImputationInterrupted, ImputationWarning
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces.tensors import Svt, TensorShape
from ooc_chol.process.interrupts import HeldInterrupts
from ooc_chol.tensors.checkpoint import Checkpoint
from ooc_chol.tensors.device_space import DeviceTensorSpace
from ooc_chol.tensors.fourier import GraphFourier
from ooc_chol.tensors.host_space import HostTensorSpace
from ooc_chol.tensors.plan import plan_tensor
from ooc_chol.tensors.problem import Given, check_finite, real_tensor
from ooc_chol.tensors.report import Imputed, ImputeReport, ImputeSeconds
from ooc_chol.tensors.schedule import ALL_ZERO, INTERRUPTED, NOTHING_MISSING, LambdaRow, Schedule, descend, noise_floor, number_of
from ooc_chol.tensors.space import AbstractTensorSpace, StepFigures

#: ``callback(row, estimate)``: a row of the history, and a function that copies the tensor as it is. True ends the run.
Callback: TypeAlias = Callable[[LambdaRow, Callable[[], NDArray[Any]]], object]


def space_of(
    given: Given,
    basis: NDArray[np.float64],
    svt: Svt,
    names: tuple[str, ...],
    memory_budget: int | str | None,
    folder: str | os.PathLike[str] | None,
    *,
    trace: bool,
) -> AbstractTensorSpace:
    """Where the tensor is imputed: arrays of the host where that is all there is, and nobody looks; else devices, by a plan."""
    shape = given.observed.shape
    if len(names) == 1 and device_kind(names[0]).is_in_host_memory and memory_budget is None and not trace:
        return HostTensorSpace(basis, (shape[1], shape[2]), given.precision, svt, threads=host_threads(1), folder=folder)
    plan = plan_tensor(
        shape,
        basis.shape[1],
        precision=given.precision,
        svt=svt,
        mask="slices" if given.mask.ndim == 1 else "entries",
        devices=names,
        memory_budget=memory_budget,
        tier="memory" if folder is None else "file",
    )
    return DeviceTensorSpace(plan, basis, folder=folder, trace=trace)


def as_it_is(X: Any, given: Given, fourier: GraphFourier, svt: Svt, names: tuple[str, ...]) -> Imputed:
    """A tensor that has no gaps."""
    warnings.warn("nothing is missing: X is returned as it is", ImputationWarning, stacklevel=3)
    shape = TensorShape(*fourier.basis.shape, *given.observed.shape[1:])
    return Imputed(np.asarray(X), ImputeReport(shape, given.precision, svt, names, 1.0, 0.0, 0.0, NOTHING_MISSING))


def start_of(start: Any, first_lambda: object, given: Given) -> tuple[float | None, NDArray[Any] | None]:
    """The first value of lambda, None for s_1, and estimates to start from."""
    first = None if first_lambda is None else number_of("first_lambda", first_lambda)
    if first is not None and first <= 0:
        raise ValueError(f"first_lambda is {first:g}; give a number above 0, in units of singular values of slices")
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
    return first, given.scaled(tensor)


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
        since: float,
    ) -> None:
        self._space, self._given, self._schedule, self._kept = space, given, schedule, kept
        self._callback, self._show, self._since = callback, show, since
        self._history: list[LambdaRow] = []
        self._floor, self._steps = 0.0, 0
        self.seconds_fourier, self.seconds_checkpoints, self.unreached = 0.0, 0.0, 0

    def run(self, first: float | None, start: NDArray[Any] | None) -> Imputed:
        """Go on from a checkpoint where there is one; else begin."""
        space, given = self._space, self._given
        began = time.perf_counter()
        there = None if self._kept is None else self._kept.read(space, self._schedule)
        self.seconds_checkpoints += time.perf_counter() - began
        space.load(given.observed, given.mask, start if there is None else there.tensor)
        if there is not None:
            self._history = there.history
            space.warm_up(there.warm)
        del there
        largest = space.largest()
        self._floor = noise_floor(given.precision, space.shape.rows, space.shape.columns, largest)
        if not largest:
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
            self._show(self._steps, note, time.perf_counter() - self._since)
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
        self.seconds_checkpoints += time.perf_counter() - began
        if self._callback is None:
            return False
        return self._callback(self._told(row), lambda: self._given.told(np.array(self._space.take()))) is True

    def _told(self, row: LambdaRow) -> LambdaRow:
        """A row of the history in the units of the caller."""
        return replace(row, lam=math.ldexp(row.lam, self._given.power))

    def _imputed(self, stopped: str) -> Imputed:
        """The tensor as it is, and what was done."""
        space, kept = self._space, self._kept
        spent = space.seconds
        seconds = ImputeSeconds(
            time.perf_counter() - self._since,
            self.seconds_fourier,
            spent.transform,
            spent.threshold,
            spent.exchange,
            self.seconds_checkpoints,
        )
        report = ImputeReport(
            shape=space.shape,
            precision=space.precision,
            svt=space.svt,
            devices=space.devices,
            observed=self._given.share,
            largest=math.ldexp(space.largest(), self._given.power),
            floor=math.ldexp(self._floor, self._given.power),
            stopped=stopped,
            history=tuple(map(self._told, self._history)),
            unreached=self.unreached,
            seconds=seconds,
            planned_bytes=dict(space.planned_bytes),
            executed_bytes=dict(space.executed_bytes),
            plan=space.plan if isinstance(space, DeviceTensorSpace) else None,
            key=None if kept is None else kept.key,
            resumed_lambdas=0 if kept is None else kept.resumed,
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
        warnings.warn(text, ImputationWarning, stacklevel=4)
