"""Kernels on panels of vectors on the current CUDA device: those of ``panels.cu`` and ``panel_products.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, final

import cupy as cp
import numpy as np

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda import modules, panel_sizes
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.interfaces.panels import AbstractPanelKernels
from ooc_chol.kernels.panel_shapes import (
    check_basis,
    check_block,
    check_coefficients,
    check_panel,
    check_parts,
    check_small,
    check_together,
    check_wide,
)
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.random_panels import panel_key
from ooc_chol.tasks.row_blocks import CHUNK_ROWS

_THREADS = 256
#: Thread blocks of a multiprocessor that share the rows of a panel.
_BLOCKS = 8


@final
class CudaPanelKernels(AbstractPanelKernels):
    """Kernels that take CuPy's arrays on the current CUDA device.

    Kernels are compiled when they are first wanted, which takes a second or two, and kept on disk by CuPy; those of ``combine``
    for each number of columns of a warp, of which there are 9.
    """

    chunk_rows = CHUNK_ROWS

    def __init__(self, precision: Precision, block: int) -> None:
        check_block(block)
        self.precision, self.block = precision, block

    def gram(self, stream: AbstractStream, basis: Tile, w: Tile, partial: Tile, *, unless: Tile | None = None) -> None:
        check_basis(self, basis, w)
        chunks = -(-len(w) // self.chunk_rows)
        check_coefficients(self, "partial", partial, (chunks, len(basis) * self.block, self.block))
        if not partial.size:
            return
        facts = _facts()
        tiles, blocks = panel_sizes.gram_shape(facts, self.precision, self.block, len(basis), chunks)
        arguments = (_at(basis), _at(w), _at(partial), np.uint64(len(w)), np.int32(len(basis)), np.int32(tiles), _at(unless))
        self._launch("gram", stream, blocks, arguments)

    def add_partials(
        self, stream: AbstractStream, parts: Sequence[Tile], out: Tile, *, adds: bool = False, unless: Tile | None = None
    ) -> None:
        check_parts(self, parts, out)
        given = panel_sizes.parts_of([(_at(part), len(part)) for part in parts])
        arguments = (given, _at(out), np.uint32(out.size), np.int32(adds), _at(unless))
        self._launch("add_partials", stream, -(-out.size // panel_sizes.WARP), arguments)

    def subtract(self, stream: AbstractStream, basis: Tile, coefficients: Tile, w: Tile, *, unless: Tile | None = None) -> None:
        check_basis(self, basis, w)
        check_coefficients(self, "coefficients", coefficients, (len(basis) * self.block, self.block))
        self._product(stream, basis, coefficients, w, 1, subtracts=True, unless=unless)

    def combine(self, stream: AbstractStream, basis: Tile, coefficients: Tile, out: Tile) -> None:
        check_basis(self, basis, out)
        check_coefficients(self, "coefficients", coefficients, (len(basis) * self.block, len(out) * self.block))
        self._product(stream, basis, coefficients, out, len(out), subtracts=False, unless=None)

    def factor(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        dependent: Tile,
        *,
        tolerance: float,
        scale: Tile | None = None,
        before: Tile | None = None,
        roundoff: float = 0.0,
        share: float = 0.0,
        weak: Tile | None = None,
    ) -> None:
        check_small(self, g=g, r=r, inverse=inverse, scale=scale, before=before)
        check_together(scale=scale, before=before)
        arguments = (_at(g), _at(r), _at(inverse), _at(dependent), self._number(tolerance))
        more = (_at(scale), _at(before), np.float64(roundoff**2), self._number(share * share), _at(weak))
        self._launch("factor", stream, 1, (*arguments, *more), 32)

    def factor_clamped(
        self,
        stream: AbstractStream,
        g: Tile,
        r: Tile,
        inverse: Tile,
        weak: Tile | None = None,
        *,
        tolerance: float,
        before: Tile | None = None,
        share: float = 0.0,
        least: float = 0.0,
        fell: Tile | None = None,
        last: Tile | None = None,
        unless: Tile | None = None,
    ) -> None:
        check_small(self, g=g, r=r, inverse=inverse, before=before)
        check_together(before=before, fell=fell)
        arguments = (_at(g), _at(r), _at(inverse), _at(weak), self._number(tolerance))
        more = (_at(before), self._number(share * share), self._number(least * least), _at(fell), _at(last), _at(unless))
        self._launch("factor_clamped", stream, 1, (*arguments, *more), 32)

    def multiply_right(self, stream: AbstractStream, w: Tile, inverse: Tile, out: Tile, *, unless: Tile | None = None) -> None:
        check_panel(self, "w", w)
        check_panel(self, "out", out)
        check_small(self, inverse=inverse)
        arguments = (_at(w), _at(inverse), _at(out), np.uint64(len(w)), _at(unless))
        self._launch("multiply_right", stream, _row_blocks(len(w)), arguments)

    def multiply_right_twice(
        self, stream: AbstractStream, w: Tile, first: Tile, second: Tile, *, made: Tile, flags: Tile
    ) -> None:
        check_panel(self, "w", w)
        check_panel(self, "made", made)
        check_small(self, first=first, second=second)
        arguments = (_at(w), _at(first), _at(second), _at(made), np.uint64(len(w)), _at(flags))
        self._launch("multiply_right_twice", stream, _row_blocks(len(w)), arguments)

    def widen(self, stream: AbstractStream, w: Tile, first: int, out: Tile) -> None:
        check_panel(self, "w", w)
        check_wide(self, "out", out, len(w), first)
        with cupy_stream(stream):
            cp.copyto(out, w[:, first : first + out.shape[1]])

    def multiply_entries(self, stream: AbstractStream, factors: Tile, w: Tile) -> None:
        for name, each in (("factors", factors), ("w", w)):
            check_panel(self, name, each)
        with cupy_stream(stream):
            cp.multiply(w, factors, out=w)

    def recur(
        self, stream: AbstractStream, w: Tile, x: Tile, previous: Tile | None, out: Tile, *, scale: float, shift: float
    ) -> None:
        for name, each in (("w", w), ("x", x), ("previous", w if previous is None else previous), ("out", out)):
            check_panel(self, name, each)
        arguments = (_at(w), _at(x), _at(previous), _at(out), np.uint64(w.size), self._number(scale), self._number(shift))
        self._launch("recur", stream, _row_blocks(w.size), arguments)

    def fill_random(self, stream: AbstractStream, w: Tile, first_row: int, seed: int, *, columns: Tile | None = None) -> None:
        check_panel(self, "w", w)
        arguments = (_at(w), np.uint64(len(w)), np.uint64(first_row), np.uint64(panel_key(seed)), _at(columns))
        self._launch("fill_random", stream, _row_blocks(w.size), arguments)

    def fell(self, stream: AbstractStream, before: Tile, after: Tile, flag: Tile, *, share: float) -> None:
        for name, each in (("before", before), ("after", after)):
            check_coefficients(self, name, each, (self.block, self.block))
        self._launch("fell", stream, 1, (_at(before), _at(after), _at(flag), self._number(share * share)), 32)

    def _number(self, value: float) -> Any:
        """A number of the type of computing, as a kernel takes it."""
        return self.precision.compute.type(value)

    def _launch(
        self, name: str, stream: AbstractStream, blocks: int, arguments: tuple[Any, ...], threads: int = _THREADS
    ) -> None:
        if blocks:
            function = _function(cp.cuda.Device().id, self.precision, self.block, name)
            function((blocks,), (threads,), arguments, stream=cupy_stream(stream))

    def _product(
        self, stream: AbstractStream, basis: Tile, coefficients: Tile, out: Tile, q: int, *, subtracts: bool, unless: Tile | None
    ) -> None:
        """Launch a product of the basis with coefficients, q panels of them."""
        p, rows, _ = basis.shape
        facts = _facts()
        shape = panel_sizes.product_shape(facts, self.precision, self.block, p, q)
        function = _product_function(cp.cuda.Device().id, self.precision, self.block, shape.defines)
        blocks = min(-(-rows // shape.block_rows), facts.processors * shape.blocks)
        arguments = (_at(basis), _at(coefficients), _at(out), np.uint64(rows), np.int32(p), np.int32(q), np.int32(shape.across))
        more = (np.int32(shape.kept), np.int32(subtracts), _at(unless))
        if blocks and p:
            function(
                (blocks,), (32 * shape.warps,), (*arguments, *more), shared_mem=shape.shared_bytes, stream=cupy_stream(stream)
            )


def _at(array: Tile | None) -> int:
    """An array's address on the device, or 0."""
    return 0 if array is None else int(array.data.ptr)


def _row_blocks(count: int) -> int:
    """Thread blocks for so many rows or numbers, of which each thread takes one or several."""
    return min(-(-count // _THREADS), _facts().processors * _BLOCKS)


def _facts() -> panel_sizes.DeviceFacts:
    return _facts_of(cp.cuda.Device().id)


@cache
def _facts_of(device: int) -> panel_sizes.DeviceFacts:
    """Facts of a device on which the sizes of launches depend."""
    told = cp.cuda.runtime.getDeviceProperties(device)
    capability = 10 * told["major"] + told["minor"]
    return panel_sizes.DeviceFacts(capability, told["multiProcessorCount"], told["sharedMemPerBlockOptin"])


@cache
def _function(device: int, precision: Precision, block: int, name: str) -> Any:
    """A compiled kernel of the current device."""
    names = panel_sizes.defines(_facts_of(device), precision, block, panel_sizes.PANELS)
    return modules.load(*panel_sizes.PANELS, **names).get_function(name)


@cache
def _product_function(device: int, precision: Precision, block: int, defines: tuple[tuple[str, int], ...]) -> Any:
    """The compiled product of the current device, which may take all of a multiprocessor's shared memory."""
    facts = _facts_of(device)
    names = panel_sizes.defines(facts, precision, block, panel_sizes.PRODUCTS) | dict(defines)
    module = modules.load(*panel_sizes.PRODUCTS, **names)
    function = module.get_function("product")
    function.max_dynamic_shared_size_bytes = facts.shared_bytes
    return function
