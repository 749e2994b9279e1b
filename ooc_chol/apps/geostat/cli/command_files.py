"""Which files a command reads and writes: checked before anything is computed, and ``--force``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import ooc_chol as oc
from ooc_chol.apps.geostat.data.geopackage import layer_of

#: How a user asks for files to be replaced.
FORCE = "--force"


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Of a command that writes files, or that keeps factors in one.
    """
    parser.add_argument(
        FORCE, action="store_true", help="replace files that exist already; files that the command reads are never replaced"
    )


def check_files(
    options: argparse.Namespace,
    inputs: Iterable[tuple[str, str | os.PathLike[str] | None]],
    outputs: Sequence[oc.Output] = (),
) -> None:
    """Refuse outputs that are inputs, or one another, or exist and are not ours, before anything is computed.

    Parameters
    ----------
    options : argparse.Namespace
        Parsed options, with ``force`` and, where the command has it, ``store``.
    inputs : iterable of (str, path or None)
        Files that are read, by what the user calls them. Of ``FILE.gpkg:LAYER`` it is the file.
    outputs : sequence of Output
        Files that are written beside the store.

    Raises
    ------
    OutputError
        As :func:`ooc_chol.check_outputs`.
    FileNotFoundError
        The folder of an output does not exist.
    """
    files = [(name, None if path is None else layer_of(path)[0]) for name, path in inputs]
    oc.check_outputs([oc.Output("--store", store_file(options)), *outputs], files, replace=options.force, ask=FORCE)
    for path in [Path(output.path) for output in outputs if output.path is not None]:
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into")


def store_file(options: argparse.Namespace) -> Path | None:
    """The file that factors are kept in; a folder given as ``--store`` gets a file of its own.

    Parameters
    ----------
    options : argparse.Namespace
        Parsed options.

    Returns
    -------
    Path or None
        None where factors are kept in memory.
    """
    store: Path | None = getattr(options, "store", None)  # plot has none
    return store / "geostat-factor.ooc" if store is not None and store.is_dir() else store
