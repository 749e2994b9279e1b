"""Kernels of an application's own, one block of threads a job: arrays in, arrays out, on every GPU that is given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import parse_bytes
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import CUDA, default_budget, device_kind, driver_errors_typed, resolve_devices
from ooc_chol.kernels.cuda.source import check_arguments
from ooc_chol.process.team import map_in_threads

#: Shape and type of what one job puts out.
OutputSpec = tuple[tuple[int, ...], type[np.generic]]

#: Bytes that a GPU of any generation gives to one block where it is asked (sm_86 and sm_89 have the least).
_SHARED_BYTES = 99 << 10


def cuda_names(devices: str | Sequence[str] | int | None = None) -> tuple[str, ...]:
    """Name the GPUs that ``devices`` means.

    Parameters
    ----------
    devices : str, sequence of str, int or None
        As for ``cholesky``.

    Returns
    -------
    tuple of str
        Names such as ``"cuda:0"``; empty where the host computes.

    Raises
    ------
    ValueError, TypeError
        There is no such device.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.cuda_names("host:0")
    ()
    """
    names = resolve_devices(devices)
    return names if device_kind(names[0]) is CUDA else ()


def run_cuda_blocks(
    code: str,
    name: str,
    rows: Sequence[NDArray[Any]],
    outputs: Sequence[OutputSpec],
    arguments: Sequence[float | np.generic | NDArray[Any]] = (),
    *,
    threads: int = 32,
    shared_bytes: int = 0,
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
) -> tuple[NDArray[Any], ...]:
    """Run a CUDA kernel with one block of threads for each of many independent jobs, on all GPUs at once.

    Parameters
    ----------
    code : str
        CUDA C with ``extern "C" __global__ void name(rows..., outputs..., arguments...)``. Block ``b = blockIdx.x`` reads row b
        of every array of ``rows``, and writes row b of every output.
    name : str
        Name of that kernel in ``code``.
    rows : sequence of (jobs, ...) array
        Arguments of each job of its own, passed as pointers. At least one.
    outputs : sequence of (tuple of int, type)
        Shape and NumPy type of what one job writes to each output. Entries that it does not write are zero.
    arguments : sequence of number or array
        Arguments that all jobs share: NumPy scalars by value in their own type, Python floats as ``double``, arrays as pointers.
    threads : int
        Threads of a block.
    shared_bytes : int
        Dynamic shared memory of a block in bytes, up to 99 KiB.
    devices : str, sequence of str, int or None
        As for ``cholesky``, GPUs only: each takes jobs that follow each other.
    memory_budget : int, str or None
        Bytes on each GPU; as for ``cholesky``. Jobs that do not fit at once run one part after the other.

    Returns
    -------
    tuple of (jobs, ...) array
        The outputs, on the host. They depend neither on the devices' number nor on the budget.

    Raises
    ------
    TypeError, ValueError
        An argument is of no type that a kernel takes, arrays differ in rows, or a device is the host.
    BudgetError
        The budget does not hold the arguments and one job, or a block does not get so much shared memory.
    DeviceError
        A driver refused a call. Errors in ``code`` are those that CuPy reports.

    Notes
    -----
    Arrays are copied to each GPU, and memory comes from CuPy's pool. Nothing stays there but compiled code.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> code = '''
    ... extern "C" __global__ void total(
    ...         const double* x, double* sum, double factor) {
    ...     const double* mine = x + 2 * blockIdx.x;
    ...     if (threadIdx.x == 0)
    ...         sum[blockIdx.x] = factor * (mine[0] + mine[1]);
    ... }'''
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> if oc.toolbox.cuda_names():
    ...     (sums,) = oc.toolbox.run_cuda_blocks(
    ...         code, "total", [x], [((), np.float64)], [10.0]
    ...     )
    """
    names = cuda_names(devices)
    counts = {len(each) for each in rows}
    if not names:
        raise ValueError(f"devices is {devices!r}, which is the host, but {name} is a kernel for GPUs")
    if len(counts) != 1:
        raise ValueError(f"rows has arrays of {sorted(counts)} rows, but each job has one row of every array")
    if shared_bytes > _SHARED_BYTES:
        raise BudgetError("shared memory of a block", shared_bytes, _SHARED_BYTES, "give each job less")
    given = check_arguments("run_cuda_blocks", arguments)
    count = counts.pop()
    found = tuple(np.zeros((count, *shape), dtype) for shape, dtype in outputs)
    budget = default_budget(names) if memory_budget is None else parse_bytes(memory_budget, "memory_budget")
    fixed = sum(value.nbytes for value in given if isinstance(value, np.ndarray))
    each = sum(array[:1].nbytes for array in (*rows, *found))
    if count and fixed + each > budget:
        raise BudgetError(f"memory_budget for {name}", fixed + each, budget, "give a larger memory_budget")
    step = max(1, (budget - fixed) // max(1, each))
    edges = [count * place // len(names) for place in range(len(names) + 1)]

    def run(place: int) -> None:
        start, stop = edges[place : place + 2]
        parts = [slice(at, min(at + step, stop)) for at in range(start, stop, step)]
        with driver_errors_typed(names[place], f"kernel {name}"):
            _run_on(names[place], (code, name), (rows, found), given, parts, (threads, shared_bytes))

    map_in_threads(run, range(len(names)))
    return found


def _run_on(
    device: str,
    source: tuple[str, str],
    arrays: tuple[Sequence[NDArray[Any]], Sequence[NDArray[Any]]],
    given: tuple[Any, ...],
    parts: Sequence[slice],
    block: tuple[int, int],
) -> None:
    """Run one GPU's share of the jobs, part by part."""
    import cupy as cp

    from ooc_chol.hardware import cuda

    rows, outputs = arrays
    with cp.cuda.Device(cuda.device_number(device)):
        kernel = _compiled(*source, cuda.device_number(device))
        if block[1] > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = block[1]
        shared = tuple(cp.asarray(value) if isinstance(value, np.ndarray) else value for value in given)
        for part in parts:
            taken = [cp.asarray(np.ascontiguousarray(array[part])) for array in rows]
            made = [cp.zeros(array[part].shape, array.dtype) for array in outputs]
            kernel((part.stop - part.start,), (block[0],), (*taken, *made, *shared), shared_mem=block[1])
            for array, result in zip(outputs, made, strict=True):
                array[part] = result.get()


@lru_cache(maxsize=32)
def _compiled(code: str, name: str, device: int) -> Any:
    """The kernel, compiled for the current device, whose number is ``device``."""
    import cupy as cp

    kernel = cp.RawKernel(code, name, options=("--std=c++17",))
    kernel.compile()
    return kernel
