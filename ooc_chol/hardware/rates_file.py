"""The file of measured rates, whoever measures: a cache, so that one which cannot be used costs its predictions and no more."""

from __future__ import annotations

import json
import math
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from ooc_chol.config import cache_directory
from ooc_chol.errors import RatesWarning, TierError
from ooc_chol.files.inputs import input_bytes, parse_json
from ooc_chol.files.outputs import output_file

#: Figures of one machine at one tile order, by name, and those of all machines: by machine and tile order.
Figures: TypeAlias = dict[str, Any]
Everything: TypeAlias = dict[str, dict[str, Figures]]

#: What stands in place of a machine before the rates of passes over sparse matrices, which are by machine instead of tile order.
PASSES = "passes"

#: Name of the file.
_NAME = "rates.json"
#: No flops, bytes or entries per second, and no seconds between two operations, lie outside.
_LEAST, _MOST = 1e-15, 1e30
#: Bytes of a file of rates: those of a machine at one tile order take one or two thousand.
_MOST_BYTES = 16 << 20


def rates_path() -> Path:
    """File that holds the measured rates of this user's machines; ``TierError`` where there is no folder for it."""
    folder = cache_directory()
    if folder is None:
        raise TierError("measured rates have no folder, as this user has no home: OOC_CHOL_CACHE names one")
    return folder / _NAME


def read_rates() -> Everything:
    """Everything measured so far; empty without a file, or a folder for it."""
    if (folder := cache_directory()) is None:
        return {}
    try:
        loaded = parse_json(input_bytes(folder / _NAME, _MOST_BYTES).decode())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{rates_path()} cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # neither UTF-8 nor JSON, or JSON that no plain reader follows
        raise damaged(str(error)) from error
    machines = list(loaded.values()) if isinstance(loaded, dict) else [None]
    if not all(isinstance(sizes, dict) and all(isinstance(figures, dict) for figures in sizes.values()) for sizes in machines):
        raise damaged("it does not hold figures by machine and tile size")
    return dict(loaded)


def figure(figures: Figures, name: str) -> float:
    """A figure that can have been measured; whole numbers stay whole."""
    value = figures[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not _LEAST < value < _MOST or math.isnan(value):
        raise ValueError(f"rate {name} is {value!r:.40}, which nothing has")
    return value


def kept_rates() -> Everything:
    """As :func:`read_rates`, but empty for a file that cannot be used, which is replaced then."""
    try:
        return read_rates()
    except ValueError:
        return {}


def usable_rates() -> Everything:
    """As :func:`read_rates`, but empty, with a warning, for a file that cannot be used."""
    try:
        return read_rates()
    except ValueError as error:
        warn_of(error)
        return {}


def warn_of(error: ValueError) -> None:
    """Say, once in a process, that a file of rates is ignored and why."""
    _warn_once(f"{error}: it is ignored, and plans predict no seconds; {REMEDY}")


@cache
def _warn_once(text: str) -> None:
    warnings.warn(text, RatesWarning, stacklevel=2)


#: What mends a file that cannot be used.
REMEDY = "`ooc-chol bench rates` measures anew and replaces it"


def check_writable() -> None:
    """Make the folder of the file, and see that the file can be replaced."""
    path = rates_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TierError(
            f"{path.parent} cannot be made ({error.strerror}): rates are stored there; OOC_CHOL_CACHE names another folder"
        ) from error
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: remove it, so that rates can be stored in a file of that name")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} cannot be written: rates are stored there; OOC_CHOL_CACHE names another folder")


def write_rates(everything: Everything) -> None:
    """Replace the file of rates in one step."""
    with output_file(rates_path(), replace=True) as part:
        part.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def damaged(why: str) -> ValueError:
    """Describe a file of rates that cannot be used."""
    return ValueError(f"{rates_path()} is damaged ({why:.200})")
