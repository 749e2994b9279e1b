"""``ooc-chol trace``: look at the trace of a run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

import ooc_chol as oc
from ooc_chol.cli.parsers import examples
from ooc_chol.tracing.analysis import computing_ns, exposed_copy_seconds, link_totals, stream_times
from ooc_chol.tracing.records import read_trace_file
from ooc_chol.tracing.viewer import show


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``trace`` to its parser."""
    parser.epilog = examples("ooc-chol trace view run.pftrace.gz", "ooc-chol trace summary run.pftrace.gz")
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    view = commands.add_parser("view", help="open a trace in the Perfetto viewer; nothing is uploaded")
    view.epilog = examples("ooc-chol trace view run.pftrace.gz", "ooc-chol trace view run.pftrace.gz --no-browser")
    view.add_argument("file", type=Path, metavar="FILE", help="a trace, compressed with gzip or not")
    view.add_argument("--no-browser", action="store_true", help="print the link only")
    view.set_defaults(run=_view)
    summary = commands.add_parser("summary", help="print where the time of a run went, measured beside predicted")
    summary.epilog = examples("ooc-chol trace summary run.pftrace.gz", "ooc-chol trace summary run.pftrace.gz --json --quiet")
    summary.add_argument("file", type=Path, metavar="FILE", help="a trace, compressed with gzip or not")
    summary.set_defaults(run=_summary)


def _view(arguments: argparse.Namespace) -> None:
    file: Path = arguments.file
    arguments.answer = {"file": file}
    show(read_trace_file(file), file.name, browser=not arguments.no_browser)


def _summary(arguments: argparse.Namespace) -> None:
    trace = oc.Trace.load(arguments.file)
    streams = stream_times(trace.records)
    arguments.answer = {
        "run": dict(trace.metadata),
        "computing_ns": computing_ns(trace.records),
        "exposed_copy_seconds": exposed_copy_seconds(trace.records),
        "streams": [{"device": device, "stream": stream, **asdict(times)} for (device, stream), times in streams.items()],
        "links": {name: asdict(totals) for name, totals in link_totals(trace.records).items()},
    }
    print(trace.summary())
