"""What refining promises: FP64's accuracy from a factor of less, few readings of A, and an honest error where it cannot."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg  # which solves import when they first need it: not in the middle of a test that measures memory
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ooc_chol import from_function
from ooc_chol.errors import NonFiniteError, OocCholError, RefinementError, TierError
from ooc_chol.toolbox import cuda_source
from tests.host.matrices import FAMILIES, backward_errors, lapack_factor, upper_poisoned
from tests.host.turns import in_turn
from tests.inside.dense import RefinedSolution, refined_solve
from tests.inside.memory import AbstractSource, as_source
from tests.inside.tasks import TileGrid
from tests.products import share_of_examples
from tests.tolerances import REFINED_C, refined_bound, unit_roundoff

pytestmark = pytest.mark.usefixtures("no_hang")

Matrix = NDArray[np.float64]
N, NB = 130, 37


# poor factors


def row_powers(a: Matrix) -> NDArray[np.intc]:
    """Powers of two near the roots of the diagonal."""
    return np.frexp(np.sqrt(np.abs(np.diagonal(a))))[1]


def rounded(a: Matrix, dtype: type) -> Matrix:
    """LAPACK's factor, its rows scaled as the storage formats scale tiles, rounded to ``dtype``."""
    powers = row_powers(a)[:, None]
    return np.ldexp(np.ldexp(lapack_factor(a), -powers).astype(dtype).astype(float), powers)


def perturbed(a: Matrix, size: float) -> Matrix:
    """LAPACK's factor with random relative errors."""
    return lapack_factor(a) * (1 + size * np.random.default_rng(7).standard_normal(a.shape))


POOR: dict[str, Callable[[Matrix], Matrix]] = {
    "fp32": lambda a: rounded(a, np.float32),
    "fp16": lambda a: rounded(a, np.float16),
    "errors of 1e-5": lambda a: perturbed(a, 1e-5),
    "errors of 1e-3": lambda a: perturbed(a, 1e-3),
}
#: Too ill-conditioned for the other two.
HARD = ("random, condition 1e10", "gaussian nugget 1e-12")
SOLVABLE = [
    *in_turn([family for family in FAMILIES if family not in HARD], list(POOR), each=2),
    *((family, kind) for family in HARD for kind in ("fp32", "errors of 1e-5")),
]


def solver(factor: Matrix) -> Callable[[Matrix], Matrix]:
    """What ``L.solve`` does."""

    def solve(r: Matrix) -> Matrix:
        y = scipy.linalg.solve_triangular(factor, r, lower=True, check_finite=False)
        return np.ascontiguousarray(scipy.linalg.solve_triangular(factor, y, lower=True, trans=1, check_finite=False))

    return solve


def refined(a: Matrix, factor: Matrix, b: Matrix, nb: int = NB, **options: int) -> RefinedSolution:
    return refined_solve(as_source(upper_poisoned(a)), solver(factor), b, grid=TileGrid(len(a), nb), **options)


def right_hand_sides(n: int, m: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal((n, m))


def scaled_backward_errors(a: Matrix, x: Matrix, b: Matrix) -> Matrix:
    """The same of the system whose diagonal is scaled to 1 by powers of two."""
    powers = row_powers(a)
    a_unit = np.ldexp(a, -(powers[:, None] + powers[None, :]))
    return backward_errors(a_unit, np.ldexp(x, powers[:, None]), np.ldexp(b, -powers[:, None]))


def assert_solved(a: Matrix, b: Matrix, solution: RefinedSolution) -> None:
    """Both backward errors, beside LAPACK's; and what the result says of itself."""
    lapack = scipy.linalg.cho_solve((lapack_factor(a), True), b)
    reported = np.zeros(b.shape[1])
    for measure in (backward_errors, scaled_backward_errors):
        errors = measure(a, solution.x, b)
        assert np.all(errors <= refined_bound(len(a), measure(a, lapack, b))), errors / unit_roundoff(np.float64)
        reported = np.maximum(reported, errors)
    assert solution.converged.all() and np.all(solution.backward_errors <= solution.bound)
    assert np.all(np.abs(solution.backward_errors - reported) <= refined_bound(len(a)))


# numbers


@pytest.mark.parametrize(("family", "kind"), SOLVABLE)
def test_every_family_is_solved_as_well_as_by_lapack(family, kind):
    for n, nb, m in ((1, 1, 1), (5, 2, 3), (64, 64, 1), (N, NB, 3)):
        a = FAMILIES[family](n)
        b = right_hand_sides(n, m)
        kept = b.copy()
        solution = refined(a, POOR[kind](a), b, nb)
        assert np.array_equal(b, kept) and solution.x.shape == b.shape
        assert_solved(a, b, solution)
        assert solution.methods == ("cg",) * m


@share_of_examples(0.4)
@given(n=st.integers(1, 60), nb=st.integers(1, 70), m=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_any_tiling_and_number_of_right_hand_sides(n, nb, m, seed):
    a = FAMILIES["matern15 nugget 1e-6"](n)
    b = right_hand_sides(n, m, seed)
    assert_solved(a, b, refined(a, POOR["fp16"](a), b, nb))


def test_a_factor_of_fp64_needs_no_iteration():
    a = FAMILIES["exponential"](N)
    solution = refined(a, lapack_factor(a), right_hand_sides(N, 2))
    assert solution.iterations.tolist() == [0, 0]


def test_the_forward_error_is_that_of_fp64():
    a, x = FAMILIES["exponential"](N), right_hand_sides(N, 1)
    solution = refined(a, POOR["fp16"](a), a @ x)
    condition = np.linalg.cond(a, np.inf)
    assert np.abs(solution.x - x).max() <= 2 * condition * refined_bound(N) * np.abs(x).max()


def test_right_hand_sides_of_zeros():
    a, b = FAMILIES["exponential"](N), right_hand_sides(N, 3)
    b[:, 1] = 0.0
    solution = refined(a, POOR["fp16"](a), b)
    assert not solution.x[:, 1].any()
    assert solution.iterations[1] == 0 and solution.backward_errors[1] == 0.0 and solution.converged.all()
    assert np.all(backward_errors(a, solution.x[:, ::2], b[:, ::2]) <= refined_bound(N))


@pytest.mark.parametrize("m", [0, 1, 3])
def test_nothing_but_zeros_reads_nothing(m):
    source = Counting(FAMILIES["exponential"](N))
    solution = refined_solve(source, solver(np.eye(N)), np.zeros((N, m)), grid=TileGrid(N, NB))
    assert solution.x.shape == (N, m) and not solution.x.any() and len(solution.methods) == m
    assert source.reads == {}


# readings of A


class Counting(AbstractSource):
    """A matrix that counts the readings of each tile, and may fail at one of them."""

    name, bytes_per_entry = "counting", 8

    def __init__(self, a: Matrix, fail_at: int = -1) -> None:
        self._source, self.n, self.reads, self._left = as_source(a), len(a), {}, fail_at

    def _read(self, rows, cols, out):
        self._left -= 1
        if self._left == 0:
            raise TierError("the disk is gone")
        place = rows.start, cols.start
        assert place[0] >= place[1], "read above the diagonal"
        self.reads[place] = self.reads.get(place, 0) + 1
        self._source.read_block(rows, cols, out)


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("kind", POOR)
def test_each_iteration_reads_each_tile_once_for_all_right_hand_sides(kind, m):
    a, grid = FAMILIES["matern15 nugget 1e-6"](N), TileGrid(N, NB)
    source = Counting(a)
    solution = refined_solve(source, solver(POOR[kind](a)), right_hand_sides(N, m), grid=grid)
    passes = {place: count for place, count in source.reads.items() if place[0] != place[1]}
    assert len(passes) == grid.n_tiles - grid.nt and len(set(passes.values())) == 1
    assert set(passes.values()).pop() <= max(solution.iterations) + 2
    # Diagonal tiles are read once more, for the scales.
    assert max(source.reads.values()) <= max(solution.iterations) + 3


def test_memory_is_vectors_and_a_few_tiles():
    n, nb, m = 1200, 150, 2
    generated = from_function(n, lambda rows, cols, out, stream: exponential_tile(rows, cols, out))
    diagonal = np.diagonal(np.linalg.cholesky(dense(generated))).copy()[:, None]
    b = right_hand_sides(n, m)
    tracemalloc.start()
    with pytest.raises(RefinementError):
        refined_solve(generated, lambda r: r / diagonal**2, b, grid=TileGrid(n, nb), most_iterations=20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 8 * (30 * n * m + 6 * nb**2)


def exponential_tile(rows: range, cols: range, out: Matrix) -> None:
    np.subtract.outer(np.asarray(rows), np.asarray(cols), out=out)
    np.abs(out, out=out)
    out /= -300.0
    np.exp(out, out=out)


def dense(source: AbstractSource) -> Matrix:
    a = np.empty((source.n, source.n))
    source.read_block(range(source.n), range(source.n), a)
    return a


# sources


def test_every_source_of_the_host(tmp_path):
    a, b = FAMILIES["exponential"](N), right_hand_sides(N, 3)
    poisoned = upper_poisoned(a)
    np.save(tmp_path / "a.npy", poisoned)
    raw = np.memmap(tmp_path / "a.raw", dtype=float, mode="w+", shape=(N, N))
    raw[...] = poisoned
    raw.flush()

    def tile(rows, cols, out, stream):
        out[...] = poisoned[rows.start : rows.stop, cols.start : cols.stop]

    sources = {
        "array": as_source(poisoned),
        "column-major": as_source(np.asfortranarray(poisoned)),
        "reversed": as_source(np.ascontiguousarray(poisoned[::-1, ::-1])[::-1, ::-1]),
        "file": as_source(tmp_path / "a.npy"),
        "memory map": as_source(raw),
        "function": from_function(N, tile),
        "function beside one for CUDA": from_function(N, tile, cuda=CUDA_TILE),
    }
    solve = solver(POOR["fp16"](a))
    for source in sources.values():
        assert_solved(a, b, refined_solve(source, solve, b, grid=TileGrid(N, NB)))
        source.close()


def test_a_matrix_of_fp32_is_widened():
    a, b = FAMILIES["matern15 nugget 1e-6"](N).astype(np.float32), right_hand_sides(N, 1)
    wide = a.astype(float)
    assert_solved(wide, b, refined_solve(as_source(a), solver(POOR["fp32"](wide)), b, grid=TileGrid(N, NB)))


CUDA_TILE = cuda_source('extern "C" __global__ void tile(double* out, int rows, int cols, long long r0, long long c0) {}', "tile")


def test_a_function_for_cuda_alone_is_refused_before_anything_is_solved():
    def never(r):
        raise AssertionError("solved")

    with pytest.raises(TypeError, match=r"on the host.*CUDA source.*give from_function a host function beside cuda="):
        refined_solve(from_function(N, CUDA_TILE), never, np.ones((N, 1)), grid=TileGrid(N, NB))


@pytest.mark.parametrize("place", [(0, 0), (40, 3), (129, 129), (129, 100)])
def test_entries_that_are_not_finite_are_found(place):
    a = upper_poisoned(FAMILIES["exponential"](N))
    a[place] = np.nan
    with pytest.raises(NonFiniteError) as caught:
        refined_solve(as_source(a), solver(np.eye(N)), np.ones((N, 1)), grid=TileGrid(N, NB))
    assert (caught.value.row, caught.value.col) == place


@pytest.mark.parametrize("at", [1, 5, 9, 20])
def test_a_source_that_fails_leaves_no_thread(at):
    a, before = FAMILIES["exponential"](N), set(threading.enumerate())
    with pytest.raises(TierError, match="the disk is gone"):
        refined_solve(Counting(a, fail_at=at), solver(POOR["fp16"](a)), np.ones((N, 1)), grid=TileGrid(N, NB))
    assert set(threading.enumerate()) <= before


# what cannot be refined


def assert_honest(error: RefinementError, a: Matrix, b: Matrix) -> None:
    """The facts of the error, and a solution that has the backward error it claims."""
    assert isinstance(error, OocCholError)
    assert error.bound == REFINED_C * np.sqrt(len(a)) * unit_roundoff(np.float64) < error.backward_error
    errors = np.maximum(backward_errors(a, error.x, b), scaled_backward_errors(a, error.x, b))
    assert errors[error.column] == errors.max() == pytest.approx(error.backward_error, rel=0.01)
    assert "smaller precision_threshold" in str(error) and "FP64" in str(error) and error.reason in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.iterations, again.column) == (str(error), error.iterations, error.column)
    assert np.array_equal(again.x, error.x)


def test_one_iteration_is_too_few():
    a, b = FAMILIES["matern15 nugget 1e-6"](N), right_hand_sides(N, 3)
    with pytest.raises(RefinementError, match="most_iterations=1 is used up") as caught:
        refined(a, POOR["fp16"](a), b, most_iterations=1)
    assert caught.value.iterations == 1
    assert_honest(caught.value, a, b)


@pytest.mark.parametrize("family", ["random, condition 1e10", "matern25 nugget 1e-6"])
def test_a_useless_preconditioner(family):
    a, b = FAMILIES[family](N), right_hand_sides(N, 2)
    with pytest.raises(RefinementError) as caught:
        refined(a, np.eye(N), b)
    assert 1 < caught.value.iterations <= 100
    assert_honest(caught.value, a, b)


@pytest.mark.parametrize("most", [3, 30, 100, 1000])
def test_what_is_too_ill_conditioned_is_improved_at_least(most):
    a, b = FAMILIES["random, condition 1e10"](N), right_hand_sides(N, 2)
    factor = POOR["errors of 1e-3"](a)
    with pytest.raises(RefinementError) as caught:
        refined(a, factor, b, most_iterations=most)
    assert caught.value.iterations <= most
    assert_honest(caught.value, a, b)
    assert caught.value.backward_error <= scaled_backward_errors(a, solver(factor)(b), b).max()


def test_one_bad_right_hand_side_does_not_spoil_the_others():
    a, b = np.eye(N), np.eye(N)[:, [0, N - 1]]
    a[N - 1, N - 1] = 0.0  # singular, and only the second right-hand side sees it
    with pytest.raises(RefinementError) as caught:
        refined(a, np.eye(N), b)
    assert caught.value.column == 1
    assert np.array_equal(caught.value.x[:, 0], b[:, 0])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_factor_that_is_not_finite(value):
    a, b = FAMILIES["exponential"](N), right_hand_sides(N, 1)
    with pytest.raises(RefinementError, match="stay finite") as caught:
        refined_solve(as_source(a), lambda r: np.full_like(r, value), b, grid=TileGrid(N, NB))
    assert np.isfinite(caught.value.x).all()


# GMRES


def indefinite(n: int) -> tuple[Matrix, Matrix, Matrix]:
    """A with eigenvalues of both signs, a factor of that of their magnitudes, and the eigenvectors."""
    basis, _ = np.linalg.qr(np.random.default_rng(4).standard_normal((n, n)))
    values = np.geomspace(1.0, 100.0, n)
    magnitude, signed = (basis * values) @ basis.T, (basis * values * np.where(np.arange(n) % 3, 1.0, -1.0)) @ basis.T
    return (signed + signed.T) / 2, POOR["fp32"]((magnitude + magnitude.T) / 2), basis


def test_gmres_solves_what_conjugate_gradients_cannot():
    a, factor, _ = indefinite(N)
    b = right_hand_sides(N, 3)
    solution = refined(a, factor, b)
    assert solution.methods == ("gmres",) * 3
    assert np.all(solution.iterations < 30)
    assert np.all(backward_errors(a, solution.x, b) <= refined_bound(N, np.inf)) and solution.converged.all()


def test_only_those_that_need_it_go_to_gmres():
    a, b = np.diag(np.where(np.arange(N) < 50, 2.0, -3.0)), np.zeros((N, 2))
    b[:50, 0], b[:, 1] = 1.0, 1.0
    solution = refined(a, np.eye(N), b)
    assert solution.methods == ("cg", "gmres")
    assert np.all(backward_errors(a, solution.x, b) <= refined_bound(N, np.inf))


def test_gmres_gives_up_honestly():
    a, _, _ = indefinite(N)
    b = right_hand_sides(N, 2)
    with pytest.raises(RefinementError) as caught:
        refined(a, np.eye(N), b, most_iterations=40)
    assert caught.value.iterations <= 40
    assert_honest(caught.value, a, b)


# arguments


@pytest.mark.parametrize(
    ("b", "options", "error", "text"),
    [
        (np.ones(N), {}, ValueError, r"must be \(130, m\)"),
        (np.ones((N - 1, 1)), {}, ValueError, "must be"),
        (np.full((N, 1), np.nan), {}, ValueError, "mend or drop that row"),
        (np.ones((N, 1), dtype=complex), {}, TypeError, "complex128"),
        (np.ones((N, 1)), {"most_iterations": 0}, ValueError, "most_iterations is 0"),
        (np.ones((N, 1)), {"grid": TileGrid(N + 1, NB)}, ValueError, "order 131"),
    ],
)
def test_arguments_that_do_not_fit(b, options, error, text):
    a = np.eye(N)
    with pytest.raises(error, match=text):
        refined_solve(as_source(a), solver(a), b, **{"grid": TileGrid(N, NB), **options})
