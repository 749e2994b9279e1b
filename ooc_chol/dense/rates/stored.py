"""The file of measured rates: a cache, so that one which cannot be used costs its predictions and nothing else."""

from __future__ import annotations

import json
import math
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from ooc_chol.config import cache_directory
from ooc_chol.dense.programs.cost import Rates, RatesOrigin, ResidueRates
from ooc_chol.dense.rates.rows import RowRates
from ooc_chol.errors import RatesWarning
from ooc_chol.formats import TYPES
from ooc_chol.inputs import input_bytes, parse_json
from ooc_chol.outputs import output_file

#: Figures of one machine at one tile order, by name, and those of all machines: by machine and tile order.
Figures: TypeAlias = dict[str, Any]
Everything: TypeAlias = dict[str, dict[str, Figures]]

#: No flops, bytes or entries per second, and no seconds between two operations, lie outside.
_LEAST, _MOST = 1e-15, 1e30
#: Bytes of a file of rates: those of a machine at one tile order take one or two thousand.
_MOST_BYTES = 16 << 20
_KERNELS = ("potrf", "trsm", "syrk", "gemm", "launch", "generate")
#: Figures that older versions did not measure.
_LATER_KERNELS = ("invert", "trsm_float32", "gemm_float32")
#: What is measured of every other type, in the figures of this name, by the names of types.
TYPED_KERNELS, TYPES_FIGURES = ("potrf", "trsm", "syrk", "gemm", "generate"), "types"
#: Sources that cross no link to the device that computes.
_ON_DEVICE = ("function", "device-array")
#: What stands in place of a machine before the rates of disks, which are by file system instead of tile order.
DISKS = "file systems"
#: Rate of entries that are copied within a device, as a share of the check for NaN: that reads 8 bytes, a copy and it move 24.
COPIED_SHARE = 1 / 3


def rates_path() -> Path:
    """File that holds the measured rates of this user's machines."""
    return cache_directory() / "rates.json"


def read_rates() -> Everything:
    """Everything measured so far; empty without a file."""
    try:
        loaded = parse_json(input_bytes(rates_path(), _MOST_BYTES).decode())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{rates_path()} cannot be read ({error.strerror or error})") from error
    except ValueError as error:  # neither UTF-8 nor JSON, or JSON that no plain reader follows
        raise _damaged(str(error)) from error
    machines = list(loaded.values()) if isinstance(loaded, dict) else [None]
    if not all(isinstance(sizes, dict) and all(isinstance(figures, dict) for figures in sizes.values()) for sizes in machines):
        raise _damaged("it does not hold figures by machine and tile size")
    return dict(loaded)


def rates_of(figures: Figures, nb: int, source: str, store: str) -> Rates:
    """Stored figures as rates, for a kind of source and of store."""
    try:
        links = figures["links"]
        names = [*_KERNELS, *(name for name in _LATER_KERNELS if name in figures)]
        kernels: dict[str, Any] = {name: _number(figures, name) for name in names}
        if source == "device-array":
            kernels["generate"] *= COPIED_SHARE
        return Rates(
            tile_size=nb,
            source=_number(links, "array" if source in _ON_DEVICE else source),
            fetch=_number(links, f"{store}-read"),
            write=_number(links, f"{store}-write"),
            memory_fetch=_number(links, "memory-read"),
            memory_write=_number(links, "memory-write"),
            residue=_residue_rates(figures["residue"]) if "residue" in figures else None,
            origin=RatesOrigin.QUICK if figures.get("quick") is True else RatesOrigin.MEASURED,
            **kernels,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(repr(error)) from error


def disk_figures(file_system: str) -> Figures | None:
    """What was measured of a file system: fields of :class:`DiskRates`, and ``rows``; None without that."""
    figures = usable_rates().get(DISKS, {}).get(file_system)
    try:
        return None if figures is None else _checked_disk(figures)
    except ValueError as error:
        warn_of(error)
        return None


def _checked_disk(figures: Figures) -> Figures:
    try:
        rates = {name: _number(figures, name) for name in ("read", "write", "together")}
        return rates | {"folder": str(figures["folder"]), "rows": _checked_rows(figures.get("rows", ()))}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(repr(error)) from error


def _checked_rows(rows: Any) -> RowRates:
    """Rates of pieces of A, the shortest first; none from older versions, which did not measure them."""
    found = []
    for piece, rate in rows:
        pair = {"bytes of a row": piece, "by rows": rate}
        found.append((int(_number(pair, "bytes of a row")), _number(pair, "by rows")))
    lengths = [piece for piece, _ in found]
    if lengths != sorted(set(lengths)) or 0 in lengths:
        raise ValueError(f"rates by rows are {rows!r:.80}, not of longer and longer rows")
    return tuple(found)


def kernels_of_type(figures: Figures, dtype: str) -> dict[str, float] | None:
    """Stored figures of the kernels of a type other than float64; None where older versions measured none."""
    of_types = figures.get(TYPES_FIGURES, {})
    try:
        return {name: _number(of_types[dtype], name) for name in TYPED_KERNELS} if dtype in of_types else None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(repr(error)) from error


def _residue_rates(figures: Figures) -> ResidueRates:
    """Stored figures of residues as rates."""
    if type(figures["moduli"]) is not int:
        raise ValueError(f"moduli is {figures['moduli']!r}")
    found: dict[str, Any] = {name: None if figures[name] is None else _number(figures, name) for name in figures}
    return ResidueRates(**found)


def _number(figures: Figures, name: str) -> float:
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


def rates_problem() -> str | None:
    """What is wrong with the file of rates, all its figures looked at; None where nothing is."""
    try:
        everything = read_rates()
        for figures in everything.pop(DISKS, {}).values():
            _checked_disk(figures)
        for sizes in everything.values():
            for nb, figures in sizes.items():
                for source, store in (("array", "memory"), ("file", "file")):
                    rates_of(figures, int(nb), source, store)
                for dtype in TYPES:
                    kernels_of_type(figures, dtype)
    except ValueError as error:
        return str(error)
    return None


def check_writable() -> None:
    """Make the folder of the file, and see that the file can be replaced."""
    path = rates_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: remove it, so that rates can be stored in a file of that name")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"{path.parent} cannot be written: rates are stored there; OOC_CHOL_CACHE names another folder")


def write_rates(everything: Everything) -> None:
    """Replace the file of rates in one step."""
    with output_file(rates_path(), replace=True) as part:
        part.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def _damaged(why: str) -> ValueError:
    """Describe a file of rates that cannot be used."""
    return ValueError(f"{rates_path()} is damaged ({why:.200})")
