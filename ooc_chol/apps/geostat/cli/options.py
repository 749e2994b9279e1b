"""Options that several commands share, and how their words are read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.cli.files import add_force, store_file
from ooc_chol.apps.geostat.factorization import FactorSettings


def add_settings(parser: argparse._ActionsContainer, *, judged: str | None = None) -> None:
    """Add the options of a factorization, and ``--force``; :func:`factor_settings` reads them.

    ``--dts`` is ExaGeoStat's word for the order of a tile; ``judged`` tells what becomes of a threshold.
    """
    more = {} if judged is None else {"precision_threshold": judged}
    oc.FactorOptions.add_arguments(parser, aliases={"tile_size": ["--dts"]}, more=more, without=["dtype"])
    parser.add_argument(
        "--store",
        type=Path,
        metavar="PATH",
        help="keep factors in this new file, or in a file in this folder, while they are needed",
    )
    add_force(parser)
    tb.add_words(parser, ["cluster"])


def add_at(parser: argparse._ActionsContainer) -> None:
    """Add ``--at``, the time or variable that a grid is for."""
    parser.add_argument("--at", type=float, metavar="VALUE", help="time, or number of the variable, that the grid is for")


def factor_settings(options: argparse.Namespace) -> FactorSettings:
    """Settings of the factorizations that the options ask for."""
    client = getattr(options, "client", None)
    return FactorSettings.from_arguments(options, store=store_file(options), replace=options.force, client=client)


def seed(text: str) -> int:
    """A seed of random numbers."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return found


def column_names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas or, as ExaGeoStat writes them, colons between."""
    try:
        return tuple(float(word) for word in re.split("[,:]", text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas between") from None
