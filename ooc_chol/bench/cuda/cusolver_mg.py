"""cuSOLVERMg's Cholesky factorization on several GPUs, in core: the vendor's own answer to what does not fit on one.

nvmath-python has no bindings of it, so that the library is called through ctypes, with the signatures of NVIDIA's reference. It
takes one layout: blocks of adjacent columns dealt to the devices in turn, column-major. Its symmetric matrix is ours, so that
row-major rows of the tile function are its columns.
"""

from __future__ import annotations

import ctypes as ct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cupy as cp
from nvmath.bindings import cusolver

from ooc_chol.bench.cuda.devices import peer_access
from ooc_chol.errors import NotPositiveDefiniteError, OocCholError
from ooc_chol.hardware.cuda import device_number
from ooc_chol.interfaces import TileFunction

_R_64F = 1
#: The lower triangle, the only one that cuSOLVERMg takes.
_FILL_LOWER = 0
_GRID_COLUMN_MAJOR = 0
#: Names of the library where it is not found beside cuSOLVER's: of CUDA 13, of CUDA 12, of a development package.
_NAMES = ("libcusolverMg.so.12", "libcusolverMg.so.11", "libcusolverMg.so")


def potrf_seconds(n: int, function: TileFunction, devices: Sequence[str], *, block: int, repeats: int) -> list[float]:
    """Seconds of cusolverMgPotrf at order ``n``, in place; generation apart."""
    numbers = [device_number(name) for name in devices]
    library = _library()
    with cp.cuda.Device(numbers[0]), peer_access(numbers), _handle(library, numbers) as handle:
        _factor(library, handle, numbers, n=2 * block * len(numbers), block=block, function=function)
        return [_factor(library, handle, numbers, n=n, block=block, function=function) for _ in range(repeats)]


def _library() -> ct.CDLL:
    """cuSOLVERMg: beside the cuSOLVER of this process, else where CUDA is installed, else by name."""
    cusolver.get_property(0)  # loads cuSOLVER, if nothing did before
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    folders = {Path(line.split()[-1]).parent for line in maps if "/libcusolver.so" in line}
    folders.update(Path("/usr/local").glob("cuda*/lib64"))
    found = [str(path) for folder in sorted(folders) for path in sorted(folder.glob("libcusolverMg.so*"))]
    errors = []
    for name in (*found, *_NAMES):
        try:
            return ct.CDLL(name)
        except OSError as error:
            errors.append(str(error))
    raise OocCholError(f"cuSOLVERMg cannot be loaded ({'; '.join(errors)}); it comes with the CUDA toolkit")


def _call(library: ct.CDLL, name: str, *arguments: Any) -> None:
    """Call a routine of the library; raise for a status that is not zero."""
    if status := int(getattr(library, name)(*arguments)):
        raise OocCholError(f"{name} of cuSOLVERMg returned status {status}")


@contextmanager
def _handle(library: ct.CDLL, numbers: Sequence[int]) -> Iterator[ct.c_void_p]:
    """Make a handle of cuSOLVERMg for these devices, and destroy it at the end of the block."""
    handle = ct.c_void_p()
    _call(library, "cusolverMgCreate", ct.byref(handle))
    try:
        _call(library, "cusolverMgDeviceSelect", handle, ct.c_int(len(numbers)), (ct.c_int * len(numbers))(*numbers))
        yield handle
    finally:
        _call(library, "cusolverMgDestroy", handle)


@contextmanager
def _description(library: ct.CDLL, numbers: Sequence[int], n: int, block: int) -> Iterator[ct.c_void_p]:
    """The layout: one row of devices, blocks of ``n`` rows and ``block`` columns."""
    count, grid, description = len(numbers), ct.c_void_p(), ct.c_void_p()
    ids = (ct.c_int32 * count)(*numbers)
    _call(library, "cusolverMgCreateDeviceGrid", ct.byref(grid), ct.c_int32(1), ct.c_int32(count), ids, _GRID_COLUMN_MAJOR)
    try:
        sizes = ct.c_int64(n), ct.c_int64(n), ct.c_int64(n), ct.c_int64(block)
        _call(library, "cusolverMgCreateMatrixDesc", ct.byref(description), *sizes, _R_64F, grid)
        yield description
    finally:
        if description:
            _call(library, "cusolverMgDestroyMatrixDesc", description)
        _call(library, "cusolverMgDestroyGrid", grid)


def _factor(
    library: ct.CDLL, handle: ct.c_void_p, numbers: Sequence[int], *, n: int, block: int, function: TileFunction
) -> float:
    """Make the matrix on the devices and factor it; returns the seconds of the factorization."""
    with ExitStack() as stack:
        description = stack.enter_context(_description(library, numbers, n, block))
        parts = [
            _columns(number, place, len(numbers), n=n, block=block, function=function) for place, number in enumerate(numbers)
        ]
        a = _pointers(parts)
        matrix = handle, ct.c_int(_FILL_LOWER), ct.c_int(n), a, ct.c_int(1), ct.c_int(1), description, ct.c_int(_R_64F)
        size = ct.c_int64()
        _call(library, "cusolverMgPotrf_bufferSize", *matrix, ct.byref(size))
        workspaces = [_allocated(number, (size.value,)) for number in numbers]
        info = ct.c_int()
        _synchronize(numbers)
        began = time.perf_counter()
        _call(library, "cusolverMgPotrf", *matrix, _pointers(workspaces), size, ct.byref(info))
        _synchronize(numbers)
        seconds = time.perf_counter() - began
        cp.cuda.Device(numbers[0]).use()  # the library leaves another device current
    if info.value > 0:
        raise NotPositiveDefiniteError(info.value, (0, 0))
    if info.value < 0:
        raise OocCholError(f"cusolverMgPotrf of cuSOLVERMg refused its argument {-info.value}")
    return seconds


def _columns(number: int, place: int, count: int, *, n: int, block: int, function: TileFunction) -> Any:
    """Make the columns of the device at ``place`` on it: blocks ``place, place + count, ...``, with room for whole blocks."""
    blocks = -(-n // block)
    part = _allocated(number, (-(-blocks // count) * block, n))
    with cp.cuda.Device(number):
        stream = cp.cuda.get_current_stream()
        for local, global_block in enumerate(range(place, blocks, count)):
            columns = range(global_block * block, min(n, (global_block + 1) * block))
            # A is symmetric: its rows `columns` in row-major order are its columns in column-major order.
            function(columns, range(n), part[local * block : local * block + len(columns)], stream)
        stream.synchronize()
    return part


def _allocated(number: int, shape: tuple[int, ...]) -> Any:
    """Uninitialised float64 on a device, outside of the pool: given back at once."""
    size = 1
    for extent in shape:
        size *= extent
    with cp.cuda.Device(number):
        return cp.ndarray(shape, cp.float64, cp.cuda.MemoryPointer(cp.cuda.Memory(max(8, 8 * size)), 0))


def _pointers(arrays: Sequence[Any]) -> Any:
    """Device addresses, one a device, as an array of C."""
    return (ct.c_void_p * len(arrays))(*(array.data.ptr for array in arrays))


def _synchronize(numbers: Sequence[int]) -> None:
    """Wait until nothing runs on any of these devices."""
    for number in numbers:
        with cp.cuda.Device(number):
            cp.cuda.Device(number).synchronize()
