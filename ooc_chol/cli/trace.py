"""``ooc-chol trace``: look at the trace of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

import ooc_chol as oc
from ooc_chol.tracing.records import read_trace_file
from ooc_chol.tracing.viewer import show


def add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``trace`` to its parser."""
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    view = commands.add_parser("view", help="open a trace in the Perfetto viewer; nothing is uploaded")
    view.add_argument("file", type=Path, metavar="FILE", help="a trace, compressed with gzip or not")
    view.add_argument("--no-browser", action="store_true", help="print the link only")
    view.set_defaults(run=_view)
    summary = commands.add_parser("summary", help="print where the time of a run went, measured beside predicted")
    summary.add_argument("file", type=Path, metavar="FILE", help="a trace, compressed with gzip or not")
    summary.set_defaults(run=_summary)


def _view(arguments: argparse.Namespace) -> None:
    file: Path = arguments.file
    show(read_trace_file(file), file.name, browser=not arguments.no_browser)


def _summary(arguments: argparse.Namespace) -> None:
    print(oc.Trace.load(arguments.file).summary())
