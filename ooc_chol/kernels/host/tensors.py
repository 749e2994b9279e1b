"""Kernels of graph-tensor imputation on the host: NumPy's products and eigenpairs of one slice each, shared by a team of threads.

A call of BLAS or LAPACK is for one slice, or for one strip of columns that begins at a fixed column of its panel, in one thread:
its bits do not depend on what else is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.interfaces import AbstractStream, Tile, Turns
from ooc_chol.kernels.host import thresholds
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.interfaces.tensors import (
    LANES,
    AbstractTensorKernels,
    PanelSlices,
    Shrinkage,
    Slices,
    Svt,
    TensorShape,
    resolve_svt,
    runs_within,
)
from ooc_chol.kernels.tensor_shapes import check_fill, check_joined, check_norms, check_threshold, check_transform
from ooc_chol.precision.triples import Precision
from ooc_chol.process import blas_buffers
from ooc_chol.process.team import Job, ThreadTeam, pieces

#: Columns of a panel that a product takes at a time, and at most so many numbers that are widened for it.
_STRIP, _STRIP_ENTRIES = 256, 1 << 23
#: Entries that one thread fills in at a time, and those of the slices that it thresholds.
_FILL_ENTRIES, _JOB_ENTRIES = 1 << 17, 1 << 16

Floats = NDArray[Any]


@final
class HostTensorKernels(AbstractTensorKernels):
    """Kernels that take NumPy arrays, for streams of host devices.

    They take no workspace of the device. What they work in comes and goes with each job, as NumPy allocates it: for each thread a
    few MB, or in FDF, for a graph of many vertices, two strips of up to 64 MB.
    """

    def __init__(self, shape: TensorShape, precision: Precision, svt: Svt = "auto", threads: int = 1) -> None:
        self.shape, self.precision = TensorShape(*shape), precision
        self.svt = resolve_svt(svt, self.shape.rows, self.shape.columns)
        self._team = ThreadTeam(threads)

    def workspace_bytes(self, nb: int) -> int:
        return 0

    def bind(self, nb: int, workspace: int) -> None:
        """Take nothing."""

    def close(self) -> None:
        self._team.close()

    def transform(self, stream: AbstractStream, basis: Tile, panel: Tile, out: Tile, *, inverse: bool = False) -> None:
        check_transform(self, basis, panel, out, inverse=inverse)
        left = basis if inverse else basis.T
        strips = pieces(panel.shape[1], max(16, min(_STRIP, _STRIP_ENTRIES // max(basis.shape))))
        self._enqueue(stream, lambda: [partial(_multiply, left, panel[:, each], out[:, each]) for each in strips])

    def fill(
        self, stream: AbstractStream, z: Tile, observed: Tile, mask: Tile, x: Tile, sums: Tile, *, momentum: float = 0.0
    ) -> None:
        rows, width = check_fill(self, {"z": z, "observed": observed, "x": x}, mask, sums, momentum)
        squares = np.empty((2, rows))
        step = self.precision.compute.type(momentum)

        def fill(part: slice) -> None:
            given = mask[part] if mask.ndim == 2 else mask[part, None]
            squares[:, part] = _fill(z[part], observed[part], given != 0, x[part], step)

        def add() -> None:
            sums[...] = lane_sums(squares)

        self._enqueue(stream, lambda: self._jobs(fill, rows, max(1, _FILL_ENTRIES // width)), last=add)

    def threshold_in_turns(
        self,
        stream: AbstractStream,
        slices: Slices,
        lam: float,
        ranks: Tile,
        flags: Tile,
        *,
        basis: Tile | None = None,
        shrinkage: Shrinkage = "soft",
        joined: Sequence[range] = (),
        across: bool = False,
    ) -> Turns:
        counts = {"ranks": ranks, "flags": flags}
        check_threshold(self, slices, lam, counts, basis, shrinkage=shrinkage, joined=joined, across=across)
        rule = thresholds.Rule(lam, shrinkage)
        tolerance = thresholds.TOLERANCES[self.precision.storage.name]

        def work(part: slice) -> None:
            own, runs = self._together(slices[part]), runs_within(joined, part)
            seen = own.transpose(0, 2, 1) if across else own
            if self.svt == "svd":
                thresholds.by_svd(seen, rule, ranks[part], flags[part], runs)
            else:
                start = None if basis is None else basis[part]
                thresholds.by_gram(seen, rule, ranks[part], flags[part], start, tolerance, runs)
            if isinstance(slices, PanelSlices):
                _put_back(own, slices[part])

        self._enqueue(stream, lambda: self._jobs(work, len(slices), self._slices_of_job, joined))
        yield None

    def norms_in_turns(self, stream: AbstractStream, slices: Slices, out: Tile, *, joined: Sequence[range] = ()) -> Turns:
        check_norms(self, slices, out)
        check_joined(self, len(slices), joined)

        def work(part: slice) -> None:
            out[part] = thresholds.norms(self._together(slices[part]), runs_within(joined, part))

        self._enqueue(stream, lambda: self._jobs(work, len(slices), self._slices_of_job, joined))
        yield None

    def _together(self, slices: Slices) -> Floats:
        """Slices one behind the other: where they are, or a copy of those that lie panel by panel."""
        own: Floats = np.concatenate(list(slices.panels()), axis=1) if isinstance(slices, PanelSlices) else slices
        return own.reshape(-1, self.shape.rows, self.shape.columns)

    @property
    def _slices_of_job(self) -> int:
        return max(1, _JOB_ENTRIES // self.shape.width)

    def _jobs(self, work: Callable[[slice], None], count: int, step: int, joined: Sequence[range] = ()) -> list[Job]:
        """Jobs that do ``work`` for parts of so many, or of more, so that no run is cut."""
        if not joined:
            return [partial(work, part) for part in pieces(count, step)]
        ends, at, jobs = {each: run.stop for run in joined for each in run[1:]}, 0, list[Job]()
        while at < count:
            stop = min(at + step, count)
            stop = ends.get(stop, stop)
            jobs.append(partial(work, slice(at, stop)))
            at = stop
        return jobs

    def _enqueue(self, stream: AbstractStream, jobs: Callable[[], list[Job]], last: Job | None = None) -> None:
        """Enqueue jobs for the team, whose calls of BLAS take one thread each, and what comes behind all of them."""

        def operation() -> None:
            with blas_threads(1):
                self._team.run([partial(_quietly, job) for job in jobs()])
                if last is not None:
                    last()

        enqueue(stream, operation)


def _put_back(made: Floats, slices: PanelSlices) -> None:
    """Copy slices to where they lie panel by panel."""
    at, flat = 0, made.reshape(len(made), -1)
    for panel in slices.panels():
        panel[...] = flat[:, at : at + panel.shape[1]]
        at += panel.shape[1]


def _quietly(job: Job) -> None:
    blas_buffers.ensure(numpys=True)
    with np.errstate(all="ignore"):
        job()


def _multiply(left: Floats, panel: Floats, out: Floats) -> None:
    """``out = left @ panel`` in the type of ``left``, rounded once."""
    if panel.shape[1] == 1:
        # BLAS multiplies by a vector, and some of its kernels add in another order where the entries are apart.
        out[:, 0] = left @ np.ascontiguousarray(panel[:, 0], left.dtype)
    elif out.dtype == left.dtype:
        np.matmul(left, panel, out=out)
    else:
        out[...] = left @ panel.astype(left.dtype)


def _fill(z: Floats, observed: Floats, given: NDArray[np.bool_], x: Floats, momentum: Any) -> tuple[Floats, Floats]:
    """Fill in some rows; sums of squares of each, of changes and of what was there."""
    before = x.astype(np.float64)
    made = z
    if momentum:
        wide = z.astype(momentum.dtype, copy=False)
        made = wide + momentum * (wide - x)
    x[...] = np.where(given, observed, made)
    changes = x.astype(np.float64)
    changes -= before
    np.multiply(changes, changes, out=changes)
    changes[np.broadcast_to(given, changes.shape)] = 0.0
    np.multiply(before, before, out=before)
    return lane_sums(changes), lane_sums(before)


def lane_sums(terms: Floats) -> Floats:
    """Sums over the last axis in the order that all devices keep: :data:`LANES` partial sums, folded in halves."""
    *leading, length = terms.shape
    whole = length // LANES * LANES
    lanes: Floats = np.zeros((*leading, LANES))
    for at in range(0, whole, LANES):
        lanes += terms[..., at : at + LANES]
    lanes[..., : length - whole] += terms[..., whole:]
    half = LANES // 2
    while half:
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        half //= 2
    return lanes[..., 0]
