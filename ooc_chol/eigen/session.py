"""Companions of a run: its checkpoint, its progress, and the report in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import numpy as np

from ooc_chol.calls.progress import OpenReporter
from ooc_chol.eigen.asked import FLOORS
from ooc_chol.eigen.checkpoint import Checkpoint
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.lanczos import Found, Lanczos
from ooc_chol.eigen.lobpcg import Lobpcg
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.report import EigshMoves, EigshReport, EigshSeconds
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.precision.triples import Precision


@final
class Session:
    """Watches a run of block Lanczos, from before its first product on."""

    def __init__(
        self,
        wanted: Wanted,
        precision: Precision,
        *,
        plan: EigshPlan | None = None,
        checkpoint: Checkpoint | None = None,
        show: OpenReporter = None,
    ) -> None:
        self.wanted, self.precision, self.plan, self.checkpoint = wanted, precision, plan, checkpoint
        self._show, self._since = show, time.perf_counter()
        self._checkpoint_seconds, self._first_scan = 0.0, 0

    def begin(self, run: Lanczos) -> None:
        """Let the run go on from a checkpoint that is there."""
        since = time.perf_counter()
        if self.checkpoint is not None and self.checkpoint.resume(run):
            self._first_scan = run.space.passes - run.passes_a_step  # one looked at what was kept
        self._checkpoint_seconds += time.perf_counter() - since

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
        self._checkpoint_seconds += ended - since
        if self._show is not None:
            self._show(run.counts.passes, f"residual {residual:.1e}", ended - self._since)

    def at_step(self, run: Lobpcg, residual: float) -> None:
        """Show a step of LOBPCG: what :class:`Lobpcg` takes as ``at_step``."""
        if self._show is not None:
            self._show(run.counts.passes, f"residual {residual:.1e}", time.perf_counter() - self._since)

    def report(
        self,
        found: Found,
        space: AbstractSpace | None,
        *,
        n: int,
        method: str | None = None,
        block: int = 1,
        ncv: int | None = None,
        sigma: float | None = None,
    ) -> EigshReport:
        """Report of the run."""
        order = np.argsort(found.values, kind="stable")
        residuals = found.residuals / found.scale if found.scale else found.residuals
        on_devices = space if isinstance(space, DeviceSpace) else None
        checkpoint = self.checkpoint
        return EigshReport(
            n=n,
            k=self.wanted.k,
            which=self.wanted.which,
            method=method or ("dense" if space is None else "lanczos"),
            precision=self.precision,
            tol=self.wanted.tol,
            floor=FLOORS[self.precision],
            block=block if space is None else space.block,
            ncv=ncv or (n if space is None else space.block * (space.capacity - 1)),
            counts=found.counts,
            eigenvalues=found.values[order],
            residuals=residuals[order],
            scale=found.scale,
            why_not=found.why_not,
            seconds=self._seconds(on_devices),
            moves=None if on_devices is None else _moves(on_devices, self._first_scan),
            plan=self.plan,
            key=None if checkpoint is None else checkpoint.key,
            resumed_passes=0 if checkpoint is None else checkpoint.resumed,
            checkpoints=0 if checkpoint is None else checkpoint.written,
            sigma=sigma,
        )

    def _seconds(self, space: DeviceSpace | None) -> EigshSeconds:
        total = time.perf_counter() - self._since
        if space is None:
            return EigshSeconds(total, checkpoints=self._checkpoint_seconds)
        spent = space.seconds
        return EigshSeconds(total, spent.passes, spent.panels, spent.host, self._checkpoint_seconds)


def _moves(space: DeviceSpace, first_scan: int) -> EigshMoves:
    """Bytes over links in this call, and those that the plan has for so many scans."""
    scans, products = space.passes - first_scan, space.plan.products
    planned = {f"{products.tier}->{share.device}": share.copied_bytes(scans) for share in products.shares}
    return EigshMoves(scans, planned, space.copied_bytes, space.exchanged_bytes, space.brought_bytes, space.returned_bytes)
