"""Products of a caller's operator, recorded one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

from numpy.typing import NDArray

from ooc_chol.tracing.records import StreamRole, TraceRecord
from ooc_chol.tracing.trace import Trace

_ROLE = StreamRole(0, True)


@final
class ProductTrace:
    """Records of products on the host, which devices have by their own clocks."""

    def __init__(self) -> None:
        self._records: list[TraceRecord] = []

    def watched(self, product: Callable[[NDArray[Any]], NDArray[Any]], name: str = "A") -> Callable[[NDArray[Any]], NDArray[Any]]:
        """The same product, recorded."""

        def run(x: NDArray[Any]) -> NDArray[Any]:
            began = time.perf_counter_ns()
            y = product(x)
            columns, label = x.shape[1] if x.ndim == 2 else 1, f"{name} X"
            span = began, time.perf_counter_ns()
            facts = len(self._records), "host:0", "compute", "compute", f"{label}, {columns} columns", label, x.dtype.name
            self._records.append(TraceRecord(*facts, 0, "", 0, *span, (), 0, _ROLE, "product"))
            return y

        return run

    def trace(self, **metadata: str | int | float) -> Trace:
        """All products until now."""
        return Trace(tuple(self._records), metadata=metadata)
