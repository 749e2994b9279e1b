"""``oc.eigsh``: right, certified, and in few passes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator

import ooc_chol as oc
from tests.host.eigen_matrices import BLOCKS, adjacency, check_pairs, eight_components, most_wanted, with_spectrum
from tests.inside.eigen import asked, lanczos, svds
from tests.products import share_of_examples, thorough

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack", "one_blas_thread")]

HOST = {"devices": "host:0"}


@pytest.fixture(scope="module")
def rmat13():
    with oc.block_csr(oc.testing.rmat(13)) as a:
        yield a


@pytest.fixture(scope="module")
def facebook(data_dir):
    """The graph of 4,039 vertices, adjacency symmetric."""
    edges = np.loadtxt(data_dir / "facebook_combined.txt", dtype=np.int64)
    a = scipy.sparse.coo_array((np.ones(len(edges)), edges.T), shape=(4039, 4039))
    return (a + a.T).tocsr()


# A1


@pytest.mark.data
def test_the_largest_eigenvalues_of_a_social_network_are_those_that_are_known(facebook):
    found = {name: oc.eigsh(facebook, 24, precision=name, tol=tol, block=8, **HOST) for name, tol in TIGHT}
    for name, most in (("DDD", 1e-12), ("FDF", 5e-8), ("FFF", 1e-6)):
        check_pairs(facebook, found[name], most)
    largest = np.sort(np.abs(found["DDD"].eigenvalues))[::-1][:4]
    assert np.abs(largest - [162.37394234, 125.49320196, 105.94010586, 73.27939637]).max() <= 1e-8
    assert found["FFF"].residuals.min() >= 4 * found["FDF"].residuals.min()


TIGHT = [("DDD", 1e-12), ("FDF", 1e-7), ("FFF", 1e-6)]


# passes


@pytest.mark.usefixtures("long")
def test_larger_blocks_take_fewer_passes(rmat13):
    passes = []
    for block in BLOCKS[::-1]:
        pairs = oc.eigsh(rmat13, 24, ncv=96, tol=1e-8, block=block, **HOST)
        assert pairs.residuals.max() <= 1e-8
        passes.append(pairs.report.passes)
    assert passes[0] <= 60
    assert passes == sorted(passes) and len(set(passes)) == len(passes)


@pytest.mark.parametrize("block", [2, 4])
def test_the_last_cycle_ends_once_residuals_will_do(rmat13, block, monkeypatch):
    options = {"k": 24, "ncv": 96, "tol": 1e-8, "precision": "DDD", "block": block, "devices": "host:0"}
    sooner = oc.eigsh(rmat13, **options)
    monkeypatch.setattr(lanczos, "_LAST_CYCLE", 0.0)  # every cycle is a whole one
    later = oc.eigsh(rmat13, **options)
    assert sooner.report.passes < later.report.passes
    assert max(sooner.residuals) <= 1e-8
    assert np.allclose(sooner.eigenvalues, later.eigenvalues, rtol=1e-8)


# against LAPACK


@pytest.mark.parametrize("examples", [60, *thorough(300)])
def test_all_ends_of_random_matrices_are_lapacks(examples):
    @given(
        n=st.integers(1, 260),
        share=st.floats(0.005, 0.3),
        seed=st.integers(0, 2**32 - 1),
        which=st.sampled_from(["LM", "LA", "SA"]),
        precision=st.sampled_from(["DDD", "FDF", "FFF"]),
        block=st.sampled_from(BLOCKS),
        data=st.data(),
    )
    def agrees(n, share, seed, which, precision, block, data):
        k = data.draw(st.integers(1, min(n, 12)))
        a = scipy.sparse.random_array((n, n), density=share, rng=np.random.default_rng(seed))
        a = (a + a.T).tocsr().astype(np.float32).astype(float)
        pairs = oc.eigsh(a, k, which=which, precision=precision, block=block, ncv=k + 7 * block, **HOST)
        tol = {"DDD": 1e-10, "FDF": 1e-6, "FFF": 1e-5}[precision]
        check_pairs(a, pairs, tol)
        exact = np.linalg.eigvalsh(a.toarray())
        bound = 2 * tol * max(np.abs(exact).max(), 1e-300)
        order = {"LM": np.abs, "LA": np.asarray, "SA": np.negative}[which]
        # Among values as wanted as each other any may be chosen: what counts is how wanted they are.
        wanted, found = order(most_wanted(exact, k, which)), order(pairs.eigenvalues)
        assert np.abs(np.sort(wanted) - np.sort(found)).max() <= bound
        assert np.abs(exact[:, None] - pairs.eigenvalues).min(axis=0).max() <= bound

    share_of_examples(examples / 50)(agrees)()


# multiplicity, and the check


@pytest.mark.parametrize("block", BLOCKS)
def test_all_copies_of_an_eigenvalue_are_found(block):
    a = eight_components()
    pairs = oc.eigsh(a, 8, which="LA", block=block, **HOST)
    check_pairs(a, pairs, 1e-10)
    assert np.abs(pairs.eigenvalues - 1).max() <= 1e-10


def test_single_vectors_miss_copies_which_the_check_finds():
    a = eight_components()
    options = {"which": "LA", "block": 1, "ncv": 20, "v0": np.ones(a.shape[0]), **HOST}
    blind = oc.eigsh(a, 8, check=False, **options)
    assert blind.residuals.max() <= 1e-10, "each is an eigenpair: no residual tells"
    assert np.count_nonzero(blind.eigenvalues > 1 - 1e-9) < 8
    pairs = oc.eigsh(a, 8, **options)
    assert np.abs(pairs.eigenvalues - 1).max() <= 1e-10
    assert sum(each.missed for each in pairs.report.checks) >= 1
    assert pairs.report.checks[-1].missed == 0


def ring(m):
    once = scipy.sparse.csr_array((np.ones(m), (np.arange(m), (np.arange(m) + 1) % m)), shape=(m, m))
    return once + once.T


def test_the_check_of_a_small_basis_is_no_shorter():
    pairs = oc.eigsh(scipy.sparse.block_diag([ring(7), ring(11)]).tocsr(), 2, which="LA", block=1, ncv=8, **HOST)
    assert pairs.eigenvalues == pytest.approx([2, 2])
    assert pairs.report.checks[-1].passes == 40 and pairs.residuals.max() <= 1e-10


@pytest.mark.parametrize(("block", "ncv"), [(1, 10), (2, 14), (4, 24)])
@pytest.mark.parametrize("which", ["LA", "LM", "singular"])
def test_copies_are_found_in_a_small_basis(which, block, ncv):
    part = scipy.sparse.random_array((80, 80), density=0.05, rng=np.random.default_rng(0))
    part, sizes = part + part.T, {"block": block, "ncv": ncv, **HOST}
    a = scipy.sparse.kron(scipy.sparse.eye_array(5), part).tocsr()
    found = oc.svds(a, 6, **sizes).s if which == "singular" else oc.eigsh(a, 6, which=which, **sizes).eigenvalues
    assert np.abs(found[1:] - np.linalg.eigvalsh(part.toarray())[-1]).max() <= 1e-8


@pytest.mark.parametrize("block", BLOCKS)
def test_a_start_orthogonal_to_the_wanted_vector_misses_nothing(block):
    values = np.concatenate([[10.0], np.linspace(-1, 1, 399)])
    v0 = np.zeros(400)
    v0[200:] = np.random.default_rng(0).standard_normal(200)  # e_0 is the vector of 10, and the first 200 an invariant space
    a = scipy.sparse.diags_array(values).tocsr()
    assert oc.eigsh(a, 2, which="LA", block=block, v0=v0, ncv=60, **HOST).eigenvalues == pytest.approx([1.0, 10.0], abs=1e-9)


# what A may be


def test_every_form_of_a_matrix_has_the_same_eigenpairs(rmat13, tmp_path):
    a = adjacency(800, 4000, 1)
    dense = a.toarray()
    w = np.linalg.eigvalsh(dense)[-4:]
    path = tmp_path / "a.npz"
    scipy.sparse.save_npz(path, a)
    counted = []

    def product(x):
        counted.append(x.shape)
        return a @ x

    with oc.block_csr(a) as packed:
        forms = [
            a,
            a.tocoo(),
            packed,
            oc.Operator(packed),
            path,
            dense,
            dense.tolist(),
            aslinearoperator(a),
            LinearOperator(a.shape, matvec=product),
        ]
        for form in forms:
            assert oc.eigsh(form, 4, which="LA").eigenvalues == pytest.approx(w, abs=1e-9 * w[-1])
    assert counted


def test_laplacians_stay_operators():
    a = adjacency(900, 3000, 2)
    operator = oc.laplacian(a)
    dense = np.diag(np.asarray(a.sum(axis=1))) - a.toarray()
    pairs = oc.eigsh(operator, 5, which="SA", **HOST)
    check_pairs(dense, pairs, 1e-10)
    assert pairs.eigenvalues == pytest.approx(np.linalg.eigvalsh(dense)[:5], abs=1e-9)
    operator.matrix.close()


def test_precision_follows_the_type_of_the_matrix():
    a = with_spectrum(np.arange(1.0, 301.0))
    assert oc.eigsh(a, 2, **HOST).eigenvectors.dtype == np.float64
    assert oc.eigsh(a.astype(np.float32), 2, **HOST).eigenvectors.dtype == np.float32
    assert oc.eigsh(a.toarray().astype(np.float32), 2).eigenvectors.dtype == np.float32
    assert oc.eigsh(aslinearoperator(a), 2, precision="FFF").eigenvectors.dtype == np.float32


# what comes back


def test_results_unpack_as_scipys_do():
    a = with_spectrum(np.arange(1.0, 401.0))
    pairs = oc.eigsh(a, 3, **HOST)
    w, v = pairs
    assert w is pairs.eigenvalues and v is pairs.eigenvectors and v.shape == (400, 3)
    assert w == pytest.approx([398, 399, 400], abs=1e-6)
    assert "worst_residual" in repr(pairs)
    alone = oc.eigsh(a, 3, return_eigenvectors=False, **HOST)
    assert isinstance(alone, np.ndarray) and np.array_equal(alone, w)


def test_the_same_call_gives_the_same_bits(rmat13):
    one, other = (oc.eigsh(rmat13, 5, tol=1e-6, **HOST) for _ in range(2))
    assert np.array_equal(one.eigenvalues, other.eigenvalues) and np.array_equal(one.eigenvectors, other.eigenvectors)


def test_an_error_holds_what_has_converged():
    values = np.concatenate([[50.0, 40.0], np.linspace(0.999, 1, 3000)])
    a = with_spectrum(values)
    with pytest.raises(oc.errors.NoConvergenceError, match="max_passes=30 is used up") as told:
        oc.eigsh(a, 4, which="LA", block=2, ncv=40, max_passes=30, **HOST)
    error = told.value
    assert isinstance(error, ArpackNoConvergence) and isinstance(error, oc.OocCholError)
    assert error.eigenvalues == pytest.approx([40, 50], abs=1e-8)
    assert error.eigenvectors.shape == (3002, 2) and error.residuals.max() <= 1e-10
    residual = np.linalg.norm(a @ error.eigenvectors - error.eigenvectors * error.eigenvalues, axis=0)
    assert residual.max() <= 1e-10 * 50
    assert error.worst > 1e-10 and "larger ncv" in str(error)


def path_of_600():
    return scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(600, 600)).tocsr()


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        (lambda a: oc.eigsh(a, 3, which="LA", tol=1e-3, **HOST), (asked, "_DEFAULT_PASSES", 150)),
        (lambda a: oc.svds(a, 3, tol=1e-3, **HOST), (svds, "_BRIEFLY", 30)),
    ],
    ids=["eigsh", "svds"],
)
def test_a_report_says_that_a_run_with_a_larger_basis_followed(monkeypatch, call, passes):
    monkeypatch.setattr(*passes)
    report = call(path_of_600()).report
    (note,) = report.notes
    assert f"basis of 52 vectors had not converged after {passes[-1]} passes" in note and note in str(report)
    assert report.to_dict()["notes"] == [note] and report.ncv > 52 and report.passes > passes[-1]


def test_no_larger_basis_begins_where_the_passes_that_were_asked_for_are_used_up():
    a, seen = path_of_600(), []
    plan = oc.plan_eigsh(a, 3, which="LA", **HOST)
    with pytest.raises(oc.errors.NoConvergenceError, match="max_passes=90 is used up"):
        oc.eigsh(a, 3, which="LA", plan=plan, max_passes=90, progress=lambda done, *_: seen.append(done))
    assert plan.is_small and seen == sorted(set(seen)) and seen[-1] <= 90


@pytest.mark.parametrize("options", [{}, {"method": "lobpcg", "which": "LA"}, {"v0": np.arange(1.0, 257.0)}])
def test_vectors_of_a_matrix_numbered_by_degree_are_in_the_callers_numbers(options):
    csr = oc.block_csr(oc.testing.rmat(8)).tocsr()
    with oc.block_csr(csr, order="degree") as a:
        w, v = pairs = oc.eigsh(a, 3, devices="host:0", **options)
    assert np.linalg.norm(csr @ v - v * w, axis=0).max() <= (1.5 * pairs.residuals.max() + 1e-12) * np.abs(w).max()


@pytest.mark.parametrize("seed", [1, 16, 89, 118, 123, 137, 151, *thorough(*range(200, 300))])
def test_a_copy_that_lies_in_part_in_the_frontier_is_found(seed):
    """Random vectors of the check are orthogonal to the frontier, which held half of what was missed."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(150, 420))
    values = np.repeat(rng.standard_normal(n // 5 + 1), 5)[:n]
    k = int(rng.integers(2, 12))
    pairs = oc.eigsh(scipy.sparse.diags_array(values).tocsr(), k, which="LA", block=2, **HOST)
    assert np.abs(pairs.eigenvalues - np.sort(values)[-k:]).max() <= 1e-10
