"""Checks of types and shapes of kernels of tensors, when a call is enqueued."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.tensors import (
    PANEL_COLUMNS,
    SHRINKAGES,
    AbstractTensorKernels,
    PanelSlices,
    Shrinkage,
    Slices,
)


def check_transform(kernels: AbstractTensorKernels, basis: Tile, panel: Tile, out: Tile, *, inverse: bool) -> None:
    """Refuse what are no basis and panels of a tensor and of its transform."""
    vertices, components = kernels.shape.vertices, kernels.shape.components
    _check_whole("basis", basis, kernels.precision.compute, (vertices, components))
    given, made = (components, vertices) if inverse else (vertices, components)
    check_panel(kernels, "panel", panel, given)
    check_panel(kernels, "out", out, made)
    if panel.shape[1] != out.shape[1]:
        raise ValueError(f"panel has {panel.shape[1]} columns and out has {out.shape[1]}, but one is made of the other")


def check_panel(kernels: AbstractTensorKernels, name: str, panel: Tile, rows: int | None = None) -> None:
    """Refuse what is no panel: rows of adjacent numbers of storage, at most :data:`PANEL_COLUMNS` of them."""
    storage = kernels.precision.storage
    is_panel = panel.dtype == storage and panel.ndim == 2 and 0 < panel.shape[1] <= PANEL_COLUMNS and _is_adjacent(panel)
    if not is_panel or (rows is not None and len(panel) != rows):
        raise ValueError(
            f"{name} is {panel.dtype} of shape {panel.shape} and strides {panel.strides}, but a panel in "
            f"{kernels.precision.value} is {storage} of {'some' if rows is None else rows} rows of adjacent columns, up to "
            f"{PANEL_COLUMNS}"
        )


def check_fill(
    kernels: AbstractTensorKernels, panels: dict[str, Tile], mask: Tile, sums: Tile, momentum: float
) -> tuple[int, int]:
    """Refuse panels, masks and sums that do not fit each other; the shape of the panels."""
    rows, width = shape = panels["x"].shape
    for name, each in panels.items():
        check_panel(kernels, name, each, rows)
        if each.shape != shape:
            raise ValueError(f"{name} has shape {each.shape}, but x has {shape}")
    if mask.dtype != np.uint8 or mask.shape not in {(rows,), shape} or not _is_adjacent(mask):
        raise ValueError(
            f"mask is {mask.dtype} of shape {mask.shape}, but it is uint8 with a number for each of {rows} slices, or for each "
            f"entry of {shape}"
        )
    _check_whole("sums", sums, np.dtype(np.float64), (2,))
    if not (math.isfinite(momentum) and momentum >= 0):
        raise ValueError(f"momentum is {momentum}, but it is a finite number of at least 0")
    return rows, width


def check_threshold(
    kernels: AbstractTensorKernels,
    slices: Slices,
    lam: float,
    counts: dict[str, Tile],
    basis: Tile | None,
    *,
    shrinkage: Shrinkage,
    joined: Sequence[range] = (),
    across: bool = False,
) -> None:
    """Refuse what are no slices, and results and a warm start of other lengths."""
    check_slices(kernels, slices)
    for name, each in counts.items():
        _check_whole(name, each, np.dtype(np.int32), (len(slices),))
    if not (math.isfinite(lam) and lam >= 0):
        raise ValueError(f"lam is {lam}, but singular values are lowered by a finite number of at least 0")
    check_shrinkage(shrinkage)
    check_joined(kernels, len(slices), joined)
    if across and (basis is not None or kernels.shape.rows != kernels.shape.columns):
        raise ValueError("slices are seen the other way round where they are square and have no warm start")
    if basis is not None:
        if kernels.svt != "subspace":
            raise ValueError(f'a basis was given to the route "{kernels.svt}", but only "subspace" has a warm start')
        _check_whole("basis", basis, np.dtype(np.float64), (len(slices), kernels.shape.order, kernels.basis_columns))


def check_joined(kernels: AbstractTensorKernels, count: int, joined: Sequence[range]) -> None:
    """Refuse runs of slices that are none, or of more than a group."""
    for run in joined:
        if not 0 <= run.start < run.stop <= count or len(run) > kernels.group:
            raise ValueError(f"slices {run.start} to {run.stop - 1} are not among the {min(count, kernels.group)} of a group")


def check_shrinkage(shrinkage: object) -> None:
    """Refuse a rule that is none."""
    if shrinkage not in SHRINKAGES:
        raise ValueError(f"shrinkage={shrinkage!r:.40}: singular values are lowered by {' or '.join(map(repr, SHRINKAGES))}")


def check_slices(kernels: AbstractTensorKernels, slices: Slices) -> None:
    """Refuse what are no slices of the tensor."""
    if isinstance(slices, PanelSlices):
        if not 0 <= slices.first <= slices.first + slices.count <= slices.rows:
            raise ValueError(
                f"slices {slices.first} to {slices.first + slices.count} are not among the {slices.rows} that lie there"
            )
        _check_whole("slices", slices.memory, kernels.precision.storage, (slices.rows * kernels.shape.width,))
        return
    expected = (len(slices), kernels.shape.rows, kernels.shape.columns)
    _check_whole("slices", slices, kernels.precision.storage, expected)


def check_norms(kernels: AbstractTensorKernels, slices: Slices, out: Tile) -> None:
    """Refuse what are no slices, and a result of another length."""
    check_slices(kernels, slices)
    _check_whole("out", out, np.dtype(np.float64), (len(slices),))


def _check_whole(name: str, given: Tile, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Refuse another type or shape, and gaps."""
    if given.dtype != dtype or given.shape != shape or not given.flags.c_contiguous:
        raise ValueError(
            f"{name} is {given.dtype} of shape {given.shape} and strides {given.strides}, but here it is {dtype} of shape "
            f"{shape}, row-major without gaps"
        )


def _is_adjacent(array: Tile) -> bool:
    """Tell whether the entries of a row are next to each other, and its rows one after the other."""
    size, strides, width = array.dtype.itemsize, array.strides, array.shape[-1]
    is_row = width <= 1 or strides[-1] == size
    return bool(is_row and (array.ndim < 2 or len(array) <= 1 or (strides[0] >= size * width and strides[0] % size == 0)))
