"""One kind of matrix, one answer: every kind that people have at every door that takes a sparse matrix or a graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import ooc_chol as oc
from ooc_chol.apps import spectral

pytestmark = [
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor"),
]

N = 16
#: A ring with chords: connected, with whole weights.
_RING = sp.diags_array([np.arange(1.0, N), np.ones(N - 5)], offsets=[1, 5], shape=(N, N))
A = sp.csr_array(_RING + _RING.T)
DENSE = A.toarray()
X = np.random.default_rng(0).random((N, 3, 3))
MASK = oc.testing.random_mask(X.shape, 0.7)


def _networkx(folder):
    return pytest.importorskip("networkx").from_scipy_sparse_array(A)


def _frame(folder):
    return pytest.importorskip("pandas").DataFrame(DENSE, columns=[f"v{i}" for i in range(N)])


def _sparse_frame(folder):
    return pytest.importorskip("pandas").DataFrame.sparse.from_spmatrix(A)


def _torch(layout):
    def made(folder):
        tensor = pytest.importorskip("torch").from_numpy(DENSE)
        return tensor if layout is None else getattr(tensor, layout)()

    return made


def _jax(kind):
    def made(folder):
        jax = pytest.importorskip("jax")
        from jax.experimental import sparse

        numbers = jax.numpy.asarray(DENSE, jax.numpy.float32)
        return numbers if kind is None else getattr(sparse, kind).fromdense(numbers, nse=A.nnz + (3 if kind == "BCOO" else 0))

    return made


def _file(name, write):
    def made(folder):
        write(folder / name)
        return folder / name

    return made


def _edges(path):
    places = sp.triu(A).tocoo()
    lines = (f"{i} {j} {int(w)}" for i, j, w in zip(places.row, places.col, places.data, strict=True))
    path.write_text("\n".join(lines) + "\n")


def _metis(path):
    lines = [f"{N} {A.nnz // 2} 1", *(" ".join(f"{j + 1} {int(row[j])}" for j in np.flatnonzero(row)) for row in DENSE)]
    path.write_text("\n".join(lines) + "\n")


KINDS = {
    "csr_array": lambda folder: A,
    "csr_matrix": lambda folder: sp.csr_matrix(A),
    "coo_array": lambda folder: A.tocoo(),
    "lil_array": lambda folder: A.tolil(),
    "float32": lambda folder: A.astype(np.float32),
    "int64": lambda folder: A.astype(np.int64),
    "array": lambda folder: DENSE,
    "array of int": lambda folder: DENSE.astype(int),
    "Fortran array": lambda folder: np.asfortranarray(DENSE),
    "lists": lambda folder: DENSE.tolist(),
    "masked, nothing hidden": lambda folder: np.ma.masked_array(DENSE, np.zeros_like(DENSE, bool)),
    "NetworkX": _networkx,
    "pandas": _frame,
    "sparse pandas": _sparse_frame,
    "torch": _torch(None),
    "torch COO": _torch("to_sparse"),
    "torch CSR": _torch("to_sparse_csr"),
    "JAX": _jax(None),
    "BCOO": _jax("BCOO"),
    "BCSR": _jax("BCSR"),
    ".npy": _file("a.npy", lambda path: np.save(path, DENSE)),
    ".npy in Fortran's order": _file("f.npy", lambda path: np.save(path, np.asfortranarray(DENSE))),
    ".npz": _file("a.npz", lambda path: sp.save_npz(path, A)),
    "Matrix Market": _file("a.mtx", lambda path: scipy.io.mmwrite(path, A)),
    "METIS": _file("a.graph", _metis),
    "edges": _file("a.txt", _edges),
    ".edgelist": _file("a.edgelist", _edges),
}


def _torch_csr(a):
    pytest.importorskip("torch")
    from ooc_chol.diff.torch import CSR

    return CSR.of(a).to_dense()


def _jax_csr(a):
    jax = pytest.importorskip("jax")
    from ooc_chol.diff.jax import CSR

    with jax.enable_x64(True):
        return CSR.of(a).to_dense()


DOORS = {
    "eigsh": lambda a: oc.eigsh(a, k=2).eigenvalues,
    "svds": lambda a: oc.svds(a, k=2)[1],
    "multiply": lambda a: oc.multiply(a, np.arange(N, dtype=float)),
    "laplacian": lambda a: oc.laplacian(a).shift,
    "block_csr": lambda a: oc.block_csr(a).tocsr().toarray(),
    "bisect": lambda a: spectral.bisect(a).cut,
    "impute": lambda a: oc.impute(X, MASK, a, n_lambdas=2, max_inner=3).tensor,
    "CSR of torch": _torch_csr,
    "CSR of JAX": _jax_csr,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_taken_at_every_door_for_the_same_matrix(tmp_path, kind, door):
    found, expected = DOORS[door](KINDS[kind](tmp_path)), DOORS[door](A)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=2e-6, atol=1e-6)


def _cut(path):
    np.save(path, DENSE)
    path.write_bytes(path.read_bytes()[:-9])


REFUSED = {
    "masked": (lambda folder: np.ma.masked_array(DENSE, DENSE == 2), oc.errors.MissingValueError, "is masked"),
    "text": (lambda folder: np.array([["a", "b"], ["c", "d"]]), TypeError, "str|<U1"),
    "a format of NetworkX": (_file("a.gml", lambda path: path.write_text("graph []")), ValueError, "read it with networkx"),
    "no known ending": (_file("a.dat", lambda path: path.write_text("1 2")), ValueError, "ends in none of"),
    "no file": (lambda folder: folder / "nothing.npz", FileNotFoundError, "nothing.npz"),
    "objects": (_file("o.npy", lambda path: np.save(path, np.array([[1, None]], object))), oc.errors.SparseInputError, "save"),
    "cut short": (_file("s.npy", lambda path: _cut(path)), oc.errors.SparseInputError, "cut short"),
    "three axes": (_file("t.npy", lambda path: np.save(path, np.ones((2, 2, 2)))), oc.errors.SparseInputError, "3 dimensions"),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_refused_by_one_text_at_every_door(tmp_path, kind, door):
    make, error, text = REFUSED[kind]
    with pytest.raises(error, match=text):
        DOORS[door](make(tmp_path))


@pytest.mark.parametrize("door", [door for door in DOORS if door != "impute"])
def test_a_whole_weight_that_float64_would_round_is_refused(door):
    graph = pytest.importorskip("networkx").path_graph(N)
    graph.edges[3, 4]["weight"] = 2**53 + 1
    with pytest.raises(oc.errors.SparseInputError, match=r"edge of 3 and 4.*beyond 2\^53"):
        DOORS[door](graph)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_given_is_never_changed(door):
    places = A.tocoo()
    rows, columns, data = np.append(places.row, [0, 3]), np.append(places.col, [0, 3]), np.append(places.data, [0.0, 0.0])
    kept = sp.csr_array((data, (rows, columns)), shape=A.shape)  # explicit zeros stay
    given = [sp.csr_array(kept), kept.toarray(), kept.tocoo()]
    before = [each.copy() for each in given]
    for each, was in zip(given, before, strict=True):
        DOORS[door](each)
        same = each == was if isinstance(each, np.ndarray) else each.data == was.data
        assert np.all(same)
        assert isinstance(each, np.ndarray) or each.nnz == was.nnz


@pytest.mark.parametrize("kind", ["csr_array", "coo_array", "array", ".npy", "edges"])
def test_a_word_for_zeros_is_checked_of_every_kind(tmp_path, kind):
    given = KINDS[kind](tmp_path)
    assert oc.block_csr(given, zeros="drop").nnz == A.nnz
    with pytest.raises(ValueError, match="give 'keep' or 'drop'"):
        oc.block_csr(given, zeros="forget")
