"""Entries for tiles and disks in the file of measured rates."""

from __future__ import annotations

from typing import Any

from ooc_chol.dense.programs.cost import Rates, RatesOrigin, ResidueRates
from ooc_chol.dense.rates.rows import RowRates
from ooc_chol.formats import TYPES
from ooc_chol.hardware.rates_file import PASSES, Figures, damaged, figure, read_rates, usable_rates, warn_of

_KERNELS = ("potrf", "trsm", "syrk", "gemm", "launch", "generate")
#: Figures that older versions did not measure.
_LATER_KERNELS = ("invert", "trsm_float32", "gemm_float32")
#: Figures of residues that older versions measured, of products in FP8.
_FORMER_RESIDUES = ("quarter", "quarter_accumulate")
#: What is measured of every other type, in the figures of this name, by the names of types.
TYPED_KERNELS, TYPES_FIGURES = ("potrf", "trsm", "syrk", "gemm", "generate"), "types"
#: Sources that cross no link to the device that computes.
_ON_DEVICE = ("function", "device-array")
#: What stands in place of a machine before the rates of disks, which are by file system instead of tile order.
DISKS = "file systems"
#: Rate of entries that are copied within a device, as a share of the check for NaN: that reads 8 bytes, a copy and it move 24.
COPIED_SHARE = 1 / 3


def rates_of(figures: Figures, nb: int, source: str, store: str) -> Rates:
    """Stored figures as rates, for a kind of source and of store."""
    try:
        links = figures["links"]
        names = [*_KERNELS, *(name for name in _LATER_KERNELS if name in figures)]
        kernels: dict[str, Any] = {name: figure(figures, name) for name in names}
        if source == "device-array":
            kernels["generate"] *= COPIED_SHARE
        return Rates(
            tile_size=nb,
            source=figure(links, "array" if source in _ON_DEVICE else source),
            fetch=figure(links, f"{store}-read"),
            write=figure(links, f"{store}-write"),
            memory_fetch=figure(links, "memory-read"),
            memory_write=figure(links, "memory-write"),
            residue=_residue_rates(figures["residue"]) if "residue" in figures else None,
            origin=RatesOrigin.QUICK if figures.get("quick") is True else RatesOrigin.MEASURED,
            **kernels,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise damaged(repr(error)) from error


def disk_figures(file_system: str) -> Figures | None:
    """Measured figures of a file system: fields of :class:`DiskRates`, and ``rows``; None without them."""
    figures = usable_rates().get(DISKS, {}).get(file_system)
    try:
        return None if figures is None else _checked_disk(figures)
    except ValueError as error:
        warn_of(error)
        return None


def _checked_disk(figures: Figures) -> Figures:
    try:
        rates = {name: figure(figures, name) for name in ("read", "write", "together")}
        return rates | {"folder": str(figures["folder"]), "rows": _checked_rows(figures.get("rows", ()))}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise damaged(repr(error)) from error


def _checked_rows(rows: Any) -> RowRates:
    """Rates of pieces of A, the shortest first; none from older versions, which did not measure them."""
    found = []
    for piece, rate in rows:
        pair = {"bytes of a row": piece, "by rows": rate}
        found.append((int(figure(pair, "bytes of a row")), figure(pair, "by rows")))
    lengths = [piece for piece, _ in found]
    if lengths != sorted(set(lengths)) or 0 in lengths:
        raise ValueError(f"rates by rows are {rows!r:.80}, not of longer and longer rows")
    return tuple(found)


def kernels_of_type(figures: Figures, dtype: str) -> dict[str, float] | None:
    """Stored figures of the kernels of a type other than float64; None where older versions measured none."""
    of_types = figures.get(TYPES_FIGURES, {})
    try:
        return {name: figure(of_types[dtype], name) for name in TYPED_KERNELS} if dtype in of_types else None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise damaged(repr(error)) from error


def _residue_rates(figures: Figures) -> ResidueRates:
    """Stored figures of residues as rates."""
    if type(figures["moduli"]) is not int:
        raise ValueError(f"moduli is {figures['moduli']!r}")
    names = [name for name in figures if name not in _FORMER_RESIDUES]
    found: dict[str, Any] = {name: None if figures[name] is None else figure(figures, name) for name in names}
    return ResidueRates(**found)


def rates_problem() -> str | None:
    """Error in the file of rates, all its figures looked at; None where there is none."""
    try:
        everything = read_rates()
        for figures in everything.pop(DISKS, {}).values():
            _checked_disk(figures)
        everything.pop(PASSES, None)  # sparse looks at these
        for sizes in everything.values():
            for nb, figures in sizes.items():
                for source, store in (("array", "memory"), ("file", "file")):
                    rates_of(figures, int(nb), source, store)
                for dtype in TYPES:
                    kernels_of_type(figures, dtype)
    except ValueError as error:
        return str(error)
    return None
