"""Checks of types and shapes of kernels on panels, when a call is enqueued."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.panels import MOST_PARTS, AbstractPanelKernels
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS


def check_block(block: int) -> None:
    """Refuse a width that no panel has."""
    if block not in PANEL_COLUMNS:
        raise ValueError(f"panels of {block} columns, but there are kernels for {', '.join(map(str, PANEL_COLUMNS))}")


def check_panel(kernels: AbstractPanelKernels, name: str, w: Tile) -> None:
    """Refuse what is no panel of a precision: (rows, block) of the type of storage, row-major."""
    storage = kernels.precision.storage
    if w.dtype != storage or w.ndim != 2 or w.shape[1] != kernels.block or not w.flags.c_contiguous:
        raise ValueError(
            f"{name} is {w.dtype} of shape {w.shape}, but a panel in {kernels.precision.value} is row-major {storage} of "
            f"{kernels.block} columns"
        )


def check_basis(kernels: AbstractPanelKernels, basis: Tile, w: Tile) -> None:
    """Refuse a basis that is no (p, rows, block), and a panel W, or an array of panels, of other rows."""
    storage = kernels.precision.storage
    if basis.ndim != 3 or w.ndim not in (2, 3):
        raise ValueError(f"a basis is of shape (p, rows, {kernels.block}), but this one is of shape {basis.shape}")
    for name, each in (("basis", basis), ("w" if w.ndim == 2 else "out", w)):
        if each.dtype != storage or each.shape[-2:] != (basis.shape[1], kernels.block) or not each.flags.c_contiguous:
            raise ValueError(
                f"{name} is {each.dtype} of shape {each.shape}, but here panels in {kernels.precision.value} are row-major "
                f"{storage} of shape {(basis.shape[1], kernels.block)}"
            )


def check_coefficients(kernels: AbstractPanelKernels, name: str, given: Tile, shape: tuple[int, ...]) -> None:
    """Refuse coefficients of another type than that of computing, or of another shape."""
    compute = kernels.precision.compute
    if given.dtype != compute or given.shape != shape or not given.flags.c_contiguous:
        raise ValueError(
            f"{name} is {given.dtype} of shape {given.shape}, but coefficients here are row-major {compute} of shape {shape}"
        )


def check_parts(kernels: AbstractPanelKernels, parts: Sequence[Tile], out: Tile) -> None:
    """Refuse partial sums of another shape than what they are added to, and more parts than there may be."""
    if not 1 <= len(parts) <= MOST_PARTS:
        raise ValueError(f"{len(parts)} parts of sums, but from 1 to {MOST_PARTS} can be added")
    check_coefficients(kernels, "out", out, parts[0].shape[1:])
    for part in parts:
        check_coefficients(kernels, "a part", part, (len(part), *out.shape))


def check_wide(kernels: AbstractPanelKernels, name: str, out: Tile, rows: int, first: int) -> None:
    """Refuse what cannot become columns of a panel from ``first`` on, in float64."""
    is_inside = out.ndim == 2 and len(out) == rows and 0 <= first <= kernels.block - out.shape[1]
    if out.dtype != "float64" or not is_inside or not out.flags.c_contiguous:
        raise ValueError(
            f"{name} is {out.dtype} of shape {out.shape}, but columns of a panel from {first} on are widened to row-major "
            f"float64 of {rows} rows and up to {kernels.block - first} columns"
        )


def check_small(kernels: AbstractPanelKernels, **given: Tile | None) -> None:
    """Refuse what is no (block, block) array of coefficients."""
    for name, each in given.items():
        if each is not None:
            check_coefficients(kernels, name, each, (kernels.block, kernels.block))


def check_together(**given: Tile | None) -> None:
    """Refuse one without the other."""
    if len({each is None for each in given.values()}) > 1:
        raise ValueError(f"{' and '.join(given)} are given together, or neither is")
