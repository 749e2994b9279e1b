"""Solves by cuDSS without a GPU: NumPy in CuPy's place, and a solver that refuses what cuDSS 0.8 refuses and is inexact."""

from __future__ import annotations

import ctypes
import enum
import importlib.util
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

from tests.host.diff_solve_matrices import backward_error, poisson, regular

DIRECT = Path(__file__).resolve().parents[2] / "ooc_chol/kernels/cuda/direct.py"
#: Error of the stand-in's solutions, relative to each number: two steps of refinement leave 1e-18 of it.
INEXACT = 1e-6


class ConfigParam(enum.IntEnum):
    MATCHING_ALG = 2
    IR_N_STEPS = 5
    DETERMINISTIC_MODE = 24


class cuDSSError(Exception):
    """What the library answers."""


class Kind(enum.IntEnum):
    GENERAL = 0
    SYMMETRIC = 1
    SPD = 3


class View(enum.IntEnum):
    FULL = 0
    LOWER = 1


class Held(np.ndarray):
    """An array with CuPy's attribute ``device``."""

    @property
    def device(self):
        return nullcontext()


class DirectSolver:
    """What nvmath-python's class of that name does for one CSR matrix, with the refusals of cuDSS 0.8's analysis."""

    made: ClassVar[list[DirectSolver]] = []

    def __init__(self, a: Any, b: Any, *, options: dict[str, Any]) -> None:
        assert a.indices.dtype == a.indptr.dtype == np.int32
        assert a.dtype == b.dtype == np.float64
        self._b, self.kind = b, options["sparse_system_type"]
        self._given, self._lower, self.plans = a, options["sparse_system_view"] == View.LOWER, 0
        self.config_ptr, self.handle = id(self), options["handle"]
        self.memory = HANDLES[self.handle]  # one that comes later is not used
        self.config = dict.fromkeys(ConfigParam, 0)
        self.factors: Any = None
        DirectSolver.made.append(self)

    @property
    def _a(self) -> Any:
        """The matrix with the values that are there now."""
        return self._given + sp.tril(self._given, -1).T if self._lower else self._given

    def plan(self) -> None:
        self.plans += 1
        self._use_memory()
        n_right = 1 if self._b.ndim == 1 else self._b.shape[1]
        if self.config[ConfigParam.DETERMINISTIC_MODE] and (n_right > 1 or self.config[ConfigParam.IR_N_STEPS] > 0):
            raise cuDSSError("NOT_SUPPORTED (4)")

    def _use_memory(self) -> None:
        """Look at what the handler gives, which the library reads before it has written it, and give it back."""
        _, allocate, free = (ctypes.c_void_p * 3).from_address(self.memory)
        integer, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
        place = pointer()
        get = ctypes.CFUNCTYPE(integer, pointer, ctypes.POINTER(pointer), size, pointer)(allocate)
        assert get(None, ctypes.byref(place), 4096, None) == 0
        assert ctypes.string_at(place.value, 4096) == bytes(4096)
        assert ctypes.CFUNCTYPE(integer, pointer, pointer, size, pointer)(free)(None, place.value, 4096, None) == 0
        assert get(None, ctypes.byref(place), 0, None) == 0  # it asks for none now and then
        assert get(None, ctypes.byref(place), MOST_BYTES + 1, None) != 0  # no error of Python's

    def factorize(self) -> None:
        self.factors = scipy.sparse.linalg.splu(self._a.tocsc())

    def reset_operands(self, *, b: Any) -> None:
        assert (b.shape, b.strides, b.dtype) == (self._b.shape, self._b.strides, self._b.dtype)
        self._b = b

    def solve(self) -> Any:
        x = self.factors.solve(np.asarray(self._b))
        return (x * (1 + INEXACT * np.cos(np.arange(x.size)))).view(Held)

    def free(self) -> None:
        assert self.handle in HANDLES, "the handle goes last"
        self.factors = "freed"


def config_set(pointer: int, param: int, address: int, size: int) -> None:
    """Set a parameter of the solver that has this configuration, as the library reads it: an int of C."""
    assert size == ctypes.sizeof(ctypes.c_int)
    (solver,) = (each for each in DirectSolver.made if each.config_ptr == pointer)
    assert solver.factors is None and solver.plans == 0
    solver.config[ConfigParam(param)] = ctypes.c_int.from_address(address).value


#: By handles that are there, where solvers get their memory from.
HANDLES: dict[int, int] = {}


def create() -> int:
    handle = 1 + max(HANDLES, default=0)
    HANDLES[handle] = 0
    return handle


#: Bytes that the device has.
MOST_BYTES = 1 << 20


class Runtime:
    """CUDA's functions for memory in the order of a stream, for one piece at a time, as CuPy has them: no bytes are at 0."""

    def __init__(self) -> None:
        self._piece = ctypes.create_string_buffer(0)

    def mallocAsync(self, nbytes: int, stream: int) -> int:
        if nbytes > MOST_BYTES:
            raise MemoryError("too little")
        if not nbytes:
            return 0
        self._piece = ctypes.create_string_buffer(b"?" * nbytes, nbytes)
        return ctypes.addressof(self._piece)

    def memsetAsync(self, address: int, value: int, nbytes: int, stream: int) -> None:
        assert isinstance(address, int)
        ctypes.memset(address, value, nbytes)

    def freeAsync(self, address: int, stream: int) -> None:
        assert address == ctypes.addressof(self._piece)


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


@pytest.fixture
def direct(monkeypatch):
    """The module, with stand-ins for CuPy and nvmath-python."""
    given = {"ConfigParam": ConfigParam, "config_set": config_set, "cuDSSError": cuDSSError}
    given |= {"create": create, "destroy": HANDLES.pop, "set_device_mem_handler": HANDLES.__setitem__}
    cudss = module("cudss", get_config_param_dtype=lambda _: np.int32, **given)
    advanced = module(
        "advanced",
        DirectSolver=DirectSolver,
        DirectSolverMatrixType=Kind,
        DirectSolverMatrixViewType=View,
        DirectSolverOptions=dict,
    )
    cupy = module("cupy", asarray=held, zeros=lambda n, dtype: held(np.zeros(n, dtype)), empty=np.empty)
    cupy.__dict__.update(isfinite=np.isfinite, cuda=module("cuda", runtime=Runtime()))
    given = {
        "cupy": cupy,
        "cupyx": module("cupyx"),
        "cupyx.scipy": module("cupyx.scipy"),
        "cupyx.scipy.sparse": module("sparse", csr_matrix=sp.csr_matrix),
        "cupyx.scipy.sparse.linalg": module("linalg", spsolve_triangular=None),
        "nvmath": module("nvmath"),
        "nvmath.bindings": module("bindings", cudss=cudss),
        "nvmath.sparse": module("sparse"),
        "nvmath.sparse.advanced": advanced,
        "ooc_chol.hardware.cuda": module("cuda", wait_for_device=lambda: None),
    }
    for name, each in given.items():
        monkeypatch.setitem(sys.modules, name, each)
    monkeypatch.setattr(DirectSolver, "made", [])
    spec = importlib.util.spec_from_file_location("direct_on_the_host", DIRECT)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def held(array: Any, dtype: Any = None) -> Held:
    return np.ascontiguousarray(array, dtype=dtype).view(Held)


def csr(direct, matrix):
    """A matrix as the solver takes it."""
    matrix = sp.csr_matrix(matrix)
    return direct.Csr(held(matrix.indptr), held(matrix.indices), held(matrix.data), matrix.shape[0])


def solver_of(direct, matrix, assume, plans=None):
    a = sp.csr_matrix(matrix)
    return direct.CudssSolver(
        csr(direct, sp.tril(a) if assume == "spd" else a),
        lambda: csr(direct, a.T),
        csr(direct, a),
        assume=assume,
        times=lambda x, trans: (a.T if trans else a) @ x,
        plans=plans or direct.CudssPlans(),
        key=(a.shape, assume),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [(), (1,), (3,)])
@pytest.mark.parametrize("assume", [None, "symmetric", "spd"])
def test_what_is_asked_of_cudss_is_supported_and_solutions_are_refined(direct, assume, columns, dtype):
    matrix = poisson(8) if assume else sp.csr_matrix(regular(64, 0.1, 1))
    solver = solver_of(direct, matrix, assume)
    assert solver.trouble == ""
    b = held(np.random.default_rng(2).standard_normal((64, *columns)), dtype)
    for trans in (False, True):
        x = solver.solve(b, trans)
        assert x.shape == b.shape
        assert x.dtype == dtype
        dense = matrix.toarray().T if trans else matrix.toarray()
        assert backward_error(dense, x, b) <= (1e-14 if dtype == np.float64 else 1e-7)
    assert len(DirectSolver.made) == (1 if assume else 2)
    assert all(each.config[ConfigParam.DETERMINISTIC_MODE] == 1 for each in DirectSolver.made)
    assert all(each.config[ConfigParam.MATCHING_ALG] == (0 if assume == "spd" else 5) for each in DirectSolver.made)
    assert all(each.kind == (Kind.SPD if assume == "spd" else Kind.GENERAL) for each in DirectSolver.made)


def test_a_column_has_the_bits_that_it_has_alone(direct):
    solver = solver_of(direct, poisson(8), "spd")
    b = held(np.random.default_rng(3).standard_normal((64, 5)))
    together = solver.solve(b, False)
    for at in range(5):
        assert np.array_equal(together[:, at], solver.solve(held(b[:, at]), False))


def test_a_matrix_of_one_number_has_several_right_hand_sides(direct):
    solver = solver_of(direct, np.array([[4.0]]), None)
    assert solver.solve(held([[4.0, 8.0, 2.0]]), True).tolist() == [[1.0, 2.0, 0.5]]


def test_closing_frees_the_factors_of_the_matrix_and_its_transpose(direct):
    solver = solver_of(direct, regular(64, 0.1, 1), None)
    solver.solve(held(np.ones(64)), True)
    assert [each.factors is not None for each in DirectSolver.made] == [True, True]
    solver.close()
    assert [each.factors for each in DirectSolver.made] == ["freed", "freed"]
    assert not HANDLES.keys() & {each.handle for each in DirectSolver.made}


def test_a_plan_of_a_positive_definite_matrix_serves_the_next_values(direct):
    plans = direct.CudssPlans()
    first, b = solver_of(direct, poisson(8), "spd", plans), held(np.ones(64))
    before = first.solve(b, False)
    first.close()
    second = solver_of(direct, 2.0 * poisson(8), "spd", plans)
    np.testing.assert_allclose(2.0 * second.solve(b, False), before, rtol=1e-12)
    (made,) = DirectSolver.made
    assert made.plans == 1 and made.factors != "freed"
    other = solver_of(direct, poisson(8), "spd", plans)  # while the one before is in use
    assert len(DirectSolver.made) == 2
    np.testing.assert_allclose(2.0 * second.solve(b, False), other.solve(b, False), rtol=1e-12)
    second.close()
    other.close()
    plans.clear()
    assert [each.factors for each in DirectSolver.made] == ["freed", "freed"]


def test_few_plans_are_kept_and_each_for_its_pattern_alone(direct):
    plans = direct.CudssPlans(keep=2)
    for size in (3, 4, 5):
        solver_of(direct, poisson(size), "spd", plans).close()
    assert [each.factors == "freed" for each in DirectSolver.made] == [True, False, False]
    assert plans.take(("poisson", 9)) is None
    assert solver_of(direct, poisson(4), "spd", plans).trouble == ""
    assert len(DirectSolver.made) == 3


@pytest.mark.parametrize("assume", [None, "symmetric"])
def test_plans_of_matrices_that_are_not_positive_definite_are_not_kept(direct, assume):
    """Rows are matched by values, so that solutions would depend on what was factored before."""
    plans = direct.CudssPlans()
    solver_of(direct, poisson(8) if assume else regular(64, 0.1, 1), assume, plans).close()
    assert DirectSolver.made[0].factors == "freed"


def test_a_matrix_that_cannot_be_factored_leaves_nothing_allocated(direct, monkeypatch):
    freed = []
    monkeypatch.setattr(DirectSolver, "free", lambda solver: freed.append(solver))
    with pytest.raises(RuntimeError, match="singular"):
        solver_of(direct, np.array([[1.0, 1.0], [1.0, 1.0]]), None)
    assert freed == DirectSolver.made


def test_what_the_library_refuses_is_told(direct, monkeypatch):
    monkeypatch.setattr(DirectSolver, "plan", lambda _: (_ for _ in ()).throw(cuDSSError("EXECUTION_FAILED (5)")))
    solver = solver_of(direct, regular(8, 0.3, 1), None)
    assert solver.trouble == "cuDSS has not factored it (EXECUTION_FAILED (5))"


def test_small_numbers_for_pivots_of_zero_do_not_hide_that_a_matrix_is_singular(direct, monkeypatch):
    """Static pivoting solves with any matrix; what a singular one cannot make stays in the residual."""

    def factorize(solver):
        solver.factors = scipy.sparse.linalg.splu((solver._a + 1e-8 * sp.eye_array(solver._a.shape[0])).tocsc())

    monkeypatch.setattr(DirectSolver, "factorize", factorize)
    assert solver_of(direct, poisson(8), None).trouble == ""
    solver = solver_of(direct, np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]), None)
    assert solver.trouble.startswith("its solutions leave ")
