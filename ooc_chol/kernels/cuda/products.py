"""Products of packed row blocks with panels of vectors on the current CUDA device: the kernels of ``csr.cu``."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np

from ooc_chol.config import whole_pages
from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS, AbstractProductKernels
from ooc_chol.precision.triples import Precision
from ooc_chol.tasks.row_blocks import BlockParts, RowBlock, ValueKind

_runtime = cp.cuda.runtime
#: Threads of a block, thread blocks that add segments of long rows, and those that scale a panel.
_THREADS, _MOST_ADDING, _MOST_SCALING = 256, 1024, 4096
#: Counters of places and of long rows, and bytes of what the kernels note of a segment and of a long row.
_COUNTERS_BYTES, _GROUP_BYTES, _ROW_BYTES = 256, 4, 12
#: C's names of types.
_C_TYPES = {"int8": "signed char", "float32": "float", "float64": "double"}


class _Functions(NamedTuple):
    """Kernels for one kind of values and one width of panels."""

    groups: Any
    find_segments: Any
    segments: Any
    add_segments: Any


class _Workspace(NamedTuple):
    """Addresses of what products of blocks with long rows need."""

    counters: int
    group_of: int
    rows: int
    sums: int


@final
class CudaProductKernels(AbstractProductKernels):
    """Kernels that take CuPy's arrays, for CUDA devices.

    Parameters
    ----------
    precision : Precision
        Values of any kind are widened, in FFF rounded, as they are read.
    columns : int
        Most columns of all panels together, of which any one has up to 8.
    most_segments : int
        Most segments of long rows in a block.

    Notes
    -----
    One launch a block, and where it has long rows three more. Kernels are compiled when a kind of values meets
    a width of panels for the first time, which takes about a second, and kept on disk by CuPy.
    """

    def __init__(self, precision: Precision, columns: int, most_segments: int) -> None:
        self.precision, self.columns, self.most_segments = precision, columns, most_segments
        self._panel = next((width for width in PANEL_COLUMNS if width >= columns), PANEL_COLUMNS[-1])
        self._compiled: dict[tuple[ValueKind, int], _Functions] = {}
        self._scaling: dict[int, Any] = {}
        self._workspace = _Workspace(0, 0, 0, 0)

    def workspace_bytes(self, nb: int) -> int:
        """Sums of the segments of long rows, and 16 bytes a segment to find them; nothing where no row is long."""
        return sum(self._sizes()) if self.most_segments else 0

    def bind(self, nb: int, workspace: int) -> None:
        ends = [workspace + sum(self._sizes()[:part]) for part in range(4)]
        self._workspace = _Workspace(*ends)

    def close(self) -> None:
        self._compiled.clear()
        self._scaling.clear()

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
        parts, width, on = block.parts(data), x.shape[1], cupy_stream(stream)
        functions = self._functions(block.kind, width)
        ends = (y.data.ptr, *_diagonal(left, block), *_diagonal(shift, block))
        starts, table = parts.starts.data.ptr, parts.groups.data.ptr
        operands = (*_entries(parts), np.float64(block.value), x.data.ptr)
        if block.n_segments:
            self._add_up_segments(functions, on, block, (starts, table), operands)
        if block.n_groups:
            functions.groups((block.n_groups,), (_THREADS,), (starts, table, *operands, *ends), stream=on)
        if block.n_segments:
            place, grid = self._workspace, (min(block.n_segments, _MOST_ADDING),)
            functions.add_segments(grid, (_THREADS,), (place.counters, place.rows, place.sums, *ends), stream=on)

    def scale(self, stream: AbstractStream, factors: Tile, x: Tile) -> None:
        self._check_panel("x", x)
        if factors.shape != x.shape[:1] or factors.dtype != np.float64:
            raise ValueError(f"{factors.shape} factors of {factors.dtype} cannot scale a panel of shape {x.shape}: give float64")
        if not x.size:
            return
        width = x.shape[1]
        if width not in self._scaling:
            self._scaling[width] = self._load(ValueKind.PATTERN, width).get_function("scale")
        grid = (min(-(-x.size // _THREADS), _MOST_SCALING),)
        self._scaling[width](grid, (_THREADS,), (factors.data.ptr, x.data.ptr, np.uint64(x.size)), stream=cupy_stream(stream))

    def _add_up_segments(
        self, functions: _Functions, on: Any, block: RowBlock, rows: tuple[int, int], operands: tuple[Any, ...]
    ) -> None:
        """Enqueue the sums of all segments of long rows, into the workspace."""
        place, (_, table) = self._workspace, rows
        _runtime.memsetAsync(place.counters, 0, 8, on.ptr)
        grid = (-(-block.n_groups // _THREADS),)
        found = (np.uint32(block.n_groups), place.counters, place.group_of, place.rows)
        functions.find_segments(grid, (_THREADS,), (*rows, *found), stream=on)
        functions.segments((block.n_segments,), (_THREADS,), (table, place.group_of, *operands, place.sums), stream=on)

    def _functions(self, kind: ValueKind, width: int) -> _Functions:
        """The kernels for a kind of values and a width of panels, compiled when they are first wanted."""
        if (kind, width) not in self._compiled:
            self._compiled[kind, width] = _Functions(*map(self._load(kind, width).get_function, _Functions._fields))
        return self._compiled[kind, width]

    def _load(self, kind: ValueKind, width: int) -> Any:
        """The compiled module; once per device, and kept on disk by CuPy."""
        code = files("ooc_chol.kernels.cuda").joinpath("csr.cu").read_text(encoding="utf-8")
        defines = {
            "VALUE": "float" if kind.dtype is None else _C_TYPES[kind.dtype.name],
            "IS_PATTERN": int(kind is ValueKind.PATTERN),
            "VECTOR": _C_TYPES[self.precision.storage.name],
            "SUM": _C_TYPES[self.precision.compute.name],
            "COLUMNS": width,
        }
        return cp.RawModule(code=code, options=("--std=c++17", *(f"-D{name}={value}" for name, value in defines.items())))

    def _sizes(self) -> tuple[int, ...]:
        """Bytes of the parts of the workspace."""
        sum_bytes = self._panel * self.precision.compute.itemsize
        segments = (whole_pages(each * self.most_segments) for each in (_GROUP_BYTES, _ROW_BYTES, sum_bytes))
        return _COUNTERS_BYTES, *segments

    def _check_panel(self, name: str, x: Tile) -> None:
        storage = self.precision.storage
        if x.dtype != storage or x.ndim != 2 or x.shape[1] not in PANEL_COLUMNS or not x.flags.c_contiguous:
            raise ValueError(
                f"{name} is {x.dtype} of shape {x.shape}, but a panel in {self.precision.value} is row-major {storage} of "
                f"{', '.join(map(str, PANEL_COLUMNS))} columns"
            )
        unit = min(16, x.shape[1] * x.itemsize)
        if x.data.ptr % unit:
            raise ValueError(f"{name} begins at an address that is no multiple of {unit} bytes, which are read at once")

    def _check(self, block: RowBlock, data: Tile, x: Tile, y: Tile) -> None:
        """Refuse what kernels would read or write outside of."""
        self._check_panel("x", x)
        self._check_panel("y", y)
        if y.shape != (block.n_rows, x.shape[1]):
            raise ValueError(f"y has shape {y.shape}, but the block's rows of the product are {(block.n_rows, x.shape[1])}")
        if data.nbytes < block.nbytes:
            raise ValueError(f"{data.nbytes} bytes are not the block's {block.nbytes}")
        if block.n_segments > self.most_segments or x.shape[1] > self._panel:
            raise ValueError(
                f"a block with {block.n_segments} segments of long rows and a panel of {x.shape[1]} columns, but there "
                f"is workspace for {self.most_segments} and {self._panel}"
            )


def _entries(parts: BlockParts) -> tuple[int, int]:
    """Addresses of columns and values."""
    return parts.columns.data.ptr, 0 if parts.values is None else parts.values.data.ptr


def _diagonal(diagonal: Tile | float, block: RowBlock) -> tuple[int, np.float64]:
    """An address, or 0 and a number."""
    if isinstance(diagonal, float | int):
        return 0, np.float64(diagonal)
    if diagonal.shape != (block.n_rows,) or diagonal.dtype != np.float64 or not diagonal.flags.c_contiguous:
        raise ValueError(f"a diagonal of {diagonal.dtype} and shape {diagonal.shape}, where {block.n_rows} float64 are due")
    return diagonal.data.ptr, np.float64(0.0)
