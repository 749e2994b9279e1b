"""Options that several geostat commands share, and a parser that does not mind how an option is spelled."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ooc_chol.apps.geostat.cli.command_files import add_force, store_file
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.errors import STEP_ERRORS
from ooc_chol.apps.geostat.factorization import FactorSettings


class SpellingParser(argparse.ArgumentParser):
    """A parser for which ``--Tile_Size``, ``--tilesize`` and ``--tile-size`` are one option; unknown ones are refused as ever.

    ExaGeoStat's options are read like this, and its users type them so.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._spellings: dict[str, str] = {}
        super().__init__(*args, **kwargs)

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Add an argument as ``argparse`` does, and remember the spellings of its long options."""
        action = super().add_argument(*args, **kwargs)
        for option in action.option_strings:
            if option.startswith("--"):
                self._spellings.setdefault(bare(option), option)
        return action

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse as ``argparse`` does, after known options are spelled as they were added."""
        words = sys.argv[1:] if args is None else list(args)
        end = words.index("--") if "--" in words else len(words)
        return super().parse_known_args([*_joined(map(self._respelled, words[:end])), *words[end:]], namespace)

    def _respelled(self, word: str) -> str:
        """A long option in its own spelling; any other word as it is."""
        name, equals, value = word.partition("=")
        return f"{self._spellings.get(bare(name), name)}{equals}{value}" if name.startswith("--") else word


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options of a factorization."""
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
    """How to factor."""
    return FactorSettings(
        tile_size=options.tile_size,
        devices=options.devices,
        memory_budget=options.memory_budget,
        store=store_file(options),
        replace_store=options.force,
        precision_threshold=getattr(options, "precision_threshold", None),  # fit has it
    )


def tried(what: str, step: Callable[[], None]) -> bool:
    """Do a step after a long computation; if it fails, that is said, and what was computed and the other steps stay."""
    try:
        step()
    except STEP_ERRORS as error:
        print(f"ooc-chol: no {what}: {error}", file=sys.stderr)
        return False
    return True


def note(text: str) -> None:
    """Say something beside the results."""
    print(f"note: {text}", file=sys.stderr)


def column_names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def devices(text: str) -> str | int | tuple[str, ...]:
    """Device names with commas between, or a count.

    Parameters
    ----------
    text : str
        What was typed.

    Returns
    -------
    int or tuple of str
        As ``ooc_chol.cholesky`` takes them.
    """
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


def theta(text: str) -> Matern:
    """A Matérn model from ``variance,range,smoothness[,nugget]``."""
    values = numbers(text)
    if len(values) not in (3, 4):
        raise argparse.ArgumentTypeError(f"{text!r} is not variance,range,smoothness[,nugget]")
    try:
        return Matern(*values)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _joined(words: Iterable[str]) -> list[str]:
    """Words with ``--box -1,0,1,2`` made ``--box=-1,0,1,2``: ``argparse`` takes what begins with a minus for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-[\d.][^=]*[,:]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def bare(text: str) -> str:
    """A name without case, dashes and underscores."""
    return re.sub("[-_]", "", text.lower())
