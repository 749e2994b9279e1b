"""Which files a command reads and writes: checked before anything is computed, and ``--force``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.geopackage import layer_of
from ooc_chol.apps.geostat.data.layers import layer_files
from ooc_chol.apps.geostat.data.spec import DataSpec
from ooc_chol.apps.geostat.factorization import SCRATCH

#: How a user asks for files to be replaced.
FORCE = "--force"


def add_force(parser: argparse._ActionsContainer) -> None:
    """Add ``--force``."""
    parser.add_argument(
        FORCE, action="store_true", help="replace files that exist already; files that the command reads are never replaced"
    )


def check_files(
    options: argparse.Namespace, inputs: Iterable[tuple[str, str | os.PathLike[str] | None]], outputs: Sequence[tb.Output] = ()
) -> None:
    """Refuse outputs that are inputs, or one another, or exist and are not ours, before anything is computed."""
    files = [(name, None if path is None else layer_of(path)[0]) for name, path in inputs]
    store = tb.Output("--store", store_file(options), tb.FACTOR_FILES, why=SCRATCH)
    tb.check_outputs([store, *outputs], files, replace=options.force, ask=FORCE)


def layer_outputs(path: Path | None, names: tuple[str, ...]) -> list[tb.Output]:
    """Outputs of ``--output`` for columns of these names: one file, or one for each column."""
    return [] if path is None else [tb.Output("--output", file) for file in layer_files(path, names)]


def file_of(spec: DataSpec) -> str | None:
    """The file that data come from; None for the built-in example."""
    return None if spec.kind == "example" else spec.source


def store_file(options: argparse.Namespace) -> Path | None:
    """The file that factors are kept in; a folder given as ``--store`` gets a file of its own."""
    store: Path | None = getattr(options, "store", None)  # plot has none
    return store / "geostat-factor.ooc" if store is not None and store.is_dir() else store
