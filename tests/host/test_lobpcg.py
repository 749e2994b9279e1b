"""LOBPCG: the right end of the spectrum, all copies, preconditioners of every kind, and null vectors left out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator, spilu, splu

import ooc_chol as oc
from tests.host.eigen_matrices import BLOCKS, adjacency, check_pairs, with_spectrum
from tests.inside.eigen import Lobpcg, OperatorSpace, Preconditioner, Wanted, lobpcg_capacity, open_space
from tests.products import share_of_examples, thorough

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

HOST = {"devices": "host:0"}


def laplacian(adjacency):
    """``D - A`` as one of SciPy's."""
    return (scipy.sparse.diags_array(adjacency.sum(axis=1)) - adjacency).tocsr()


def grid(rows: int, columns: int):
    """Laplacian of a grid, and all its eigenvalues, ascending."""
    paths = [laplacian(scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(m, m))) for m in (rows, columns)]
    values = [2 - 2 * np.cos(np.pi * np.arange(m) / m) for m in (rows, columns)]
    return scipy.sparse.kronsum(paths[0], paths[1], format="csr"), np.sort(np.add.outer(*values).reshape(-1))


def exact(a, shift: float = 1e-4):
    """Solves with ``A + shift I``."""
    factor = splu((a + shift * scipy.sparse.eye_array(a.shape[0])).tocsc())
    return factor.solve


def components(*sizes: int):
    """Laplacian of a graph of several components, and a null vector for each."""
    a = scipy.sparse.block_diag([adjacency(n, 3 * n, seed) for seed, n in enumerate(sizes)], format="csr")
    member = np.repeat(np.arange(len(sizes)), sizes)
    return laplacian(a), (member[:, None] == np.arange(len(sizes))).astype(float)


# right


@pytest.mark.parametrize(("block", "most"), [(1, 80), (2, 48), (4, 28), (8, 17)])
def test_the_smallest_eigenvalues_of_a_grid_are_those_that_are_known(block, most):
    a, values = grid(40, 31)
    pairs = oc.eigsh(a, 6, which="SA", method="lobpcg", preconditioner=exact(a), block=block, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - values[:6]).max() <= 1e-9
    assert pairs.report.passes <= most


@pytest.mark.parametrize("precision", ["DDD", "FDF", "FFF"])
def test_a_null_vector_is_left_out(precision):
    a, values = grid(40, 31)
    pairs = oc.eigsh(a, 3, which="SA", preconditioner=exact(a), null=np.ones(a.shape[0]), precision=precision, **HOST)
    tol = {"DDD": 1e-10, "FDF": 1e-6, "FFF": 1e-5}[precision]
    check_pairs(a, pairs, tol)
    assert np.abs(pairs.eigenvalues - values[1:4]).max() <= 8 * tol
    assert np.abs(pairs.eigenvectors.sum(axis=0)).max() <= 1e-2 * np.sqrt(a.shape[0])


def test_without_a_preconditioner_both_ends_are_found():
    a, values = grid(12, 13)
    for which, expected in (("SA", values[:4]), ("LA", values[-4:])):
        pairs = oc.eigsh(a, 4, which=which, method="lobpcg", tol=1e-9, **HOST)
        check_pairs(a, pairs, 1e-9)
        assert np.abs(pairs.eigenvalues - expected).max() <= 1e-7


@pytest.mark.parametrize("examples", [15, *thorough(150)])
def test_both_ends_of_random_matrices_are_lapacks(examples):
    @given(
        n=st.integers(1, 150),
        share=st.floats(0.02, 0.3),
        seed=st.integers(0, 2**32 - 1),
        which=st.sampled_from(["LA", "SA"]),
        block=st.sampled_from(BLOCKS),
        data=st.data(),
    )
    def agrees(n, share, seed, which, block, data):
        k = data.draw(st.integers(1, min(n, 9)))
        a = scipy.sparse.random_array((n, n), density=share, rng=np.random.default_rng(seed))
        a = (a + a.T + scipy.sparse.diags_array(np.arange(n) % 17 / 2.0)).tocsr()
        sign = 1 if which == "SA" else -1
        values = np.linalg.eigvalsh(a.toarray())
        shift = values[0] - 0.5 if which == "SA" else values[-1] + 0.5
        m = np.linalg.inv(sign * (a.toarray() - shift * np.eye(n)))
        pairs = oc.eigsh(a, k, which=which, preconditioner=(m + m.T) / 2, block=block, tol=1e-8, **HOST)
        check_pairs(a, pairs, 1e-8)
        expected = values[:k] if which == "SA" else values[-k:]
        assert np.abs(pairs.eigenvalues - expected).max() <= 2e-8 * np.abs(values).max() + 1e-300

    share_of_examples(examples / 50)(agrees)()


# multiplicity


@pytest.mark.parametrize("block", [2, 8])
def test_all_zero_eigenvalues_of_a_disconnected_graph_are_found(block):
    a, ones = components(150, 200, 170, 90, 130, 110, 160, 140)
    pairs = oc.eigsh(a, 9, which="SA", preconditioner=exact(a), block=block, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues[:8]).max() <= 1e-8 < pairs.eigenvalues[8]
    inside = ones / np.linalg.norm(ones, axis=0)
    assert np.abs(np.linalg.svd(inside.T @ pairs.eigenvectors[:, :8])[1] - 1).max() <= 1e-8


def test_all_null_vectors_of_a_disconnected_graph_are_left_out():
    a, ones = components(150, 200, 170, 90, 130)
    expected = np.linalg.eigvalsh(a.toarray())[5:9]
    doubled = np.concatenate([ones, ones[:, :2] + ones[:, 2:4]], axis=1)  # dependent columns do no harm
    pairs = oc.eigsh(a, 4, which="SA", preconditioner=exact(a), null=doubled, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - expected).max() <= 1e-8


def test_the_inverse_takes_the_place_of_hundreds_of_passes_beside_null_vectors():
    a, values = grid(60, 50)
    ones = np.ones(a.shape[0])
    pairs = oc.eigsh(a, 5, which="SA", null=ones, **HOST)
    check_pairs(a, pairs, 1e-12)
    assert pairs.report.method == "shift-invert" and "took the place of LOBPCG" in pairs.report.notes[-1]
    assert np.abs(pairs.eigenvalues - values[1:6]).max() <= 1e-12
    assert np.abs(ones @ pairs.eigenvectors).max() <= 1e-8
    asked = oc.eigsh(a, 5, which="SA", null=ones, method="lobpcg", tol=1e-8, **HOST)
    assert asked.report.method == "lobpcg" and np.abs(asked.eigenvalues - pairs.eigenvalues).max() <= 1e-6
    slope = np.arange(a.shape[0], dtype=float)  # no null vector: what is orthogonal to it is looked at, as LOBPCG does
    for options in ({"null": slope}, {"null": ones, "block": 4}, {"null": ones, "precision": "FFF"}):
        given = oc.eigsh(a, 2, which="SA", tol=1e-3, **options, **HOST)
        assert given.report.method == "lobpcg" and not given.report.notes


def test_null_vectors_that_are_known_roughly_are_left_out_to_roundoff():
    a, values = grid(50, 50)
    rough = np.ones(2500) + 1e-6 * np.random.default_rng(0).standard_normal(2500)
    pairs = oc.eigsh(a, 6, which="SA", null=rough, **HOST)
    assert pairs.report.method == "shift-invert" and pairs.report.passes < 40 and len(pairs.report.counts.checks) == 1
    assert np.abs(pairs.eigenvalues - values[1:7]).max() <= 1e-12
    assert np.abs(np.ones(2500) @ pairs.eigenvectors).max() <= 1e-10


def test_zeros_beyond_the_null_vectors_that_are_known_are_found_by_the_inverse():
    a, ones = components(900, 700, 800)
    pairs = oc.eigsh(a, 3, which="SA", null=ones[:, :2], **HOST)
    check_pairs(a, pairs, 1e-10)
    assert pairs.report.method == "shift-invert"
    assert abs(pairs.eigenvalues[0]) <= 1e-10 < 1e-2 < pairs.eigenvalues[1]
    assert np.abs(ones[:, :2].T @ pairs.eigenvectors).max() <= 1e-8


def test_clustered_eigenvalues_are_found_with_orthonormal_vectors():
    values = np.concatenate([1 + 1e-9 * np.arange(4), np.linspace(2, 30, 596)])
    a = with_spectrum(values, seed=3)
    pairs = oc.eigsh(a, 6, which="SA", preconditioner=exact(a, 0.0), **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - np.sort(values)[:6]).max() <= 1e-8


def test_what_a_start_without_a_part_in_it_misses_the_check_finds():
    a = scipy.sparse.diags_array(np.concatenate([np.arange(1.0, 201.0), np.arange(1.0, 201.0)])).tocsr()
    start = np.zeros((400, 2))
    start[:200] = np.random.default_rng(5).standard_normal((200, 2))  # the first half of A alone: nothing leads to the other
    options = {"which": "SA", "preconditioner": 1 / a.diagonal(), "v0": start, "block": 2, **HOST}
    blind = oc.eigsh(a, 2, check=False, **options)
    assert np.abs(blind.eigenvalues - [1, 2]).max() <= 1e-9
    pairs = oc.eigsh(a, 2, **options)
    assert np.abs(pairs.eigenvalues - [1, 1]).max() <= 1e-9
    assert [each.missed > 0 for each in pairs.report.checks] == [True, False]


# preconditioners


def test_every_kind_of_preconditioner_gives_the_same_pairs():
    a, values = grid(25, 24)
    shifted = (a + 1e-2 * scipy.sparse.eye_array(600)).tocsc()
    inverse = np.linalg.inv(shifted.toarray())
    incomplete = spilu(shifted, drop_tol=1e-3, diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    kinds = {
        "array": inverse,
        "sparse": scipy.sparse.csr_array(inverse),
        "operator": aslinearoperator(inverse),
        "one vector at a time": LinearOperator((600, 600), matvec=splu(shifted).solve, dtype=float),
        "function": splu(shifted).solve,
        "incomplete": incomplete.solve,
        "writes into what it is given": lambda x: np.multiply(x, 0.25, out=x),
    }
    passes = {}
    for name, m in kinds.items():
        pairs = oc.eigsh(a, 3, which="SA", preconditioner=m, null=np.ones(600), tol=1e-8, **HOST)
        check_pairs(a, pairs, 1e-8)
        assert np.abs(pairs.eigenvalues - values[1:4]).max() <= 1e-7, name
        passes[name] = pairs.report.passes
    assert len({passes[name] for name in ("array", "sparse", "operator", "function")}) == 1
    assert 3 * passes["incomplete"] < passes["writes into what it is given"]


def test_a_diagonal_helps_where_rows_differ_in_size():
    a, _ = grid(15, 20)
    weights = scipy.sparse.diags_array(np.logspace(0, 1.5, 300))
    scaled = (weights @ a @ weights + weights).tocsr()
    passes = {}
    for name, m in (("none", None), ("diagonal", 1 / scaled.diagonal())):
        pairs = oc.eigsh(scaled, 2, which="SA", method="lobpcg", preconditioner=m, tol=1e-8, **HOST)
        check_pairs(scaled, pairs, 1e-8)
        passes[name] = pairs.report.passes
    assert 4 * passes["diagonal"] < passes["none"]


@pytest.mark.parametrize(
    ("m", "words"),
    [
        (np.ones(99), "99"),
        (np.ones((100, 99)), "100 x 99"),
        (aslinearoperator(np.eye(99)), "99 x 99"),
        (scipy.sparse.eye_array(101), "101"),
        (np.r_[np.ones(50), 0.0, np.ones(49)], r"\[50\] = 0"),
        (np.r_[np.ones(7), -2.0, np.ones(92)], r"\[7\] = -2"),
        (np.r_[np.nan, np.ones(99)], r"\[0\] = nan"),
        (np.ones(100, dtype=complex), "complex"),
        (lambda x: -x, "positive definite"),
        (lambda x: x[:50], "50"),
        (lambda x: x * np.nan, "NaN"),
        (lambda x: x * 1j, "complex"),
    ],
)
def test_a_preconditioner_that_is_none_is_refused(m, words):
    a, _ = grid(10, 10)
    with pytest.raises(oc.errors.PreconditionerError, match=words):
        oc.eigsh(a, 2, which="SA", preconditioner=m, block=4, **HOST)


def test_a_preconditioner_of_a_wrong_type_is_refused():
    a, _ = grid(10, 10)
    for m in ("ilu", 3.0, object(), np.array(["a"] * 100)):
        with pytest.raises(TypeError, match="preconditioner is"):
            oc.eigsh(a, 2, which="SA", preconditioner=m, **HOST)


# what is asked


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"preconditioner": np.ones(100)}, ValueError, "one end"),
        ({"which": "SA", "null": np.ones(99)}, ValueError, r"\(99,\)"),
        ({"which": "SA", "null": np.zeros(100)}, ValueError, "zero"),
        ({"which": "SA", "null": np.full(100, np.inf)}, ValueError, "finite"),
        ({"which": "SA", "null": np.ones(100) * 1j}, TypeError, "complex"),
        ({"which": "SA", "null": np.arange(100.0)}, ValueError, "null holds a vector"),
        ({"which": "SA", "null": np.eye(100)[:, :99]}, ValueError, "99 null vectors"),
        ({"which": "SA", "preconditioner": np.ones(100), "ncv": 50}, ValueError, "ncv"),
        ({"which": "SA", "preconditioner": np.ones(100), "method": "lanczos"}, ValueError, "Lanczos takes neither"),
        ({"which": "SA", "preconditioner": np.ones(100), "sigma": 0.1}, ValueError, "sigma"),
        ({"which": "SA", "preconditioner": np.ones(100), "block": 3}, ValueError, "block is 3"),
        ({"method": "lopcg"}, ValueError, "lobpcg"),
    ],
)
def test_what_makes_no_sense_is_refused(options, error, words):
    a, _ = grid(10, 10)
    with pytest.raises(error, match=words):
        oc.eigsh(a, 2, **{"block": 4, **options}, **HOST)


@pytest.mark.parametrize(("m", "lowest"), [(25, 1e-3), (3, 0.05)])
def test_an_eigenvector_of_a_small_eigenvalue_is_no_null_vector(m, lowest):
    a = grid(m, m)[0] + lowest * scipy.sparse.eye_array(m * m)
    with pytest.raises(ValueError, match=rf"\|\|A v\|\| = {lowest}, where an eigenvalue beside it is"):
        oc.eigsh(a, 3, which="SA", null=np.ones(m * m), method="lobpcg", **HOST)


def test_a_matrix_that_is_not_symmetric_is_refused():
    for block in (1, 4):
        a = scipy.sparse.random_array((300, 300), density=0.05, rng=np.random.default_rng(1)).tocsr()
        with pytest.raises(ValueError, match="not symmetric"):
            oc.eigsh(a, 1, which="LA", method="lobpcg", block=block, **HOST)


def test_passes_that_are_used_up_say_what_has_converged():
    a, _ = grid(40, 40)
    with pytest.raises(oc.errors.NoConvergenceError, match="max_passes=20") as caught:
        oc.eigsh(a, 3, which="SA", method="lobpcg", max_passes=20, tol=1e-9, **HOST)
    assert len(caught.value.eigenvalues) < 3
    assert caught.value.worst > 1e-9


@pytest.mark.parametrize("a", [scipy.sparse.csr_array((300, 300)), scipy.sparse.eye_array(300).tocsr()])
def test_one_eigenvalue_of_all_is_no_trouble(a):
    pairs = oc.eigsh(a, 5, which="LA", method="lobpcg", **HOST)
    check_pairs(a, pairs, 1e-12)
    assert np.abs(pairs.eigenvalues - a[0, 0]).max() <= 1e-14


def test_small_matrices_are_solved_whole_null_vectors_left_out():
    a, values = grid(3, 4)
    pairs = oc.eigsh(a, 11, which="SA", method="lobpcg", null=np.ones(12), **HOST)
    check_pairs(a, pairs, 1e-12)
    assert np.abs(pairs.eigenvalues - values[1:]).max() <= 1e-12


# spaces


def test_a_diagonal_is_applied_on_devices_in_any_precision():
    a, _ = grid(15, 20)
    weights = scipy.sparse.diags_array(np.logspace(0, 1, 300))
    scaled = (weights @ a @ weights + weights).tocsr()
    lowest = np.linalg.eigvalsh(scaled.toarray())[:2]
    with oc.block_csr(scaled) as packed:
        for precision, tol in (("DDD", 1e-9), ("FDF", 1e-6)):
            m = Preconditioner(1 / scaled.diagonal(), 300)
            sizes = {"block": 4, "capacity": lobpcg_capacity(2, 4, diagonal=True)}
            with open_space(packed, **sizes, precision=precision, **HOST) as space:
                brought = space.brought_bytes
                found = Lobpcg(space, Wanted(2, "SA", tol), max_passes=500, preconditioner=m).run()
                brought = space.brought_bytes - brought
            assert not found.why_not
            assert np.abs(found.values - lowest).max() <= 10 * tol * found.scale
            assert found.counts.passes > 10
            # The diagonal was brought once; in each step only coefficients were.
            assert brought < 4 * 300 * 8 + 40_000 * 8 + found.counts.passes * 2 * 12 * 8 * 8 * 2


@pytest.mark.parametrize(("devices", "rows"), [(["host:0"], 60), (["host:0", "host:1"], 330)])
def test_spaces_of_devices_find_the_same(devices, rows):
    a, values = grid(rows, 200)  # in the second case more rows than one device takes
    n = a.shape[0]
    options = {"preconditioner": Preconditioner(exact(a), n), "null": np.ones((n, 1)) / np.sqrt(n), "max_passes": 60}
    wanted, capacity = Wanted(1, "SA", 1e-8), lobpcg_capacity(1, 2, 1)
    with oc.block_csr(a) as packed, open_space(packed, block=2, capacity=capacity, precision="DDD", devices=devices) as space:
        found = Lobpcg(space, wanted, **options).run()
        v = space.take(range(1))[:, :1]
    assert not found.why_not
    assert abs(found.values[0] - values[1]) <= 1e-7
    assert np.linalg.norm(a @ v - v * found.values) <= 1e-8 * found.scale
    host = OperatorSpace(a.__matmul__, n, block=2, capacity=capacity)
    assert abs(Lobpcg(host, wanted, **options).run().counts.passes - found.counts.passes) <= 2
