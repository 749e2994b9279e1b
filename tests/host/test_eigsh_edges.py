"""``oc.eigsh`` at the edges: spectra that are hard, matrices that are tiny or degenerate, and arguments that make no sense."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

import ooc_chol as oc
from tests.host.eigen_matrices import BLOCKS, adjacency, check_pairs, most_wanted, with_spectrum
from tests.products import thorough

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack", "one_blas_thread")]

HOST = {"devices": "host:0"}
WHICH = ["LM", "LA", "SA"]


def diagonal(values):
    return scipy.sparse.diags_array(np.asarray(values, dtype=float)).tocsr()


# spectra


@pytest.mark.parametrize("precision", oc.Precision)
@pytest.mark.parametrize("block", BLOCKS)
def test_the_identity(block, precision):
    pairs = oc.eigsh(diagonal(np.ones(300)), 6, block=block, precision=precision, **HOST)
    check_pairs(diagonal(np.ones(300)), pairs, 1e-5)
    assert np.abs(pairs.eigenvalues - 1).max() <= 1e-6


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("block", BLOCKS)
def test_the_zero_matrix(block, which):
    zero = scipy.sparse.csr_array((300, 300))
    pairs = oc.eigsh(zero, 5, which=which, block=block, **HOST)
    check_pairs(zero, pairs, 0.0)
    assert not pairs.eigenvalues.any()


@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_all_eigenpairs_of_tiny_matrices(n):
    a = np.random.default_rng(n).standard_normal((n, n))
    a = a + a.T
    for form in (a, scipy.sparse.csr_array(a), LinearOperator((n, n), matvec=lambda x: a @ x, dtype=float)):
        for which in WHICH:
            pairs = oc.eigsh(form, n, which=which)
            check_pairs(a, pairs, 1e-14)
            assert pairs.eigenvalues == pytest.approx(np.linalg.eigvalsh(a), abs=1e-13 * n)


@pytest.mark.parametrize("ncv", [None, 14, 20])
@pytest.mark.parametrize("block", [1, 2])
def test_a_matrix_of_rank_five(ncv, block):
    x = np.random.default_rng(5).standard_normal((30, 5))
    a = x @ np.diag([3.0, 2.0, 1.0, -1.0, -2.0]) @ x.T
    for which in WHICH:
        pairs = oc.eigsh(a, 8, which=which, ncv=None if ncv is None else ncv + 8 * (block - 1), block=block)
        check_pairs(a, pairs, 1e-10)
        exact = most_wanted(np.linalg.eigvalsh(a), 8, which)
        assert pairs.eigenvalues == pytest.approx(exact, abs=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("reference", ["residuals", *thorough("another block", "LAPACK")])
def test_many_eigenpairs_of_a_skewed_graph(reference):
    with oc.block_csr(oc.testing.rmat(12)) as packed:
        pairs = oc.eigsh(packed, 258, block=8, tol=1e-8, **HOST)
        a = packed.tocsr()
        other = oc.eigsh(packed, 258, block=2, tol=1e-8, **HOST).eigenvalues if reference == "another block" else None
    check_pairs(a, pairs, 1e-8)
    assert len(pairs.eigenvalues) == 258 and pairs.report.checks[-1].missed == 0
    if reference == "residuals":
        return
    exact = most_wanted(np.linalg.eigvalsh(a.toarray()), 258, "LM") if other is None else other
    assert np.abs(exact - pairs.eigenvalues).max() <= 1e-8 * np.abs(exact).max()


@pytest.mark.parametrize("block", BLOCKS)
def test_clusters_with_gaps_of_a_billionth(block):
    values = np.concatenate([np.linspace(0, 1, 594), 2 + 1e-9 * np.arange(6)])
    a = with_spectrum(values)
    pairs = oc.eigsh(a, 6, which="LA", block=block, tol=1e-12, **HOST)
    check_pairs(a, pairs, 1e-12)
    assert np.abs(pairs.eigenvalues - values[-6:]).max() <= 1e-11


def test_a_laplacian_of_several_components_has_zero_as_often():
    a = scipy.sparse.block_diag([adjacency(n, 3 * n, n) for n in (120, 150, 180)], format="csr")
    operator = oc.laplacian(a)
    for block in BLOCKS:
        pairs = oc.eigsh(operator, 4, which="SA", block=block, **HOST)
        assert np.abs(pairs.eigenvalues[:3]).max() <= 1e-8 and pairs.eigenvalues[3] > 1e-3
    operator.matrix.close()


# starts


@pytest.mark.parametrize("columns", [2, 4])
def test_equal_and_zero_columns_of_a_start_are_replaced(columns):
    a = with_spectrum(np.arange(1.0, 301.0))
    v0 = np.ones((300, columns))
    v0[:, -1] = 0.0 if columns == 4 else 1.0
    pairs = oc.eigsh(a, 4, which="LA", block=4, v0=v0, **HOST)
    assert pairs.eigenvalues == pytest.approx([297, 298, 299, 300], abs=1e-7)


def test_a_start_that_is_an_eigenvector_finds_others():
    a = diagonal(np.arange(1.0, 301.0))
    pairs = oc.eigsh(a, 3, which="LA", block=1, v0=np.eye(300)[7], **HOST)
    assert pairs.eigenvalues == pytest.approx([298, 299, 300], abs=1e-7)


# arguments

GOOD = with_spectrum(np.arange(1.0, 201.0))
BAD = [
    ({"k": 0}, ValueError, "k is 0"),
    ({"k": 201}, ValueError, "1 to 200"),
    ({"k": 2.5}, TypeError, "k is a float"),
    ({"which": "SM", "method": "lobpcg"}, ValueError, "which is 'SM'.*by the inverse"),
    ({"which": "XX"}, ValueError, "give 'LM', 'LA' or 'SA'"),
    ({"ncv": 5}, ValueError, "at least"),
    ({"ncv": 40, "block": 8, "k": 9}, ValueError, "at least 48"),
    ({"block": 3}, ValueError, "1, 2, 4 or 8"),
    ({"tol": 1e-14}, ValueError, "reach 1e-12"),
    ({"tol": 1e-9, "precision": "FDF"}, ValueError, "reach 1e-07.*'DDD'"),
    ({"tol": 1e-8, "precision": "FFF"}, ValueError, "reach 1e-06"),
    ({"tol": float("nan")}, ValueError, "tol is nan"),
    ({"tol": "small"}, TypeError, "tol is a str"),
    ({"precision": "FDD"}, ValueError, "'FDF'"),
    ({"max_passes": 0}, ValueError, "max_passes is 0"),
    ({"v0": np.ones(7)}, ValueError, r"v0 has shape \(7,\)"),
    ({"v0": np.ones((200, 9))}, ValueError, "block=8"),
    ({"v0": np.zeros(200)}, ValueError, "v0 is zero"),
    ({"v0": np.full(200, np.nan)}, ValueError, "v0 holds nan"),
    ({"v0": np.ones(200, dtype=complex)}, TypeError, "v0 holds complex128"),
    ({"preconditioner": scipy.sparse.eye_array(100)}, ValueError, "one end"),
    ({"M": scipy.sparse.eye_array(100)}, ValueError, "M is 100 x 100, but A is 200 x 200"),
    ({"M": np.ones(200)}, ValueError, r"M has shape \(200,\)"),
    ({"M": LinearOperator((200, 200), matvec=abs, dtype=float)}, TypeError, "M is a .*Operator; .* an array or a SciPy matrix"),
    ({"M": -scipy.sparse.eye_array(200)}, ValueError, "M is not positive definite.*smallest pivot is -1"),
    ({"M": np.diag(np.arange(200.0))}, ValueError, "M is not positive definite"),
    ({"M": np.triu(np.ones((200, 200)))}, ValueError, "M is not symmetric"),
    ({"M": np.full((200, 200), np.nan)}, oc.errors.NonFiniteError, r"\[0, 0\]"),
    ({"M": 1j * np.eye(200)}, TypeError, "complex128"),
    ({"M": scipy.sparse.eye_array(200), "preconditioner": np.ones(200), "which": "SA"}, TypeError, "preconditioner is of LOBPCG"),
    ({"method": "power"}, ValueError, "method is 'power'"),
]


@pytest.mark.parametrize(("options", "kind", "text"), BAD, ids=lambda value: str(value)[:40])
def test_arguments_that_make_no_sense(options, kind, text):
    with pytest.raises(kind, match=text):
        oc.eigsh(GOOD, **{"block": 8 if "v0" in options else None, **options}, **HOST)


def test_a_budget_that_holds_no_basis():
    with pytest.raises(oc.BudgetError) as told:
        oc.eigsh(GOOD, 4, memory_budget=1000, **HOST)
    assert told.value.needed_bytes > 1000


UNSYMMETRIC = scipy.sparse.csr_array(np.triu(np.random.default_rng(1).standard_normal((300, 300))))
BAD_MATRICES = [
    (UNSYMMETRIC, ValueError, "not symmetric: .* by [0-9.]+ of"),
    (UNSYMMETRIC.toarray()[:20, :20], ValueError, "not symmetric"),
    (scipy.sparse.csr_array((3, 4)), ValueError, "3 x 4"),
    (np.zeros((3, 4)), ValueError, "3 x 4"),
    (np.zeros(4), TypeError, "1 dimensions"),
    (np.zeros((0, 0)), ValueError, "empty"),
    (np.eye(30, dtype=complex).tolist(), TypeError, "for complex128"),
    (np.eye(30, dtype=np.clongdouble), TypeError, "up to complex128"),
    (UNSYMMETRIC.astype(complex), ValueError, "not Hermitian: .* by [0-9.]+ of"),
    (LinearOperator((300, 300), matvec=lambda x: 1j * x, dtype=float), TypeError, "complex128"),
    (LinearOperator((300, 300), matvec=lambda x: np.nan * x, dtype=float), ValueError, "NaN"),
    (np.where(np.eye(30) > 0, np.nan, 1.0), oc.errors.NonFiniteError, r"A\[0, 0\]"),
    (diagonal([1.0, np.inf, 3.0]), oc.errors.NonFiniteError, r"A\[1, 1\]"),
    (lambda x: x, TypeError, "whose size is not known"),
    ("no such thing", Exception, "no such thing"),
    (7, TypeError, None),
    (
        diagonal(np.full(300, 1.7e308)) + scipy.sparse.eye_array(300, k=1) * 1e308 + scipy.sparse.eye_array(300, k=-1) * 1e308,
        ValueError,
        "float64 does not hold",
    ),
]


@pytest.mark.parametrize(("matrix", "kind", "text"), BAD_MATRICES, ids=lambda value: str(type(value))[:40])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_matrices_that_have_no_such_eigenpairs(matrix, kind, text):
    with pytest.raises(kind, match=text):
        oc.eigsh(matrix, 1)


def test_errors_of_the_users_product_come_through():
    def product(x):
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        oc.eigsh(LinearOperator((300, 300), matvec=product, dtype=float), 3)


def test_asymmetry_of_roundoff_is_none():
    a = GOOD.copy()
    a.data *= 1 + 1e-13 * np.random.default_rng(0).standard_normal(len(a.data))
    oc.eigsh(a, 3, tol=1e-9, **HOST)


def test_the_error_survives_a_copy_to_another_process():
    with pytest.raises(oc.errors.NoConvergenceError) as told:
        oc.eigsh(adjacency(2000, 9000, 0), 5, ncv=30, max_passes=25, **HOST)
    copy = pickle.loads(pickle.dumps(told.value))
    assert str(copy) == str(told.value) and np.array_equal(copy.residuals, told.value.residuals)


@pytest.mark.parametrize(
    ("copies", "seed", "which"),
    [(3, 7, "LA"), (5, 1, "SA"), (16, 1, "SA"), (16, 3, "SA"), *((10, seed, "SA") for seed in (0, 4, 8, 9))],
)
def test_copies_of_every_eigenvalue_are_found_by_narrow_panels(copies, seed, which):
    """Copies that the search in panels of two columns misses at first are found by the check."""
    rng = np.random.default_rng(seed)
    n = 1500 // copies
    b = scipy.sparse.random_array((n, n), density=min(1, 8 / n), rng=rng, format="csr")
    b = b + b.T
    order = rng.permutation(copies * n)
    a = scipy.sparse.block_diag([b] * copies, format="csr")[order][:, order]
    values = np.sort(np.repeat(np.linalg.eigvalsh(b.toarray()), copies))
    expected = values[-10:] if which == "LA" else values[:10]
    found = oc.eigsh(a, k=10, which=which, tol=1e-8, **HOST)
    assert np.abs(found[0] - expected).max() <= 1e-6 * np.abs(expected).max()
