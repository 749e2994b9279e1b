"""Companions of a run: its checkpoint, its progress, and the report in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from ooc_chol.calls.progress import OpenReporter
from ooc_chol.calls.report import CallBytes, CallSeconds
from ooc_chol.eigen.asked import FLOORS
from ooc_chol.eigen.checkpoint import Checkpoint
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.lanczos import Lanczos
from ooc_chol.eigen.lobpcg import Lobpcg
from ooc_chol.eigen.methods import Solved
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.problem import AbstractProblem
from ooc_chol.eigen.report import EigshMoves, EigshReport
from ooc_chol.eigen.wanted import Wanted


@final
class Session:
    """Watches a run of block Lanczos, from before its first product on."""

    def __init__(self, *, checkpoint: Checkpoint | None = None, show: OpenReporter = None) -> None:
        self.checkpoint = checkpoint
        self._show, self._since = show, time.perf_counter()
        self.checkpoint_seconds, self._first_scan = 0.0, 0  # seconds of writing and reading them

    def begin(self, run: Lanczos) -> None:
        """Let the run go on from a checkpoint that is there."""
        since = time.perf_counter()
        if self.checkpoint is not None and self.checkpoint.resume(run):
            self._first_scan = run.space.passes - run.passes_a_step  # one looked at what was kept
        self.checkpoint_seconds += time.perf_counter() - since

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Say, in a note to whatever ends the block otherwise, that the same call goes on from the last restart."""
        try:
            yield
        except BaseException as error:
            if self.checkpoint is not None and self.checkpoint.is_there:
                error.add_note(f"{self.checkpoint.path} holds what the last restart left: the same call goes on from it")
            raise

    def at_restart(self, run: Lanczos, residual: float) -> None:
        """Keep what the run is, and show it: what :class:`Lanczos` takes as ``at_restart``."""
        since = time.perf_counter()
        if self.checkpoint is not None:
            self.checkpoint.save(run)
        ended = time.perf_counter()
        self.checkpoint_seconds += ended - since
        if self._show is not None:
            self._show(run.counts.passes, f"residual {residual:.1e}", ended - self._since)

    def at_step(self, run: Lobpcg, residual: float) -> None:
        """Show a step of LOBPCG: what :class:`Lobpcg` takes as ``at_step``."""
        if self._show is not None:
            self._show(run.counts.passes, f"residual {residual:.1e}", time.perf_counter() - self._since)

    def report(
        self, solved: Solved, plan: EigshPlan, wanted: Wanted, problem: AbstractProblem, key: Mapping[str, Any]
    ) -> EigshReport:
        """Report of the run."""
        found, space = solved.found, solved.space
        order = np.argsort(found.values, kind="stable")
        residuals = found.residuals / found.scale if found.scale else found.residuals
        on_devices = space if isinstance(space, DeviceSpace) else None
        moved = problem.moved() if on_devices is None else _moved(on_devices, self._first_scan)
        checkpoint = self.checkpoint
        return EigshReport(
            plan=plan,
            method=solved.method,
            tol=wanted.tol,
            floor=FLOORS[plan.problem.precision],
            block=solved.block,
            ncv=solved.columns,
            counts=found.counts,
            eigenvalues=found.values[order],
            residuals=residuals[order],
            scale=found.scale,
            why_not=found.why_not,
            key=key,
            seconds=self._seconds(on_devices, plan, found.counts.passes),
            bytes=CallBytes() if moved is None else moved[0],
            moves=None if moved is None else moved[1],
            resumed=0 if checkpoint is None else checkpoint.resumed,
            checkpoints=0 if checkpoint is None else checkpoint.written,
            sigma=solved.sigma,
            notes=solved.notes,
        )

    def _seconds(self, space: DeviceSpace | None, plan: EigshPlan, passes: int) -> CallSeconds:
        """Seconds of the run, and of its parts."""
        run = time.perf_counter() - self._since
        parts, waited = {"run": run}, 0.0
        if space is not None:
            spent = space.seconds
            waited = spent.host
            parts |= {"passes": spent.passes, "orthogonalization": spent.panels, "waited": waited}
        parts |= {"checkpoints": self.checkpoint_seconds, "host": max(0.0, run - waited - self.checkpoint_seconds)}
        return CallSeconds(run, parts, None if plan.seconds is None else plan.seconds * passes or None)


def _moved(space: DeviceSpace, first_scan: int) -> tuple[CallBytes, EigshMoves]:
    """Bytes over links in this call, and those that the plan has for so many scans."""
    scans, products = space.passes - first_scan, space.plan.products
    planned = {f"{products.tier}->{share.device}": share.copied_bytes(scans) for share in products.shares}
    moves = EigshMoves(scans, space.exchanged_bytes, space.brought_bytes, space.returned_bytes)
    return CallBytes(planned, space.copied_bytes), moves
