"""Options that several commands share, and how their words are read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ooc_chol.apps.geostat.cli.files import add_force, store_file
from ooc_chol.apps.geostat.factorization import FactorSettings


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options of a factorization, and ``--force``; :func:`factor_settings` reads them."""
    parser.add_argument(
        "--memory-budget", metavar="BYTES", help="memory per device, such as '256 MiB' (default: up to half of what is free)"
    )
    parser.add_argument(
        "--tile-size",
        "--dts",
        type=int,
        metavar="NB",
        help="order of a tile (default: chosen by size and budget); --dts in ExaGeoStat",
    )
    parser.add_argument("--devices", type=devices, help="device names with commas between, or a count")
    parser.add_argument(
        "--store",
        type=Path,
        metavar="PATH",
        help="keep factors in this new file, or in a file in this folder, while they are needed",
    )
    add_force(parser)


def add_at(parser: argparse.ArgumentParser) -> None:
    """Add ``--at``, the time or variable that a grid is for."""
    parser.add_argument("--at", type=float, metavar="VALUE", help="time, or number of the variable, that the grid is for")


def factor_settings(options: argparse.Namespace) -> FactorSettings:
    """Settings of the factorizations that the options ask for."""
    return FactorSettings(
        tile_size=options.tile_size,
        devices=options.devices,
        memory_budget=options.memory_budget,
        store=store_file(options),
        replace_store=options.force,
        precision_threshold=getattr(options, "precision_threshold", None),  # fit has it
    )


def column_names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def devices(text: str) -> str | int | tuple[str, ...]:
    """Device names with commas between, or a count, as ``ooc_chol.cholesky`` takes them."""
    return int(text) if text.isdecimal() else column_names(text)


def grid_size(text: str) -> tuple[int, int]:
    """Points along two axes, ``NX,NY``."""
    columns, _, rows = text.partition(",")
    if not (columns.strip().isdecimal() and rows.strip().isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NX,NY")
    return int(columns), int(rows)


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas or, as ExaGeoStat writes them, colons between."""
    try:
        return tuple(float(word) for word in re.split("[,:]", text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers with commas between") from None
