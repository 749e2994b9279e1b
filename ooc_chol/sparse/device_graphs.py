"""Rows of a random graph made on GPUs: each range of rows draws all edges anew, while the one before is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import driver_errors_typed, memory_info
from ooc_chol.sparse.ahead import made_ahead
from ooc_chol.sparse.host_graphs import ranges_within
from ooc_chol.sparse.rows import RowCounts, Rows
from ooc_chol.tasks.random_graphs import EdgeDraw

if TYPE_CHECKING:
    from ooc_chol.kernels.cuda.graphs import GraphKernels

#: Most drawn entries of a range that has more than one bucket of rows: a quarter of a GiB of columns in page-locked memory.
RUN_ENTRIES = 1 << 26
#: Bytes of device memory that a drawn entry takes, with an eighth for what is little.
BYTES_AN_ENTRY = 27
_STEP = "drawing of a random graph"


class _Range(NamedTuple):
    """Rows that are made at once."""

    rows: range
    n_drawn: int
    most: int  #: Of all ranges


def device_runs(
    draw: EdgeDraw, counts: RowCounts, devices: Sequence[str], memory_bytes: int | None, run_entries: int = RUN_ENTRIES
) -> Iterator[Rows]:
    """Runs of at most ``run_entries`` entries, or those of one bucket; what was met on the way is added to ``counts``."""
    budget = min(memory_bytes or memory_info(name)[0] // 2 for name in devices)
    with ExitStack() as stack:
        makers = [stack.enter_context(closing(_open(name, draw))) for name in devices]
        with driver_errors_typed(devices[0], _STEP):
            sizes, counts.loops = makers[0].counts()
        jobs = _jobs(draw, sizes, budget, devices[0], run_entries)
        counts.duplicates = sum(job.n_drawn for job in jobs)
        for run in stack.enter_context(closing(made_ahead(list(map(_maker, devices, makers)), jobs))):
            counts.duplicates -= len(run.columns)
            yield run
            del run


def _jobs(draw: EdgeDraw, sizes: NDArray[np.int64], budget: int, device: str, run_entries: int) -> list[_Range]:
    """Ranges of buckets of these sizes that fit the budget."""
    most = min(budget // BYTES_AN_ENTRY, 2**31 - 1)
    if (largest := int(sizes.max())) > most:
        advice = f"so many take the drawn entries of a {len(sizes)}th of the rows; give more, or make the graph on the host"
        raise BudgetError(f"memory_budget of a random graph on {device}", largest * BYTES_AN_ENTRY, budget, advice)
    rows, ranges = draw.n_vertices // len(sizes), ranges_within(sizes, min(most, run_entries))
    drawn = [int(sizes[each.start : each.stop].sum()) for each in ranges]
    return [_Range(range(rows * part.start, rows * part.stop), n, max(drawn)) for part, n in zip(ranges, drawn, strict=True)]


def _open(name: str, draw: EdgeDraw) -> GraphKernels:
    from ooc_chol.kernels.cuda.graphs import GraphKernels

    with driver_errors_typed(name, _STEP):
        return GraphKernels(name, draw)


def _maker(name: str, kernels: GraphKernels) -> Callable[[_Range], Rows]:
    return partial(_make, name, kernels)


def _make(name: str, kernels: GraphKernels, job: _Range) -> Rows:
    """The rows of one range."""
    with driver_errors_typed(name, _STEP):
        starts, columns = kernels.rows(job.rows, job.n_drawn, job.most)
    return Rows(job.rows.start, starts, columns, None)
