"""Functions that Dask calls on a worker: a block of L, or a verdict on A that later tasks hand on; each reports its work."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from ooc_chol.cluster.blocks import LBlock
from ooc_chol.cluster.connection import distributed_package
from ooc_chol.cluster.jobs import ClusterRun
from ooc_chol.cluster.making import make_block
from ooc_chol.errors import OocCholError, TierError
from ooc_chol.process.address_space import guarded_imports
from ooc_chol.tasks.windows import Window

T = TypeVar("T")
#: Seconds between two words of a task on how far it is.
TELL_SECONDS = 1.0


@dataclass(frozen=True)
class Verdict:
    """Result of a task that ends the run: a value and no exception, so that Dask neither tries again nor logs a failure."""

    error: OocCholError


def kept(value: T) -> T:
    """Let Dask keep a value as a task's result, which it can make again wherever the worker that has it is lost."""
    return value


def packed(value: object) -> bytes:
    """A value as bytes, which only workers open: the scheduler, which reads what tasks are given, may lack its modules."""
    data: bytes = distributed_package().protocol.pickle.dumps(value)
    return data


def unpacked(data: bytes) -> Any:
    """Let Dask keep the value of :func:`packed`, as :func:`kept` does."""
    return distributed_package().protocol.pickle.loads(data)


def block_task(
    run: ClusterRun,
    window: Window,
    given: Sequence[LBlock | Verdict],
    a: NDArray[Any] | None,
    diagonal: NDArray[Any] | None,
    topic: str,
    coming: Window | None = None,
) -> LBlock | Verdict:
    """Make the tiles of a window; errors of reading and writing are raised, for Dask to try again."""
    blocks: list[LBlock] = []
    for each in given:
        if isinstance(each, Verdict):
            return each
        blocks.append(each)
    began = time.time()
    try:
        block = make_block(run, window, blocks, a, diagonal, _Words(topic, window).report, coming)
    except TierError:
        raise
    except OocCholError as error:
        return Verdict(error)
    _tell(topic, window, block, began)
    return block


class _Words:
    """Words of a long task to the client, every second."""

    def __init__(self, topic: str, window: Window) -> None:
        self._topic, self._window, self._due = topic, window, TELL_SECONDS

    def report(self, done: int, total: int, seconds: float) -> None:
        """Tell how many flops are done, where a second has passed."""
        if seconds >= self._due:
            self._due = seconds + TELL_SECONDS
            _log(self._topic, self._window, {"share": done / total if total else 0.0})


def _tell(topic: str, window: Window, block: LBlock, began: float) -> None:
    """Send the client, through the scheduler, what the task did."""
    told = {
        "began": began,
        "ended": time.time(),
        "seconds": block.seconds,
        "nbytes": block.nbytes,
        "links": list(block.link_bytes),
        "read": block.read_bytes,
        "peak": peak_resident_bytes(),
        "was_there": block.was_there,
    }
    _log(topic, window, told)


def _log(topic: str, window: Window, told: dict[str, Any]) -> None:
    with guarded_imports(blas=False):
        from distributed import get_worker

    get_worker().log_event(topic, {"row": window.rows.start, "column": window.columns.start, **told})


def peak_resident_bytes() -> int:
    """Most bytes of memory that this process has had; 0 where the system does not tell."""
    try:
        with open(f"/proc/{os.getpid()}/status") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0
