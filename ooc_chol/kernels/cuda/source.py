"""Tile functions written in CUDA C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import one_line
from ooc_chol.interfaces import Tile

if TYPE_CHECKING:
    from ooc_chol.kernels.cuda.launches import Kernel

_BLOCK = (32, 8)


@final
class CudaTileFunction:
    """A tile function that runs on CUDA devices; made by :func:`~ooc_chol.toolbox.cuda_source`, whose parameters it keeps."""

    #: Word for a device that the stream need not be current.
    takes_stream = True

    def __init__(self, code: str, name: str, arguments: tuple[Any, ...]) -> None:
        self.code = code
        self.name = name
        self._arguments = arguments
        self._ready: dict[int, tuple[Kernel, Any]] = {}

    def __repr__(self) -> str:
        return one_line(self, {"name": self.name, "arguments": self._arguments})

    def __reduce__(self) -> tuple[type[CudaTileFunction], tuple[str, str, tuple[Any, ...]]]:
        """Pickle as text and values: what was compiled and uploaded is of this process and its devices."""
        return CudaTileFunction, (self.code, self.name, self._arguments)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Values that the kernel takes after its five fixed parameters."""
        return self._arguments

    def prepare(self) -> None:
        """Compile for the current device and upload array arguments; done once per device, before a run."""
        import cupy as cp

        self._prepared(cp.cuda.runtime.getDevice())

    def _prepared(self, device: int) -> tuple[Kernel, Any]:
        """The kernel on the current device, whose number is ``device``, and what holds the arguments behind the fixed ones."""
        if (ready := self._ready.get(device)) is not None:
            return ready
        import cupy as cp

        from ooc_chol.kernels.cuda.launches import Kernel

        kernel = cp.RawKernel(self.code, self.name, options=("--std=c++17",))
        kernel.compile()
        arrays = [cp.asarray(value) if isinstance(value, np.ndarray) else value for value in self._arguments]
        given = [np.array(each) if isinstance(each, np.generic) else np.array(each.data.ptr) for each in arrays]
        launched = Kernel(kernel, "qiiqq", _BLOCK, behind=[each.ctypes.data for each in given])
        return self._ready.setdefault(device, (launched, (arrays, given)))

    def __call__(self, rows: range, cols: range, out: Tile, stream: Any) -> None:
        """Fill ``out`` with ``A[rows, cols]`` on ``stream``."""
        if isinstance(out, np.ndarray):
            raise TypeError(
                f"tile function {self.name} is CUDA source, but the tile is on the host; give from_function a host function and "
                "this one as cuda="
            )
        kernel, _ = self._prepared(out.data.device_id)
        height, width = len(rows), len(cols)
        grid = -(-width // _BLOCK[0]), -(-height // _BLOCK[1])
        kernel(_address(stream), grid, out.data.ptr, height, width, rows.start, cols.start)


def _address(stream: Any) -> int:
    """Address of a stream of CuPy's, by default the current one."""
    if stream is None:
        import cupy as cp

        stream = cp.cuda.get_current_stream()
    address: int = stream.ptr
    return address


def cuda_source(code: str, name: str, *arguments: float | np.generic | NDArray[Any]) -> CudaTileFunction:
    """Make a tile function of a CUDA kernel, for :func:`ooc_chol.from_function`: ``out[r, c] = A[row0 + r, col0 + c]``.

    Parameters
    ----------
    code : str
        CUDA C with ``extern "C" __global__ void name(double* out, int rows, int cols, long long row0, long long col0, ...)``. A
        thread computes the entry ``out[r * cols + c] = A[row0 + r][col0 + c]`` with ``c = blockIdx.x * blockDim.x +
        threadIdx.x`` and ``r`` likewise in y, if both are inside. For ``from_function(..., dtype=)`` of another type ``out``
        points to that: ``float*``, or ``double2*`` and ``float2*`` of complex numbers.
    name : str
        Name of that kernel in ``code``.
    *arguments : number or array
        Values that are passed after the five fixed parameters: NumPy scalars by value in their own type, Python floats as
        ``double``, arrays as pointers to copies on the device.

    Returns
    -------
    CudaTileFunction
        The tile function. Its code is compiled when a run starts on a CUDA device, which reports errors in it.

    Raises
    ------
    TypeError
        An argument is neither a float, nor a NumPy scalar, nor an array: an int would leave open how many bits the kernel reads.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> code = '''
    ... extern "C" __global__ void exponential(
    ...         double* out, int rows, int cols,
    ...         long long row0, long long col0, double range) {
    ...     int c = blockIdx.x * blockDim.x + threadIdx.x;
    ...     int r = blockIdx.y * blockDim.y + threadIdx.y;
    ...     double apart = fabs((double)(row0 + r - col0 - c));
    ...     if (r < rows && c < cols)
    ...         out[(long long)r * cols + c] = exp(-apart / range);
    ... }'''
    >>> def on_host(rows, cols, out, stream):
    ...     apart = np.subtract.outer(np.asarray(rows), np.asarray(cols))
    ...     np.exp(-np.abs(apart) / 50.0, out=out)
    >>> on_device = oc.toolbox.cuda_source(code, "exponential", 50.0)
    >>> source = oc.from_function(1000, on_host, cuda=on_device)
    """
    return CudaTileFunction(code, name, check_arguments("cuda_source", arguments))


def check_arguments(caller: str, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Check the arguments of a kernel; Python's floats become float64, anything but numbers and arrays is a ``TypeError``."""
    values: list[Any] = []
    for value in arguments:
        if isinstance(value, bool) or not isinstance(value, float | np.generic | np.ndarray):
            raise TypeError(f"{caller}: argument {value!r} is a {type(value).__name__}; give a float, a NumPy scalar or an array")
        values.append(np.float64(value) if isinstance(value, float) and not isinstance(value, np.generic) else value)
    return tuple(values)
