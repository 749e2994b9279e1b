"""BLAS and LAPACK on row-major tiles, in place, with the interpreter lock released.

SciPy's own wrappers hold the interpreter lock and want column-major arrays. The pointers that SciPy publishes for Cython take
any leading dimension, and a call through ctypes releases the lock. A row-major tile is, for Fortran, its own transpose: row-major
lower is column-major upper.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import CFUNCTYPE, PYFUNCTYPE, byref, c_char, c_char_p, c_double, c_float, c_int, c_void_p, py_object, pythonapi
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, final

import numpy as np
import scipy

from ooc_chol.formats import Floats
from ooc_chol.process import blas_buffers
from ooc_chol.process.blas_buffers import blas_controllers
from ooc_chol.process.fork_safety import new_lock, renewed_in_child
from ooc_chol.process.scipy_modules import linalg_module

#: Arguments of each routine: h = char *, i = int *, x = numbers of the routine's type, r = real ones of its precision.
_ARGUMENTS = {
    "gemm": "hhiiixxixixxi",
    "syrk": "hhiirxirxi",
    "herk": "hhiirxirxi",
    "trsm": "hhhhiixxixi",
    "potrf": "hixii",
    "laset": "hiixxxi",
}
#: How SciPy publishes the types of arguments, but for prefixes of its own.
_LETTERS = {"char": "h", "int": "i", "double_complex": "z", "float_complex": "c"}
#: The real type of each type, by the first letters of routines.
_REAL = {"d": "d", "s": "s", "z": "d", "c": "s"}
_capsule_name = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_capsule_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def _signature(published: str) -> str:
    """Spell, one letter an argument, a name such as ``void (char *, __pyx_t_5scipy_..._d *, __pyx_t_double_complex *)``."""
    arguments = published[published.index("(") + 1 : published.rindex(")")].split(", ")
    plain = [re.sub(r"^__pyx_t_(?:\w+_(?=[dscz] ))?(\w+) \*$", r"\1", argument).removesuffix(" *") for argument in arguments]
    return "".join(name if name in _REAL else _LETTERS.get(name, "?") for name in plain)


def _expected(name: str) -> str:
    """The arguments of the routine of that name, one letter each."""
    return _ARGUMENTS[name[1:]].replace("x", name[0]).replace("r", _REAL[name[0]])


def _routine(module: ModuleType, name: str) -> Callable[..., None]:
    """Wrap the routine ``name`` of ``module`` as a foreign function that releases the interpreter lock."""
    capsule = module.__pyx_capi__[name]
    published = _capsule_name(capsule)
    if _signature(published.decode()) != _expected(name):
        raise ImportError(
            f"SciPy {scipy.__version__} publishes {name} as {published.decode()!r}, which is not the call with 32-bit integers "
            "that ooc_chol makes; install a SciPy built with a 32-bit-integer (LP64) BLAS, as its wheels are"
        )
    arguments = [c_void_p] * len(_expected(name))
    return CFUNCTYPE(None, *arguments)(_capsule_pointer(capsule, published))


_blas, _lapack = linalg_module("cython_blas"), linalg_module("cython_lapack")


class _Routines:
    """The routines of one type, and the numbers that they take by reference; a call never writes to these."""

    def __init__(self, letter: str, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.is_complex = self.dtype.kind == "c"
        self.gemm = _routine(_blas, f"{letter}gemm")
        self.square = _routine(_blas, f"{letter}{'herk' if self.is_complex else 'syrk'}")
        self.trsm = _routine(_blas, f"{letter}trsm")
        self.potrf = _routine(_lapack, f"{letter}potrf")
        self.laset = _routine(_lapack, f"{letter}laset")
        self.one, self.minus_one, self.zero = (self._scalar(value) for value in (1.0, -1.0, 0.0))
        #: What makes the transpose of a stored array the adjoint of the matrix that it is for Fortran.
        self.adjoint = byref(c_char(b"C" if self.is_complex else b"T"))

    def _scalar(self, value: float) -> Any:
        """A number by reference: of a complex one, which a real argument may stand for, the real part comes first."""
        part = c_double if self.dtype in (np.float64, np.complex128) else c_float
        return byref((part * 2)(value, 0.0))


_ROUTINES = {
    routines.dtype: routines
    for routines in (
        _Routines("d", "float64"),
        _Routines("s", "float32"),
        _Routines("z", "complex128"),
        _Routines("c", "complex64"),
    )
}

# Constant arguments, passed by reference; a call never writes to them.
_U, _L, _N = (byref(c_char(letter)) for letter in (b"U", b"L", b"N"))
_LARGEST_INTEGER = 2**31 - 1


@lru_cache(maxsize=4096)
def _integer(value: int) -> Any:
    """Refer to ``value`` as a C int; tiles have few shapes, so that nearly every call finds its integers here."""
    if value > _LARGEST_INTEGER:
        raise ValueError(f"a tile dimension of {value} does not fit BLAS's 32-bit integers; use smaller tiles")
    return byref(c_int(value))


def _operand(a: Floats, name: str, dtype: np.dtype[Any]) -> tuple[int, Any]:
    """Return address and leading dimension of the row-major tile ``a``, which must be of ``dtype``."""
    rows, cols = a.shape
    row_stride, col_stride = a.strides
    size = dtype.itemsize
    if a.dtype != dtype:
        raise TypeError(f"{name} is {a.dtype}, but this call takes {dtype}: the precision planner, not a kernel, converts tiles")
    if (cols > 1 and col_stride != size) or (rows > 1 and (row_stride < size * cols or row_stride % size)):
        raise ValueError(f"{name} has shape {a.shape} and strides {a.strides}, but a tile is row-major with its columns adjacent")
    return a.ctypes.data, _integer(row_stride // size if rows > 1 else cols)


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    """Refuse an operand whose shape would make BLAS read or write outside of it."""
    if shape != expected:
        raise ValueError(f"{name} has shape {shape}, but the other operands of the call need {expected}")


def _routines_of(a: Floats, name: str) -> _Routines:
    """The routines of the type in which a call computes."""
    routines = _ROUTINES.get(a.dtype)
    if routines is None:
        *others, last = (dtype.name for dtype in _ROUTINES)
        raise TypeError(f"{name} is {a.dtype}, but a tile kernel takes {', '.join(others)} or {last}")
    return routines


def gemm(a_ij: Floats, l_ik: Floats, l_jk: Floats) -> None:
    """Update ``a_ij -= l_ik @ l_jk.conj().T`` in place. Cost ``2 m n k`` flops."""
    m, n = a_ij.shape
    k = l_ik.shape[1]
    _check_shape("l_ik", l_ik.shape, (m, k))
    _check_shape("l_jk", l_jk.shape, (n, k))
    of = _routines_of(a_ij, "a_ij")
    c, ldc = _operand(a_ij, "a_ij", of.dtype)
    a, lda = _operand(l_ik, "l_ik", of.dtype)
    b, ldb = _operand(l_jk, "l_jk", of.dtype)
    # Column-major: C.T -= conj(l_jk) @ l_ik.T, with l_jk stored as its transpose.
    blas_buffers.ensure()
    of.gemm(of.adjoint, _N, _integer(n), _integer(m), _integer(k), of.minus_one, b, ldb, a, lda, of.one, c, ldc)


def syrk(a_ii: Floats, l_ik: Floats) -> None:
    """Update the lower triangle of ``a_ii -= l_ik @ l_ik.conj().T`` in place: SYRK, or HERK. Cost ``n**2 k`` flops."""
    n, k = l_ik.shape
    _check_shape("a_ii", a_ii.shape, (n, n))
    of = _routines_of(a_ii, "a_ii")
    c, ldc = _operand(a_ii, "a_ii", of.dtype)
    a, lda = _operand(l_ik, "l_ik", of.dtype)
    blas_buffers.ensure()
    of.square(_U, of.adjoint, _integer(n), _integer(k), of.minus_one, a, lda, of.one, c, ldc)


def trsm(l_kk: Floats, a_ik: Floats) -> None:
    """Solve ``X @ l_kk.conj().T = a_ik`` for ``X``, which replaces ``a_ik``.

    Cost ``m n**2`` flops. Row-wise backward stable: Higham (2002), Thm 8.5.
    """
    m, n = a_ik.shape
    _check_shape("l_kk", l_kk.shape, (n, n))
    of = _routines_of(a_ik, "a_ik")
    a, lda = _operand(l_kk, "l_kk", of.dtype)
    b, ldb = _operand(a_ik, "a_ik", of.dtype)
    # Column-major: U.H @ X.T = a_ik.T, where U is l_kk's memory read as upper triangular.
    blas_buffers.ensure()
    of.trsm(_L, _U, of.adjoint, _N, _integer(n), _integer(m), of.one, a, lda, b, ldb)


def potrf(a_kk: Floats) -> int:
    """Factor ``a_kk = L @ L.conj().T``; ``L`` replaces the lower triangle, the strict upper triangle is left alone.

    Cost ``n**3 / 3`` flops. Imaginary parts of the diagonal are not looked at.
    """
    n = a_kk.shape[0]
    _check_shape("a_kk", a_kk.shape, (n, n))
    of = _routines_of(a_kk, "a_kk")
    a, lda = _operand(a_kk, "a_kk", of.dtype)
    info = c_int(0)
    # Column-major, the upper triangle holds conj(A) = U.H @ U, hence A = U.T @ conj(U), and U.T is L as it is stored.
    blas_buffers.ensure()
    of.potrf(_U, _integer(n), a, lda, byref(info))
    return info.value


def zero_strict_upper(a_kk: Floats) -> None:
    """Set every entry of the ``(n, n)`` row-major tile ``a_kk`` above its diagonal to zero."""
    n = a_kk.shape[0]
    _check_shape("a_kk", a_kk.shape, (n, n))
    of = _routines_of(a_kk, "a_kk")
    a, lda = _operand(a_kk, "a_kk", of.dtype)
    if n > 1:
        # Column-major, that part is the lower triangle, diagonal included, of the square that starts one entry further.
        of.laset(_L, _integer(n - 1), _integer(n - 1), of.zero, of.zero, a + a_kk.itemsize, lda)


@cache
def _controller() -> Any:
    """The library behind SciPy's pointers, or None when threadpoolctl does not know it."""
    package = Path(scipy.__file__).resolve().parent
    # Wheels carry a BLAS of their own, and NumPy's wheel carries another one; elsewhere the two packages share one.
    own = (package, package.parent / "scipy.libs")
    bundled = [each for each in blas_controllers() if any(folder in Path(each.filepath).resolve().parents for folder in own)]
    return next(iter(bundled or blas_controllers()), None)


def _library() -> dict[str, Any] | None:
    """Description by threadpoolctl of that library now; None where it is unknown to it."""
    controller = _controller()
    return None if controller is None else dict(controller.info())


def blas_identity() -> dict[str, str]:
    """Which BLAS computes here: part of the arithmetic key, since another library or processor rounds in another order."""
    library = _library()
    if library is None:
        build = scipy.__config__.show(mode="dicts")["Build Dependencies"]["blas"]
        return {"library": str(build["name"]), "version": str(build["version"]), "architecture": "unknown"}
    return {
        "library": str(library["internal_api"]),
        "version": str(library["version"]),
        "architecture": str(library.get("architecture", "unknown")),
    }


def current_threads() -> int:
    """Return the threads that one BLAS call uses now; 0 when the library does not tell."""
    controller = _controller()
    return 0 if controller is None else int(controller.num_threads)


def host_threads(n_devices: int) -> int:
    """Threads of each host device: the cores that BLAS may use now, shared among the devices."""
    return max(1, current_threads() // n_devices)


class _SharedLimit:
    """The number of threads that all runs of the process agree on: the least that any of them asked for."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._counts: dict[object, int] = {}
        self._before: list[tuple[Any, int]] = []
        self._is_restored = True

    def enter(self, run: object, count: int) -> None:
        """Add a run that needs calls of at most ``count`` threads."""
        with self._lock:
            if not self._counts:
                self._before = [(library, library.num_threads) for library in blas_controllers()]
            self._is_restored = False
            self._counts[run] = count
            self._apply()

    def leave(self, run: object) -> None:
        """Remove it again, if it is there; the last one out restores what the first one found."""
        with self._lock:
            self._counts.pop(run, None)
            if not self._is_restored:
                self._apply()
                self._is_restored = not self._counts

    def renew(self) -> None:
        """Begin anew in a child: no run of the parent goes on here, whose number of threads would stay."""
        self._counts.clear()
        if not self._is_restored:
            self._apply()
            self._is_restored = True

    def _apply(self) -> None:
        for library, before in self._before:
            # From threadpoolctl 3.8 on, set_num_threads does nothing in any thread but the first that called it.
            set_threads = getattr(library, "_real_set_num_threads", library.set_num_threads)
            set_threads(min(self._counts.values(), default=before))


# The number belongs to the library, hence to the process: two runs at once must not restore each other's.
_limit = _SharedLimit()
renewed_in_child(_limit.renew, lambda: _limit._lock)


@final
class _Limited(AbstractContextManager[None]):
    """A block in which calls use at most so many threads."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> None:
        try:
            _limit.enter(self, self._count)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _leave(self) -> None:
        try:
            _limit.leave(self)
        finally:  # an interrupt may have met the first call before it had done anything
            _limit.leave(self)


def blas_threads(count: int) -> AbstractContextManager[None]:
    """Let every BLAS call of this process use ``count`` threads inside the ``with`` block, and restore the number after it.

    Parameters
    ----------
    count : int
        Threads of a call, at least 1. Blocks may overlap, in one thread or in several: the least count holds.

    Raises
    ------
    ValueError
        The count is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol.toolbox as tb
    >>> with tb.blas_threads(1):
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    if count < 1:
        raise ValueError(f"blas threads: {count} were asked for, but a call uses at least 1")
    return _Limited(count)
