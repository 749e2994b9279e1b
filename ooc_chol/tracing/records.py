"""One record for each operation of a run, and the trace that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ooc_chol.outputs import FileKind

#: Files that a new trace may replace: the first packet of every one numbers the categories of records, from ``fetch`` on.
TRACE_FILES = FileKind("trace of ooc_chol", b"\x08\x01\x12\x05fetch", anywhere=True)


class TraceRecord(NamedTuple):
    """One operation of one stream, measured or predicted.

    Parameters
    ----------
    step : int
        Index of the step in the program of its device; unique on that device.
    device, stream : str
        Such as ``"host:0"`` and ``"copy-in"``, ``"compute"`` or ``"copy-out"``. A stream runs one operation at a time.
    kind : str
        ``"fetch"``, ``"generate"``, ``"compute"``, ``"write"`` or ``"pull"``.
    label : str
        What a person reads, such as ``"GEMM (3, 1) k=0"`` or ``"fetch (3, 1)"``.
    block : str
        The block that the operation reads or makes, such as ``"L(3, 1)v2"``.
    fmt : str
        Storage format of the block, such as ``"fp64"``.
    nbytes : int
        Bytes that crossed a link; 0 for ``"compute"`` and ``"generate"``.
    link : str
        Such as ``"source->host:0"``, ``"store->host:0"`` or ``"host:0->store"``; empty when no bytes crossed a link.
    flops : int
        Flops executed.
    start_ns, end_ns : int
        Nanoseconds of ``time.perf_counter_ns``; predicted records start at 0.
    after : tuple of (str, int)
        ``(device, step)`` of the operations on other streams or devices that this one had to wait for.
    resident_bytes : int
        Bytes resident on the device after the step.
    """

    step: int
    device: str
    stream: str
    kind: str
    label: str
    block: str
    fmt: str
    nbytes: int
    link: str
    flops: int
    start_ns: int
    end_ns: int
    after: tuple[tuple[str, int], ...]
    resident_bytes: int


@dataclass(frozen=True)
class Trace:
    """Every operation of a run, beside what was predicted for it.

    Parameters
    ----------
    records : tuple of TraceRecord
        The measured operations, in any order.
    predicted : tuple of TraceRecord, optional
        The same operations at predicted times; empty when no rates of this machine are known.
    metadata : mapping from str to str, int or float, optional
        What the run was: ``n``, ``tile_size``, ``policy`` and so on, in the order to be shown.
    passes : tuple of TraceRecord, optional
        Operations before and after the run on the same clock, such as solves; their steps are numbered apart. :meth:`save` draws
        them in groups of their own, and :meth:`summary` leaves them out.

    Notes
    -----
    Nothing is checked here, so that a flaw in a trace never costs the factor that was computed; :meth:`save` and :meth:`summary`
    raise ``ValueError`` for records that contradict each other.
    """

    records: tuple[TraceRecord, ...]
    predicted: tuple[TraceRecord, ...] = ()
    metadata: Mapping[str, str | int | float] = field(default_factory=dict)
    passes: tuple[TraceRecord, ...] = ()

    def save(self, path: str | PathLike[str], *, replace: bool = False) -> Path:
        """Write the trace as native Perfetto protobuf, to be opened at ui.perfetto.dev.

        Parameters
        ----------
        path : str or PathLike
            File to write, by custom with the suffix ``.pftrace``. A trace that is there is replaced once the new one is complete.
        replace : bool
            Replace any other file, too.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        OSError
            The file cannot be written; as ``OutputError``, it exists and is no trace.
        ValueError
            Two records have one step, one ends before it starts, or one waited for a step that has no record.

        Notes
        -----
        About 250 bytes and 40 microseconds a record. The same trace gives the same bytes.
        """
        # Imported here: protobuf takes longer to import than all the rest of this package, and few runs save a trace.
        from ooc_chol.tracing.perfetto_export import export

        return export(self, Path(path), replace=replace)

    def summary(self) -> str:
        """Where the time went, as a text that fits a screen.

        Returns
        -------
        str
            Times, rates, bytes per link, exposed copy and who waited for whom, measured beside predicted.

        Raises
        ------
        ValueError
            As for :meth:`save`.
        """
        from ooc_chol.tracing.summary import summarize

        return summarize(self)
