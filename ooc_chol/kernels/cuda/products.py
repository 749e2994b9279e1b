"""Products of packed row blocks with panels of vectors on the current CUDA device: the kernels of ``csr.cu``."""

from __future__ import annotations

from typing import Any, final

import cupy as cp
import numpy as np

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda import modules
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.product_sizes import widest_panel, workspace_sizes
from ooc_chol.kernels.interfaces.products import AbstractProductKernels, check_factors, check_product
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.row_blocks import RowBlock, ValueKind

#: Threads of a block, and thread blocks that scale a panel.
_THREADS, _MOST_SCALING = 256, 4096
#: C's names of types.
_C_TYPES = {"int8": "signed char", "float32": "float", "float64": "double"}


@final
class CudaProductKernels(AbstractProductKernels):
    """Kernels that take CuPy's arrays, for CUDA devices.

    One launch a block. Kernels are compiled when a kind of values meets a width of panels for the first time, which takes about a
    second, and kept on disk by CuPy.
    """

    def __init__(self, precision: Precision, columns: int, most_segments: int) -> None:
        self.precision, self.columns, self.most_segments = precision, columns, most_segments
        self._panel = widest_panel(columns)
        self._modules: dict[tuple[ValueKind, int], Any] = {}
        self._arrived = self._sums = 0

    def workspace_bytes(self, nb: int) -> int:
        """Sums of the segments of long rows, and how many of each row are there; nothing where no row is long."""
        return sum(workspace_sizes(self.precision, self.columns, self.most_segments))

    def bind(self, nb: int, workspace: int) -> None:
        """No segment has been added: that is cleared on the default stream, for which the device waits."""
        counts, _ = workspace_sizes(self.precision, self.columns, self.most_segments)
        self._arrived, self._sums = workspace, workspace + counts
        if counts:
            cp.cuda.runtime.memsetAsync(workspace, 0, counts, cp.cuda.Stream.null.ptr)

    def close(self) -> None:
        self._modules.clear()

    def multiply(
        self,
        stream: AbstractStream,
        block: RowBlock,
        data: Tile,
        x: Tile,
        y: Tile,
        *,
        left: Tile | float = 1.0,
        shift: Tile | float = 0.0,
    ) -> None:
        self._check(block, data, x, y)
        if not block.n_groups:
            return
        starts, groups, columns, values = (0 if part is None else part.data.ptr for part in block.parts(data))
        operands = (starts, groups, columns, values, np.float64(block.value), x.data.ptr, y.data.ptr)
        ends = (*_diagonal(left, block), *_diagonal(shift, block), self._arrived, self._sums)
        self._launch("multiply", (block.kind, x.shape[1]), stream, block.n_groups, (*operands, *ends))

    def scale(self, stream: AbstractStream, factors: Tile, x: Tile) -> None:
        check_factors(self, factors, x)
        self._check_aligned("x", x)
        if not x.size:
            return
        blocks = min(-(-x.size // _THREADS), _MOST_SCALING)
        arguments = (factors.data.ptr, x.data.ptr, np.uint64(x.size))
        self._launch("scale", (ValueKind.PATTERN, x.shape[1]), stream, blocks, arguments)

    def _launch(
        self, name: str, of: tuple[ValueKind, int], stream: AbstractStream, blocks: int, arguments: tuple[Any, ...]
    ) -> None:
        """Launch a kernel for a kind of values and a width of panels, compiled when it is first wanted."""
        if of not in self._modules:
            self._modules[of] = self._load(*of)
        self._modules[of].get_function(name)((blocks,), (_THREADS,), arguments, stream=cupy_stream(stream))

    def _load(self, kind: ValueKind, width: int) -> Any:
        """The compiled module of the current device."""
        return modules.load(
            "csr.cu",
            VALUE="float" if kind.dtype is None else _C_TYPES[kind.dtype.name],
            IS_PATTERN=int(kind is ValueKind.PATTERN),
            VECTOR=_C_TYPES[self.precision.storage.name],
            SUM=_C_TYPES[self.precision.compute.name],
            COLUMNS=width,
        )

    def _check_aligned(self, name: str, x: Tile) -> None:
        unit = min(16, x.shape[1] * x.itemsize)
        if x.data.ptr % unit:
            raise ValueError(f"{name} begins at an address that is no multiple of {unit} bytes, which are read at once")

    def _check(self, block: RowBlock, data: Tile, x: Tile, y: Tile) -> None:
        """Refuse what kernels would read or write outside of."""
        check_product(self, block, data, x, y)
        self._check_aligned("x", x)
        self._check_aligned("y", y)
        if block.segment_places > self.most_segments or x.shape[1] > self._panel:
            raise ValueError(
                f"a block with {block.segment_places} places for segments and a panel of {x.shape[1]} columns, but there "
                f"is workspace for {self.most_segments} and {self._panel}"
            )


def _diagonal(diagonal: Tile | float, block: RowBlock) -> tuple[int, np.float64]:
    """An address, or 0 and a number."""
    if isinstance(diagonal, float | int):
        return 0, np.float64(diagonal)
    if diagonal.shape != (block.n_rows,) or diagonal.dtype != np.float64 or not diagonal.flags.c_contiguous:
        raise ValueError(f"a diagonal of {diagonal.dtype} and shape {diagonal.shape}, where {block.n_rows} float64 are due")
    return diagonal.data.ptr, np.float64(0.0)
