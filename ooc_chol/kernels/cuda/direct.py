"""Solves with sparse matrices on a CUDA device: cuDSS through nvmath-python, and triangles by cuSPARSE through CuPy."""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections import deque
from collections.abc import Hashable
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple, final

import cupy as cp
import numpy as np
from cupyx.scipy.sparse import csr_matrix
from cupyx.scipy.sparse.linalg import spsolve_triangular

from ooc_chol.extras import install_hint
from ooc_chol.hardware.cuda import wait_for_device

_MOST_ENTRIES = np.iinfo(np.int32).max
#: Backward error of a solution that is tried out, condition number, and what is left of the right-hand side as a share of it, up
#: to which factors are taken for good. A singular matrix leaves what it cannot make, whatever stands for a pivot of zero.
_MOST_BACKWARD, _MOST_CONDITION, _MOST_LEFT = 1e-10, 1e15, 0.05
#: How cuDSS brings large entries to the diagonal, CUDSS_MATCHING_ALG_MAX_DIAG_PRODUCT (Duff and Koster 2001): it exchanges rows
#: within its blocks alone, and puts a small number for a pivot of zero.
_MATCHING = 5
#: Steps of refinement that every solution takes, and seed of the right-hand side that is tried out.
_STEPS, _SEED = 2, 5
#: Of nvmath, which says at every factorization that no library for threads was named.
_LOGGER = logging.getLogger("ooc_chol.cudss")
_LOGGER.addHandler(logging.NullHandler())


class Csr(NamedTuple):
    """A sparse matrix in compressed rows on a device."""

    indptr: Any
    indices: Any
    values: Any
    n: int

    @property
    def matrix(self) -> Any:
        """The same as CuPy's."""
        return csr_matrix((self.values, self.indices, self.indptr), shape=(self.n, self.n))


@cache
def _missing() -> str:
    """Why cuDSS cannot be used; empty where it can."""
    try:
        from nvmath.bindings import cudss

        cudss.get_property(0)
        from nvmath.sparse.advanced import DirectSolver  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:  # nvmath says in a RuntimeError that the library is not found
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def has_cudss() -> bool:
    """Tell whether cuDSS is installed."""
    return not _missing()


def require_cudss() -> None:
    """Raise where cuDSS is not installed, naming the extra."""
    if _missing():
        raise ImportError(
            f"method='cudss' needs cuDSS, which cannot be loaded ({_missing()}); {install_hint('cuda13-direct')}; or give "
            "method='superlu', which solves on the host"
        )


def to_device(x: np.ndarray[Any, Any], like: Any) -> Any:
    """A copy of the host's array on the device of another."""
    with like.device:
        return cp.asarray(x)


class _Planned(NamedTuple):
    """A solver of cuDSS with the matrix whose values it reads: with others in place it factors again, by the same plan."""

    solver: Any
    matrix: Any
    handle: int  #: Of cuDSS, its own

    def free(self) -> None:
        """Free cuDSS's memory."""
        self.solver.free()
        _destroy(self.handle)


@final
class CudssPlans:
    """Solvers whose factors nobody needs any more, the last few; their plans serve the next values of their patterns.

    Solvers come back from finalizers, which may run in the middle of anything: nothing here is locked, and a deque alone changes.
    """

    def __init__(self, keep: int = 2) -> None:
        self._keep = keep
        self._idle: deque[tuple[Hashable, _Planned]] = deque()

    def take(self, key: Hashable) -> _Planned | None:
        """A solver for the pattern of that name, which nobody else uses."""
        for _ in range(len(self._idle)):
            try:
                found = self._idle.popleft()
            except IndexError:  # another thread has taken it
                return None
            if found[0] == key:
                return found[1]
            self._idle.append(found)
        return None

    def give(self, key: Hashable, planned: _Planned) -> None:
        """Keep a solver for later, and free the one that waits longest where there are too many."""
        self._idle.append((key, planned))
        self._shrink(self._keep)

    def clear(self) -> None:
        """Free all."""
        self._shrink(0)

    def _shrink(self, most: int) -> None:
        while len(self._idle) > most:
            try:
                self._idle.popleft()[1].free()
            except IndexError:
                return


@final
class CudssSolver:
    """cuDSS's factors of one matrix, in float64, whose solutions are the same to the bit in every run.

    In its deterministic mode cuDSS 0.8 takes one right-hand side, and refines none: its analysis answers ``NOT_SUPPORTED`` where
    there are more, or where it is told to refine. So right-hand sides are solved for one after the other and refined here, two
    steps each, by which a solution takes three solves with the factors and two products with the matrix. In that mode a
    kernel of its solves leaves its shared memory now and then, after which a process has no GPU, but not where the memory that
    cuDSS is given is cleared first (docs/lab-notes.md). Symmetric matrices that may be indefinite are factored as general ones.
    ``a`` is the lower triangle of a positive definite matrix, else all of it.
    """

    method = "cudss"

    def __init__(
        self, a: Csr, transposed: Any, full: Csr, *, assume: str | None, times: Any, plans: CudssPlans, key: Hashable
    ) -> None:
        if full.values.size > _MOST_ENTRIES:
            raise ValueError(f"the matrix has {full.values.size} entries, but cuDSS counts them in int32, up to {_MOST_ENTRIES}")
        self._n, self._assume, self._times, self._transposed = a.n, assume, times, transposed
        self._is_spd = assume == "spd"
        self._plans, self._key = plans, key
        self._solvers: dict[bool, _Planned] = {}
        self._finalizer = weakref.finalize(self, _let_go, self._solvers, plans if self._is_spd else None, key)
        self._device = a.values.device
        with self._device:
            try:
                self._solvers[False] = self._factored(a)
            except self._refusals() as error:  # of a pattern that no exchange of rows gives a full diagonal
                self.trouble = f"cuDSS has not factored it ({error})"
            else:
                self.trouble = self._tried(full.matrix)

    @property
    def words(self) -> str:
        """How was factored."""
        both = "" if self._assume or True not in self._solvers else ", and its transpose"
        return f"cuDSS, {self._assume or 'general'}{both}"

    def solve(self, b: Any, trans: bool) -> Any:
        """Solve ``A x = b`` for (n,) or (n, k) right-hand sides, or with the transpose of A."""
        trans = trans and not self._assume
        with self._device:
            solver = self._solver_of(trans).solver
            columns = b.reshape(self._n, -1)
            x = cp.empty(columns.shape, b.dtype)
            for at in range(columns.shape[1]):
                one = cp.empty(self._n, np.float64)
                one[:] = columns[:, at]
                x[:, at] = self._refined(solver, one, trans)
            return x.reshape(b.shape)

    def close(self) -> None:
        """Let go of the factors: their memory goes to the next ones of the pattern, or is freed."""
        self._finalizer()

    def _refined(self, solver: Any, b: Any, trans: bool) -> Any:
        """The solution for one right-hand side, refined."""
        x = _once(solver, b)
        for _ in range(_STEPS):
            x += _once(solver, b - self._times(x, trans))  # x += A^-1 (b - A x)
        return x

    def _solver_of(self, trans: bool) -> _Planned:
        """The factors of A, or of its transpose, which are made when first asked for."""
        if trans not in self._solvers:
            self._solvers[trans] = self._factored(self._transposed())
        return self._solvers[trans]

    def _factored(self, a: Csr) -> _Planned:
        """A solver of cuDSS, planned and factored, whose results are the same in every run."""
        planned = self._plans.take(self._key) if self._is_spd else None
        if planned is None:
            return self._new(a)
        with ExitStack() as stack:
            stack.callback(planned.free)
            wait_for_device()  # its last solution may be on the way still, on another stream
            planned.matrix.data[...] = a.values
            planned.solver.factorize()
            stack.pop_all()
        return planned

    def _new(self, a: Csr) -> _Planned:
        """A solver with a plan of its own."""
        from nvmath.bindings import cudss
        from nvmath.sparse.advanced import DirectSolver, DirectSolverMatrixType, DirectSolverMatrixViewType, DirectSolverOptions

        kind = DirectSolverMatrixType.SPD if self._is_spd else DirectSolverMatrixType.GENERAL
        view = DirectSolverMatrixViewType.LOWER if self._is_spd else DirectSolverMatrixViewType.FULL
        matrix, handle = a.matrix, int(cudss.create())
        with ExitStack() as stack:
            stack.callback(_destroy, handle)  # where it is not to be had, or somebody interrupts
            cudss.set_device_mem_handler(handle, ctypes.addressof(_cleared_memory()))  # before anything belongs to the handle
            options = DirectSolverOptions(handle=handle, sparse_system_type=kind, sparse_system_view=view, logger=_LOGGER)
            solver = DirectSolver(matrix, cp.zeros(self._n, np.float64), options=options)
            stack.callback(solver.free)
            configured = {"DETERMINISTIC_MODE": 1} | ({} if self._is_spd else {"MATCHING_ALG": _MATCHING})
            for name, value in configured.items():
                parameter = getattr(cudss.ConfigParam, name)
                given = np.full(1, value, cudss.get_config_param_dtype(int(parameter)))
                cudss.config_set(solver.config_ptr, parameter, given.ctypes.data, given.nbytes)
            solver.plan()
            solver.factorize()
            stack.pop_all()
        return _Planned(solver, matrix, handle)

    @staticmethod
    def _refusals() -> type[Exception]:
        """Class of cuDSS's own errors."""
        from nvmath.bindings import cudss

        found: type[Exception] = cudss.cuDSSError
        return found

    def _tried(self, matrix: Any) -> str:
        """Problem with the factors, found by a trial solution, in words; empty where there is none."""
        b = cp.asarray(np.random.default_rng(_SEED).uniform(-1.0, 1.0, self._n))
        x = self.solve(b, False)
        norm = float(abs(matrix).sum(axis=1).max())
        size = float(abs(x).max())
        if not np.isfinite(size):
            return "its solutions are not finite"
        left = float(abs(b - matrix @ x).max())
        if left > _MOST_LEFT * float(abs(b).max()):
            return f"its solutions leave {left / float(abs(b).max()):.2g} of a right-hand side"
        error = left / (norm * size + 1.0)
        if error > _MOST_BACKWARD:
            return f"its solutions have backward errors of {error:.2g}"
        condition = norm * size
        return f"the condition number is {condition:.2g} or more" if condition > _MOST_CONDITION else ""


def _destroy(handle: int) -> None:
    """Destroy a handle of cuDSS."""
    from nvmath.bindings import cudss

    cudss.destroy(handle)


class _MemoryHandler(ctypes.Structure):
    """``cudssDeviceMemHandler_t``."""

    _fields_ = (
        *(("context", ctypes.c_void_p), ("allocate", ctypes.c_void_p), ("free", ctypes.c_void_p)),
        ("name", ctypes.c_char * 64),
    )


#: Functions of C that get memory of a device for a stream, and give it back; they return 0 where that went well.
_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_void_p)
_Free = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def _allocate(context: Any, place: Any, nbytes: int, stream: int | None) -> int:
    try:
        place[0] = address = cp.cuda.runtime.mallocAsync(nbytes, stream or 0)  # 0 for no bytes, which are asked for too
        cp.cuda.runtime.memsetAsync(address, 0, nbytes, stream or 0)
    except Exception as error:  # C knows of none: cuDSS says that it has no memory
        _LOGGER.warning("no %d bytes for cuDSS: %s", nbytes, str(error))  # whose frames a record would keep
        return 1
    return 0


def _free(context: Any, address: int | None, nbytes: int, stream: int | None) -> int:
    try:
        cp.cuda.runtime.freeAsync(address or 0, stream or 0)
    except Exception as error:
        _LOGGER.warning("memory of cuDSS is not freed: %s", str(error))
        return 1
    return 0


_FUNCTIONS = _Allocate(_allocate), _Free(_free)


@cache
def _cleared_memory() -> _MemoryHandler:
    """Handler by which cuDSS gets memory of a device that is all zeros."""
    functions = (ctypes.cast(each, ctypes.c_void_p) for each in _FUNCTIONS)
    return _MemoryHandler(None, *functions, b"cleared")


def _once(solver: Any, b: Any) -> Any:
    """Solution by the factors alone for one right-hand side."""
    solver.reset_operands(b=b)
    return solver.solve()


def _let_go(solvers: dict[bool, _Planned], plans: CudssPlans | None, key: Hashable) -> None:
    """Hand solvers on to where plans are kept, or free cuDSS's memory."""
    for planned in solvers.values():
        if plans is None:
            planned.free()
        else:
            plans.give(key, planned)
    solvers.clear()


def solve_triangular(a: Csr, b: Any, *, lower: bool, unit_diagonal: bool) -> Any:
    """Solve with a triangle by cuSPARSE, in the type of b."""
    with b.device:
        x = spsolve_triangular(a.matrix, b, lower=lower, unit_diagonal=unit_diagonal)
        return cp.ascontiguousarray(x, dtype=b.dtype)
