"""``ooc-chol``: plan, factor, list devices, measure rates, and the applications' own commands."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.commands import add_commands
from ooc_chol.bench import commands as bench_commands
from ooc_chol.config import parse_devices
from ooc_chol.dense.rates.stored import REMEDY, rates_problem
from ooc_chol.dense.stores.header import FACTOR_FILES
from ooc_chol.precision.tile_formats import SVG_MARK
from ooc_chol.signals import ENDINGS, SignalInterrupt, signals_as_interrupts
from ooc_chol.tracing.records import TRACE_FILES

#: The option by which a user asks for files to be replaced.
FORCE = "--force"

_REPORT_FORMAT = "ooc-chol factor report"

#: Files that a report or a picture may replace unasked.
_REPORT_FILES = oc.FileKind("report of ooc-chol factor", f'{{\n "format": "{_REPORT_FORMAT}"'.encode())
_PICTURE_FILES = oc.FileKind("picture of ooc-chol plan", SVG_MARK.encode(), anywhere=True)

#: Errors that are the user's to mend: shown as one line, exit status 2.
EXPECTED = (oc.OocCholError, ValueError, TypeError, OSError, NotImplementedError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    SIGTERM and SIGHUP end a command as Ctrl-C does, so that files that are not complete are removed.
    """
    try:
        with signals_as_interrupts(), _own_warnings_as_lines():
            options = _parser().parse_args(arguments)
            status: int | None = options.run(options)
    except KeyboardInterrupt as interrupt:
        number = interrupt.number if isinstance(interrupt, SignalInterrupt) else signal.SIGINT
        print(f"ooc-chol: {ENDINGS[number]}", file=sys.stderr)
        return 128 + number
    except EXPECTED as error:
        print(f"ooc-chol: {error}", file=sys.stderr)
        return 2
    return status or 0


@contextmanager
def _own_warnings_as_lines() -> Iterator[None]:
    """Show warnings of this package as a line each, without the line of code that they came from."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, oc.PrecisionWarning | oc.RatesWarning):
                print(f"ooc-chol: warning: {message}", file=sys.stderr)
            else:
                others(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]  # place: file, line, stream and text
        yield


def _parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ooc-chol", description="Out-of-core Cholesky factorization that plans, executes and explains."
    )
    parser.add_argument("--version", action="version", version=f"ooc_chol {oc.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_plan(commands)
    _add_factor(commands)
    devices = commands.add_parser("devices", help="list the devices and their memory")
    devices.set_defaults(run=_devices)
    bench_commands.add_commands(commands)
    add_commands(commands)
    return parser


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plan = commands.add_parser("plan", help="say what a factorization would move, need and take; runs nothing")
    matrix = plan.add_mutually_exclusive_group(required=True)
    matrix.add_argument("--n", type=int, help="order of a float64 matrix")
    matrix.add_argument("--matrix", type=Path, help="a .npy file")
    plan.add_argument("--store", type=Path, help="plan for L in this file instead of in memory")
    plan.add_argument("--json", action="store_true", help="print the figures as JSON")
    plan.add_argument("--picture", type=Path, help="draw the formats of all tiles as an SVG file")
    plan.add_argument(FORCE, action="store_true", help="replace whatever file the picture has the name of")
    _add_factor_options(plan)
    plan.set_defaults(run=_plan)


def _add_factor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    factor = commands.add_parser("factor", help="factor a .npy file into a file that ooc_chol.load opens")
    factor.add_argument(
        "matrix", type=Path, help="a .npy file with a symmetric positive definite matrix; only its lower triangle is read"
    )
    factor.add_argument("--store", type=Path, required=True, help="file for L")
    factor.add_argument("--trace", type=Path, help="write a Perfetto trace (.pftrace) and print its summary")
    factor.add_argument("--report", type=Path, help="write the report's figures as JSON")
    factor.add_argument(FORCE, action="store_true", help="replace files that are not of their kind, too, but never the matrix")
    factor.add_argument("--check", action="store_true", help="print the residual of 200 sampled sub-blocks")
    factor.add_argument(
        "--strict",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="factor again in wider formats until the error is certified to be within --precision-threshold (default: yes)",
    )
    factor.add_argument("--quiet", action="store_true", help="no progress bar")
    _add_factor_options(factor)
    factor.set_defaults(run=_factor)


def _add_factor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tile-size", type=int, help="order of a tile (default: chosen by size and budget)")
    parser.add_argument("--devices", help="device names with commas between, or a count (default: host:0)")
    parser.add_argument(
        "--memory-budget", help="memory per device, such as '256 MiB' or '80 GB' (default: up to half of what is free)"
    )
    parser.add_argument("--policy", default="planned", help="'planned' (default), 'sync', 'async', 'v1', 'v2' or 'v3'")
    parser.add_argument("--objective", default="seconds", help="'seconds' (default) or 'bytes'")
    parser.add_argument(
        "--precision-threshold",
        type=float,
        metavar="SHARE",
        help="mixed precision: most error of the factor, relative to the Frobenius norm, such as 1e-6 (default: FP64)",
    )
    parser.add_argument(
        "--precision-rule", default="unit-roundoff", help="'unit-roundoff' (default), or 'paper' for machine epsilon"
    )


def _plan(options: argparse.Namespace) -> None:
    picture = oc.Output("--picture", options.picture, _PICTURE_FILES)
    oc.check_outputs([picture], [("--matrix", options.matrix)], replace=options.force, ask=FORCE)
    if options.picture is not None and options.picture.suffix.lower() != ".svg":
        raise ValueError(f"{options.picture}: pictures of a plan are written as .svg")
    plan = oc.plan(
        options.n if options.matrix is None else options.matrix,
        tile_size=options.tile_size,
        devices=parse_devices(options.devices),
        memory_budget=options.memory_budget,
        policy=options.policy,
        objective=options.objective,
        precision_threshold=options.precision_threshold,
        precision_rule=options.precision_rule,
        store=options.store,
    )
    if options.picture is not None:
        if plan.precision is None:
            raise ValueError("--picture draws the formats of tiles in mixed precision: give --precision-threshold, too")
        with oc.output_file(options.picture, kind=_PICTURE_FILES, replace=options.force, ask=FORCE) as part:
            part.write_text(plan.precision.svg(), encoding="utf-8")
    print(json.dumps(plan.to_dict(), indent=1) if options.json else plan)


def _factor(options: argparse.Namespace) -> None:
    outputs = [
        oc.Output("--store", options.store, FACTOR_FILES),
        oc.Output("--trace", options.trace, TRACE_FILES),
        oc.Output("--report", options.report, _REPORT_FILES),
    ]
    oc.check_outputs(outputs, [("MATRIX", options.matrix)], replace=options.force, ask=FORCE)
    for path in filter(None, (options.report, options.trace)):
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")
    factor = oc.cholesky(
        options.matrix,
        tile_size=options.tile_size,
        devices=parse_devices(options.devices),
        memory_budget=options.memory_budget,
        policy=options.policy,
        objective=options.objective,
        precision_threshold=options.precision_threshold,
        precision_rule=options.precision_rule,
        strict=options.strict,
        store=options.store,
        replace_store=options.force,
        progress=not options.quiet,
        trace=options.trace is not None,
    )
    with factor:
        print(factor.report)
        print(f"  logdet     {factor.logdet():.15g}")
        if options.report is not None:
            content = {"format": _REPORT_FORMAT, **factor.report.to_dict()}
            with oc.output_file(options.report, kind=_REPORT_FILES, replace=options.force, ask=FORCE) as part:
                part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        if options.trace is not None:
            assert factor.trace is not None
            print(factor.trace.summary())
            print(f"trace in {factor.trace.save(options.trace, replace=options.force)}; open it at ui.perfetto.dev")
        if options.check:  # last, as it reads A and L again, which may fail
            print(f"  residual   {factor.residual(options.matrix)}")
    print(f"factor in {options.store}; open it with ooc_chol.load")


def _devices(options: argparse.Namespace) -> None:
    print(oc.devices())
    if (problem := rates_problem()) is not None:
        print(f"{'rates':<8} {problem}: they are ignored; {REMEDY}")
