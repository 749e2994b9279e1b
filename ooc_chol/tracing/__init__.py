"""Trace of a run, operation by operation: records, numbers, a text summary and a Perfetto trace."""

from __future__ import annotations

from ooc_chol.tracing.analysis import LinkTotals, StreamTimes, Wait, exposed_copy_seconds, link_totals, stream_times, waits
from ooc_chol.tracing.records import StreamRole, TraceRecord
from ooc_chol.tracing.trace import Trace

__all__ = [
    "LinkTotals",
    "StreamRole",
    "StreamTimes",
    "Trace",
    "TraceRecord",
    "Wait",
    "exposed_copy_seconds",
    "link_totals",
    "stream_times",
    "waits",
]
