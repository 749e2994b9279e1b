"""The trace of a run: its records, what was predicted for it, and what can be made of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from pathlib import Path

from ooc_chol.display.prints import one_line
from ooc_chol.files.inputs import check_name
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
        Facts of the run: ``n``, ``tile_size``, ``policy`` and so on, in the order to be shown.
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

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """Read a trace that :meth:`save` wrote, compressed with gzip or not.

        Parameters
        ----------
        path : str or PathLike
            The file.

        Returns
        -------
        Trace
            The same operations, with times from the start of the trace on. Gaps of rounding aside, what is made of it is what
            was made of the one that was saved.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            It is no trace of this package, or a damaged one.

        Notes
        -----
        Traces of earlier versions are read too. They do not tell which streams count as computing: those that ran a kernel do.
        """
        from ooc_chol.tracing.perfetto_import import read  # see save

        contents = read(Path(check_name(path)))
        return cls(contents.records, contents.predicted, contents.metadata, contents.passes)

    def save(self, path: str | PathLike[str], *, replace: bool = False) -> Path:
        """Write the trace as native Perfetto protobuf, to be opened at ui.perfetto.dev.

        Parameters
        ----------
        path : str or PathLike
            File to write, by custom with the suffix ``.pftrace``; with ``.pftrace.gz`` it is compressed, and Perfetto opens it as
            it is. A trace that is there is replaced once the new one is complete.
        replace : bool
            True if a file that is no trace may be replaced, too.

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
        About 150 bytes and 20 microseconds a record. The same trace gives the same bytes.
        """
        # Imported here: protobuf takes longer to import than all the rest of this package, and few runs save a trace.
        from ooc_chol.tracing.perfetto_export import export

        return export(self.records, self.predicted, self.metadata, Path(check_name(path)), passes=self.passes, replace=replace)

    def show(self, *, browser: bool = True) -> None:
        """Open the trace in the Perfetto viewer, with its tracks open; return once the viewer has it.

        Parameters
        ----------
        browser : bool
            Open a browser, where there is one. The link is printed in any case.

        Raises
        ------
        OSError
            Port 9001 of this machine is taken: the viewer reads from no other.
        ValueError
            As for :meth:`save`.

        Notes
        -----
        Nothing is uploaded: a page of ui.perfetto.dev reads the trace inside the browser, from a server of this process that
        listens on the loopback address only, under a path that nobody can foresee, and ends with this call. Ctrl-C ends the
        call earlier. From another machine, ``ssh -L 9001:127.0.0.1:9001`` brings the port to where the browser is.
        """
        from ooc_chol.tracing.perfetto_export import write_packets  # see save
        from ooc_chol.tracing.viewer import show

        file = BytesIO()
        write_packets(file, self.records, self.predicted, passes=self.passes, metadata=self.metadata)
        show(file.getvalue(), "run.pftrace", browser=browser)

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
