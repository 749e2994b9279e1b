"""The trace of a run: its records, what was predicted for it, and what can be made of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from ooc_chol.prints import one_line
from ooc_chol.tracing.records import TraceRecord
from ooc_chol.tracing.summary import summarize


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
            File to write, by custom with the suffix ``.pftrace``; with ``.pftrace.gz`` it is compressed, and Perfetto opens it as
            it is. A trace that is there is replaced once the new one is complete.
        replace : bool
            Whether a file that is no trace may be replaced, too.

        Returns
        -------
        Path
            Name of the file that was written.

        Raises
        ------
        OSError
            The file cannot be written; as ``OutputError``, it exists and is no trace.
        ValueError
            Two records have one step, one ends before it starts, or one waited for a step that has no record; or the name
            promises another format, such as ``.json``.

        Notes
        -----
        About 250 bytes and 40 microseconds a record. The same trace gives the same bytes.
        """
        # Imported here: protobuf takes longer to import than all the rest of this package, and few runs save a trace.
        from ooc_chol.tracing.perfetto_export import export

        return export(self.records, self.predicted, self.metadata, Path(path), passes=self.passes, replace=replace)

    def summary(self) -> str:
        """Say where the time went, in a text that fits a screen.

        Returns
        -------
        str
            Times, rates, bytes per link, exposed copy and who waited for whom, measured beside predicted.

        Raises
        ------
        ValueError
            Two records have one step, one ends before it starts, or one waited for a step that has no record.
        """
        return summarize(self.records, self.predicted, self.metadata)

    def __repr__(self) -> str:
        facts = {name: self.metadata[name] for name in ("n", "tile_size", "policy", "devices") if name in self.metadata}
        return one_line(self, {**facts, "records": self.records, "predicted": self.predicted, "passes": self.passes})

    def __str__(self) -> str:
        return f"{self!r}\nsummary() says where the time went; save('run.pftrace') writes a file for ui.perfetto.dev"
