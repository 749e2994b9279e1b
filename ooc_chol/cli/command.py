"""The command line as a whole: which commands there are, how they end, and what is said of errors and warnings."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.calls.progress import Display
from ooc_chol.cli.answers import answered
from ooc_chol.cli.parsers import CommandParser, HelpFormatter, examples
from ooc_chol.cli.signals import ENDINGS, SignalInterrupt, signals_as_interrupts
from ooc_chol.display.suggestions import SuggestingParser

#: Errors that are the user's to mend: shown as one line, exit status 2.
EXPECTED = (oc.OocCholError, ValueError, TypeError, OSError, NotImplementedError)


def main(arguments: Sequence[str] | None = None, *, imported: Callable[[], None] | None = None) -> int:
    """Run the command line, and return its exit status.

    SIGTERM and SIGHUP end a command as Ctrl-C does, so that files that are not complete are removed, or kept as checkpoints. The
    status is 0, 1 where some of several cases failed or a file is damaged, 2 for errors that a user can mend, 128 and the number
    of a signal.
    """
    shown: Any = Display(sys.stderr)  # a standard error that is full, or closed, ends no command
    try:
        with redirect_stderr(shown):
            return _run(arguments, imported)
    finally:
        shown.flush()
        if shown.is_gone:
            sys.stderr = None  # Python would offer it the rest at its end, and end with 120


def _run(arguments: Sequence[str] | None, imported: Callable[[], None] | None) -> int:
    """Run the command line; the exit status."""
    names: Collection[str] = ()
    try:
        options = make_parser().parse_args(arguments)
        names = vars(options)
        if imported is not None:
            imported()
        with signals_as_interrupts(), _own_warnings_as_lines(names), answered(options):
            status: int | None = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if not _has_no_reader():
            return _told(error, names)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)  # what is left to print goes nowhere, and Python says nothing of it
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as interrupt:
        number = _signal_of(interrupt)
        print(f"ooc-chol: {_with_notes(ENDINGS[number], interrupt)}", file=sys.stderr)
        return 128 + number
    except EXPECTED as error:
        return _told(error, names)
    return status or 0


def _told(error: BaseException, names: Collection[str]) -> int:
    """Say what went wrong; the exit status."""
    print(f"ooc-chol: {tb.shell_words(_with_notes(_text_of(error), error), names)}", file=sys.stderr)
    return 2


def _has_no_reader() -> bool:
    """Tell whether whoever read standard output is gone, as ``head`` is after its lines."""
    poll = select.poll()
    poll.register(1, 0)
    return any(found & select.POLLERR for _, found in poll.poll(0))


def _signal_of(interrupt: KeyboardInterrupt) -> signal.Signals:
    """The signal behind an interrupt, or behind the one that it was made of."""
    for each in (interrupt, interrupt.__cause__):
        if isinstance(each, SignalInterrupt):
            return each.number
    return signal.SIGINT


def _text_of(error: BaseException) -> str:
    """Text of an error; of one of the system's about a file, in a sentence."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return str(error)
    name = error.filename
    if isinstance(error, FileNotFoundError):
        folder = Path(os.fsdecode(name)).parent
        return f"there is no file {name!r}" if folder.is_dir() else f"there is no file {name!r}, and no folder {str(folder)!r}"
    if isinstance(error, IsADirectoryError):
        return f"{name!r} is a folder; name a file"
    reason = error.strerror[:1].lower() + error.strerror[1:]
    return f"{name!r} cannot be opened: {reason}" if isinstance(error, PermissionError) else f"{name!r}: {reason}"


def _with_notes(text: str, error: BaseException) -> str:
    """Text of an error, and behind it the notes added on its way: where a checkpoint is, say."""
    return "; ".join([text, *getattr(error, "__notes__", ())])


class _Command(NamedTuple):
    """A command: its line in the list of all, and a function that imports what it needs and adds its arguments to a parser."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


def _plan(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.plan import add_arguments

    add_arguments(parser)


def _factor(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.factor import add_arguments

    add_arguments(parser)


def _trace(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.trace import add_commands

    add_commands(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.verify import add_arguments

    add_arguments(parser)


def _devices(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.devices import add_arguments

    add_arguments(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.report import add_arguments

    add_arguments(parser)


def _completion(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.completion import add_arguments

    add_arguments(parser, make_parser)


def _help(parser: argparse.ArgumentParser) -> None:
    parser.epilog = examples("ooc-chol help factor", "ooc-chol help geostat fit")
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="the command, and the one within it")
    parser.set_defaults(run=lambda options: _show_help(options.words), json=False, quiet=False)


def _show_help(words: Sequence[str]) -> None:
    """Print the help of the command that words name, and end; words that name none end as argparse does."""
    parser: argparse.ArgumentParser = make_parser()
    for word in words:
        if isinstance(parser, CommandParser):
            parser.complete()
        commands = next((each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
        if commands is None:
            parser.error(f"there is no command {word!r} within it")
        if word not in commands:
            break
        parser = commands[word]
    make_parser().parse_args([*words, "--help"])


def _sparse(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.sparse import add_commands

    add_commands(parser)


def _eigsh(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.eigen.eigsh import add_arguments

    add_arguments(parser)


def _svds(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.cli.eigen.svds import add_arguments

    add_arguments(parser)


def _bench(parser: argparse.ArgumentParser) -> None:
    from ooc_chol.bench.commands import add_commands

    add_commands(parser)


def _geostat(parser: argparse.ArgumentParser) -> None:
    with tb.guarded_imports():
        from ooc_chol.apps.geostat.cli.commands import add_commands

    add_commands(parser)


def _spectral(parser: argparse.ArgumentParser) -> None:
    with tb.guarded_imports():
        from ooc_chol.apps.spectral.cli.commands import add_commands

    add_commands(parser)


def _impute(parser: argparse.ArgumentParser) -> None:
    with tb.guarded_imports():
        from ooc_chol.apps.imputation.cli import add_commands

    add_commands(parser)


#: All commands. Benchmarks and applications take longer to import than the rest together: each does so when it is named.
_COMMANDS = {
    "plan": _Command("say what a factorization would move, need and take; runs nothing", _plan),
    "factor": _Command("factor a .npy file into a file that ooc_chol.load opens", _factor),
    "verify": _Command("read factor files, and say whether every byte is what was written", _verify),
    "sparse": _Command("pack sparse matrices larger than a device, and multiply with them", _sparse),
    "eigsh": _Command("find eigenpairs of symmetric sparse matrices, with their residuals", _eigsh),
    "svds": _Command("find the largest singular triplets of sparse matrices, with their residuals", _svds),
    "trace": _Command("look at the trace of a run: in the Perfetto viewer, or as a text", _trace),
    "devices": _Command("list the devices and their memory", _devices),
    "report": _Command("print what an issue needs: machine, versions and a plan, as text", _report),
    "bench": _Command("measure this machine, and this package on it", _bench),
    "geostat": _Command("fit a covariance by exact maximum likelihood, and predict (kriging)", _geostat),
    "spectral": _Command("cut graphs into parts, and images into segments", _spectral),
    "impute": _Command("fill in matrices, or entries, that are missing at the vertices of a graph", _impute),
    "help": _Command("show the help of a command", _help),
    "completion": _Command("print a script that completes commands and options in a shell", _completion),
}


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = SuggestingParser(
        prog="ooc-chol",
        description="Dense Cholesky factors, geostatistics, sparse products and eigenpairs, partitions of graphs, segments of "
        "images, and imputation, in memory or larger. In Python, ooc_chol.diff has sparse operations with gradients, too.",
        epilog=examples(
            "ooc-chol plan --n 160000 --memory-budget '80 GB'    # bytes, memory and seconds; runs nothing",
            "ooc-chol factor covariance.npy --store covariance.factor",
            "ooc-chol sparse multiply graph.mtx --columns 8 --times 3",
            "ooc-chol geostat fit soil.csv --x east --y north --value zinc --output zinc.json",
            "ooc-chol COMMAND --help    # every command has examples",
        ),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ooc_chol {oc.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=CommandParser)
    for name, command in _COMMANDS.items():
        commands.add_parser(name, help=command.help).when_named(command.add_arguments)
    return parser


@contextmanager
def _own_warnings_as_lines(names: Collection[str]) -> Iterator[None]:
    """Show warnings of this package as a line each, without the line of code that they came from."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            own = (
                oc.errors.AsymmetryWarning
                | oc.errors.BudgetWarning
                | oc.errors.ImputationWarning
                | oc.errors.InputWarning
                | oc.errors.PrecisionWarning
                | oc.errors.RatesWarning
            )
            if issubclass(category, own):
                print(f"ooc-chol: warning: {tb.shell_words(str(message), names)}", file=sys.stderr)
            else:
                others(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]  # place: file, line, stream and text
        yield
