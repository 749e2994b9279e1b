"""Files of sparse matrices as sources: the numbers that SciPy reads, and a typed error with file and place for every bad one."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import zipfile
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import ooc_chol as oc
from tests.host.sparse_files import folder, graph, matrix, metis
from tests.host.sparse_rows import assembled, same
from tests.inside.sparse import edges, npz, rows_of, text

pytestmark = pytest.mark.host


def refused(path: Path, said: str, **options: Any) -> oc.errors.SparseInputError:
    """The error that reading raises, which names the file."""
    with pytest.raises(oc.errors.SparseInputError, match=said) as caught:
        list((oc.edge_list(path, **options) if options else rows_of(path)).runs())
    assert str(path) in str(caught.value) and caught.value.advice
    return caught.value


# folders


@pytest.mark.parametrize(
    "types", [("<i4", "<i4", "<f8"), ("<i8", "<i8", "<f4"), (">i8", ">i4", ">f8"), ("<u4", "<u2", "<i1"), ("<u8", "<i2", "?")]
)
def test_a_folder_has_the_rows_of_its_vectors(tmp_path: Path, types: tuple[str, str, str]) -> None:
    csr = matrix().tocsr()
    csr.data = csr.data.astype(types[2])
    path = folder(tmp_path / "A", csr, indptr=csr.indptr.astype(types[0]), indices=csr.indices.astype(types[1]))
    assert same(assembled(rows_of(path)), csr)
    csr.eliminate_zeros()
    assert same(assembled(rows_of(str(path), zeros="drop")), csr)


def test_a_folder_without_data_is_all_ones_and_square_without_a_shape(tmp_path: Path) -> None:
    a = graph(weighted=False)
    path = folder(tmp_path / "A", a, data=None)
    (path / "shape.json").unlink()
    assert same(assembled(rows_of(path)), a)


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"indptr": [0, 2, 1, 4]}, r"indptr.npy\[2\] = 1: it decreases from 2"),
        ({"indptr": [0, 1, 9, 4]}, r"indptr.npy\[2\] = 9: only 4 entries"),
        ({"indptr": [0, 1, 2, 3]}, r"the last row ends at entry 3, but indices.npy has 4"),
        ({"indptr": [0, 1, 4]}, r"indptr.npy: it has 3 numbers, but 4 are needed"),
        ({"indptr": [[0, 1, 2, 4]]}, r"byte 0 of indptr.npy: an array of shape \(1, 4\)"),
        ({"indptr": [0.0, 1.0, 2.0, 4.0]}, "indptr.npy: it is of type float64"),
        ({"indices": [0, 1, 2, 3]}, "row 2: column 3 is outside"),
        ({"indices": [0, -1, 2, 2]}, "row 1: column -1 is outside"),
        ({"data": [1.0, 2.0]}, "data.npy: 2 values, but 4 indices"),
        ({"data": np.array([1, None, 2, 3], object)}, "byte 0 of data.npy: an array of object"),
    ],
)
def test_folders_that_do_not_fit_are_refused(tmp_path: Path, replaced: dict[str, Any], said: str) -> None:
    a = sp.csr_array(([1.0, 2.0, 3.0, 4.0], [0, 1, 1, 2], [0, 1, 2, 4]), shape=(3, 3))
    refused(folder(tmp_path / "A", a, **replaced), said)


@pytest.mark.parametrize("shape", ["[3]", "[3, -1]", "[3, 3.5]", '{"rows": 3}', "[3, 3", "[3, true]", "[" * 3000])
def test_a_shape_that_is_none_is_refused(tmp_path: Path, shape: str) -> None:
    path = folder(tmp_path / "A", np.eye(3))
    (path / "shape.json").write_text(shape)
    refused(path, r"shape\.json")


def test_a_folder_lacks_a_file_or_its_end(tmp_path: Path) -> None:
    path = folder(tmp_path / "A", matrix())
    whole = (path / "indices.npy").read_bytes()
    (path / "indices.npy").write_bytes(whole[:-9])
    refused(path, rf"byte {len(whole) - 9} of indices.npy: .*end at byte {len(whole)}, but it has {len(whole) - 9}")
    (path / "indices.npy").write_bytes(b"no array")
    refused(path, "byte 0 of indices.npy: it is no array")
    (path / "indices.npy").unlink()
    refused(path, r"there is no indices\.npy")


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    path = folder(tmp_path / "A", np.eye(3))
    np.save(path / "indptr.npy", np.array([0, 1, 2, 3], object), allow_pickle=True)
    refused(path, "indptr.npy: an array of object")


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path / "A", matrix())
    rows = rows_of(path)
    os.utime(path / "data.npy", ns=(1, 1))
    with pytest.raises(oc.errors.TierError, match=r"data\.npy: it was written at"):
        list(rows.runs())


def test_text_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_PIECE_BYTES", 8)
    (path := tmp_path / "a.txt").write_text("0 1\n1 2\n2 3\n3 4\n")
    pieces = text.text_pieces(path, str(path))
    next(pieces)
    path.write_text("0 1\n1 2\n2 3\n3 4\n5 6\n")
    with pytest.raises(oc.errors.TierError, match=r"a\.txt: it went from 16 to 20 bytes"):
        list(pieces)


# npz


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_npz_files_of_scipy(tmp_path: Path, fmt: str, compressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sp.save_npz(tmp_path / "a.npz", matrix().asformat(fmt), compressed=compressed)
    rows = rows_of(tmp_path / "a.npz")
    assert same(assembled(rows), sp.load_npz(tmp_path / "a.npz"))
    monkeypatch.setattr(npz, "_PIECE_BYTES", 24)
    assert same(assembled(rows), matrix()), "a second time, by small pieces"


def rewritten(path: Path, members: dict[str, bytes], **options: Any) -> Path:
    """An archive with some members replaced; of None, left out."""
    with zipfile.ZipFile(path) as archive:
        all_ = {name: archive.read(name) for name in archive.namelist()} | members
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in all_.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def npy(array: Any) -> bytes:
    """The bytes of a ``.npy`` file."""
    file = BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"format.npy": npy(b"bsr")}, "format.npy: it is of format 'bsr'"),
        ({"format.npy": npy([1, 2])}, "format.npy: it is of format ''"),
        ({"format.npy": None}, "there is no format.npy in it"),
        ({"indices.npy": None}, "there is no indices.npy in it"),
        ({"shape.npy": npy([30])}, "shape.npy: it says"),
        ({"shape.npy": npy([30, -20])}, "shape.npy: it says"),
        ({"shape.npy": npy([31, 20])}, "indptr.npy: it has 31 numbers, but 32"),
        ({"data.npy": npy([1.0])}, "data.npy: 1 values, but"),
        ({"data.npy": npy(np.ones(500))[:-8]}, "data.npy: 500 numbers of float64 end at byte 4128, but it has 4120"),
        ({"data.npy": b"x" * 400}, "byte 0 of data.npy: it is no array"),
        ({"format.npy": b"x" * 90000}, "format.npy"),
    ],
)
def test_npz_files_that_do_not_fit_are_refused(tmp_path: Path, members: dict[str, Any], said: str) -> None:
    sp.save_npz(tmp_path / "a.npz", matrix().tocsr())
    refused(rewritten(tmp_path / "a.npz", members), said)


def test_npz_files_of_others_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "dense.npz", a=np.eye(3))
    refused(tmp_path / "dense.npz", r"there is no format\.npy")
    (tmp_path / "no.npz").write_bytes(b"no archive")
    refused(tmp_path / "no.npz", "damaged")
    sp.save_npz(tmp_path / "a.npz", matrix().tocsr())
    refused(rewritten(tmp_path / "a.npz", {}, compression=zipfile.ZIP_BZIP2), "another way than deflated")
    assert bz2  # the module that such an archive needs is there


def test_an_archive_whose_bytes_cannot_become_what_it_says_is_refused(tmp_path: Path) -> None:
    """A directory that promises 2 GiB of a member of a few bytes."""
    sp.save_npz(tmp_path / "a.npz", matrix().tocsr())
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    at = raw.index(b"PK\x01\x02")
    while raw[at + 46 : at + 46 + 8] != b"data.npy":
        at = raw.index(b"PK\x01\x02", at + 1)
    raw[at + 24 : at + 28] = (2**31).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(raw)
    refused(tmp_path / "a.npz", "data.npy: it says to be 2147483648 bytes")


# Matrix Market


@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz", ".MTX"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market_files(tmp_path: Path, field: str, ending: str) -> None:
    a = sp.coo_array((4 * matrix()).astype(int)) if field == "integer" else matrix()
    written = BytesIO()
    scipy.io.mmwrite(written, a, field=field, comment="two lines\nof comment")
    data = written.getvalue()
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    assert same(assembled(rows_of(tmp_path / f"a{ending}")), scipy.io.mmread(BytesIO(data), spmatrix=False))


@pytest.mark.parametrize("symmetry", ["symmetric", "skew-symmetric"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_one_triangle_of_matrix_market_is_two(tmp_path: Path, symmetry: str, field: str) -> None:
    if (field, symmetry) == ("pattern", "skew-symmetric"):
        symmetry = "general"
    value = "" if field == "pattern" else " 3"
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix coordinate {field} {symmetry}\n4 4 2\n2 1{value}\n4 2{value}\n")
    assert same(assembled(rows_of(tmp_path / "a.mtx")), scipy.io.mmread(tmp_path / "a.mtx", spmatrix=False))


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "line 1: it does not begin"),
        ("1 2 3\n", "line 1: it does not begin"),
        (HEAD, "line 3: three whole numbers|line 2: three whole numbers"),
        (HEAD + "3 3\n1 1 1\n", "line 2: three whole numbers"),
        (HEAD + "3 -3 1\n1 1 1\n", "line 2: three whole numbers"),
        (HEAD + "3 3 999999999\n1 1 1\n", "999999999 entries are promised"),
        (HEAD + "3 3 2\n1 1 1\n", "Truncated|Expected"),
        (HEAD + "3 3 1\n1 1 1\n2 2 2\n", "line 4: Too many lines"),
        (HEAD + "3 3 1\n4 1 1\n", "line 3: Row index out of bounds"),
        (HEAD + "3 3 1\n1 0 1\n", "line 3: Column index out of bounds"),
        (HEAD + "3 3 1\n1 1 x\n", "line 3: b'x' stands in no real"),
        (HEAD.replace("coordinate", "array") + "1 1\n1\n", "dense"),
        (HEAD.replace("real", "complex") + "1 1 1\n1 1 1 0\n", "complex general"),
        (HEAD.replace("general", "hermitian") + "1 1 1\n1 1 1\n", "real hermitian"),
        (HEAD.replace("real", "quaternion") + "1 1 1\n1 1 1\n", "quaternion"),
        (HEAD.replace("general", "symmetric") + "3 2 1\n1 1 1\n", "line 2: it is symmetric, but has 3 rows and 2 columns"),
        (HEAD.replace("real", "integer") + "3 3 2\n1 1 1\n2 1 1.5\n", "line 4: b'.' stands in no integer number"),
        (HEAD.replace("real", "integer") + "3 3 1\n1 1 99999999999999999999\n", "line 3: Integer out of range"),
        (HEAD.replace("real", "integer") + "3 3 1\n1 1 9007199254740993\n", r"A\[0, 0\] is 9007199254740993"),
    ],
)
def test_matrix_market_files_that_are_wrong(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.mtx").write_text(content)
    refused(tmp_path / "a.mtx", said)


def test_nan_in_matrix_market_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(HEAD + "3 3 2\n1 1 1\n3 2 nan\n")
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[2, 1\]"):
        list(rows_of(tmp_path / "a.mtx").runs())


@pytest.mark.parametrize("ending", [".mtx.gz", ".graph.gz", ".txt.gz"])
def test_compressed_files_that_are_cut_short_or_damaged(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    whole = gzip.compress((HEAD + "3 3 2\n1 1 1\n3 2 7\n").encode() * 50)
    for damaged in (whole[:-20], whole[:30] + b"\xff\xff\xff" + whole[33:], b"no gzip"):
        path.write_bytes(damaged)
        refused(path, "byte .*compressed data are damaged or cut short")


# METIS


@pytest.mark.parametrize("piece", [1 << 22, 16])
@pytest.mark.parametrize("fmt", ["", "0", "000"])
def test_graphs_without_weights(tmp_path: Path, fmt: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_PIECE_BYTES", piece)
    a = graph(weighted=False)
    (tmp_path / "a.graph").write_text("% first\n" + metis(a, fmt))
    assert same(assembled(rows_of(tmp_path / "a.graph")), a)


@pytest.mark.parametrize(
    ("fmt", "n_leading"), [("1", 0), ("001", 0), ("11", 1), ("011 2", 2), ("101", 1), ("111 3", 4), ("10", 1)]
)
def test_graphs_with_weights(tmp_path: Path, fmt: str, n_leading: int) -> None:
    weighted = fmt.split()[0].endswith("1")
    a = graph(1, weighted=weighted)
    (tmp_path / "a.graph").write_text(metis(a, fmt, lambda vertex: " ".join(str(10 * vertex + k) for k in range(n_leading))))
    rows = rows_of(tmp_path / "a.graph")
    assert same(assembled(rows), a)
    numbers = 10 * np.arange(25)[:, np.newaxis] + np.arange(n_leading)
    kept = {"11": slice(1), "10": slice(1), "011 2": slice(2), "111 3": slice(1, 4)}.get(fmt)
    expected = None if kept is None else numbers[:, kept].squeeze()
    held = rows.vertex_weights  # type: ignore[attr-defined]
    assert (held is None) == (expected is None)
    assert held is None or np.array_equal(held, expected)
    public = oc.metis_graph(str(tmp_path / "a.graph"))
    assert np.array_equal(public.vertex_weights, expected) if expected is not None else public.vertex_weights is None


def test_vertices_may_have_more_weights_than_there_are_vertices(tmp_path: Path) -> None:
    (tmp_path / "a.graph").write_text("1 0 010 3\n4 5 6\n")
    assert oc.metis_graph(tmp_path / "a.graph").vertex_weights.tolist() == [[4, 5, 6]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "line 1: there is no first line"),
        ("% only this\n", "line 1: there is no first line"),
        ("3\n", "line 1: two to four numbers"),
        ("3 2 7\n", "line 1: two to four numbers"),
        ("3 2 0 1 1\n", "line 1: two to four numbers"),
        ("9999999999 2\n", "9999999999 vertices"),
        ("0 0 010 2\n", "line 1: 0 vertices with 2 weights"),
        ("2 1 010 999999999999\n4 2\n5 1\n", "line 2: it has 2 numbers, but 999999999999"),
        ("3 2\n2\n1 3\n", "line 1: 3 vertices are promised, but 2 lines"),
        ("3 2\n2\n1 3\n2\n1\n", "line 1: 3 vertices are promised, but at least 4"),
        ("3 3\n2\n1 3\n2\n", "line 1: 3 edges are promised, but the lines of vertices name 4"),
        ("% c\n3 2\n2\n1 4\n2\n", "line 4: vertex 2 has neighbour 4"),
        ("3 2\n2\n% c\n1 0\n2\n", "line 4: vertex 2 has neighbour 0"),
        ("3 2\n2\n1 2\n2\n", "line 3: vertex 2 has neighbour 2"),
        ("3 2\n2 x\n1 3\n2\n", "line 2: 'x' is no number"),
        ("3 2\n% c\n2 -3\n1 3\n2\n", "line 3: '-3' is no number"),
        ("3 2\n2 2\n1\n1\n", "line 2: vertex 1 has neighbour 2 twice"),
        ("3 2\n2\n3\n1 2\n", "line . the edge of vertices . and . is not the same|line .: the edge of vertices"),
        ("2 1 1\n2 5\n1 6\n", "line 2: the edge of vertices 1 and 2 is not the same in the lines of both: 5 and 6"),
        ("4 3\n2\n1 3\n2 4\n\n", "line 4: the edge of vertices 3 and 4 .* it stands in that of vertex 3 only"),
        ("3 2\n2\n1\n2\n", "line 3: the edge of vertices 2 and 3 .* it stands in that of vertex 3 only"),
        ("2 1 1\n2\n1 6\n", "line 2: it has 1 numbers, but 0 and then a weight behind each neighbour"),
        ("2 1 10\n7 2\n\n", "line 3: it has 0 numbers, but 1 and then neighbours"),
        ("2 1 1\n2 99999999999999999999\n1 99999999999999999999\n", r"line 2: a weight is beyond 2\^53"),
    ],
)
def test_graphs_that_are_wrong(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.graph").write_text(content)
    refused(tmp_path / "a.graph", said)


# lists of edges


def test_lists_of_edges(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# one\n0 1\n\n  % two\n3\t1\n1 3\n2 2\n")
    both = assembled(rows := rows_of(tmp_path / "a.txt"))
    assert both.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]
    assert rows.counts.duplicates == 2
    one = assembled(oc.edge_list(tmp_path / "a.txt", directed=True, shape=(4, 5)))
    assert one.toarray().tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]


@pytest.mark.parametrize("ending", [".txt", ".csv", ".tsv", ".edges", ".el", ".csv.gz"])
@pytest.mark.parametrize("base", [0, 1])
def test_weighted_edges_are_those_of_scipy(tmp_path: Path, ending: str, base: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_PIECE_BYTES", 64)
    monkeypatch.setattr(edges, "PIECE_ENTRIES", 16)
    a = matrix(5, (20, 20))
    between = {".csv": ",", ".tsv": "\t"}.get(ending.removesuffix(".gz"), " ")
    lines = [between.join((str(i + base), str(j + base), repr(float(v)))) for i, j, v in zip(a.row, a.col, a.data, strict=True)]
    head = ["source,target,weight"] if ending.startswith(".csv") else []
    data = "\r\n".join([*head, *lines]).encode()
    (tmp_path / f"a{ending}").write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    rows = oc.edge_list(tmp_path / f"a{ending}", directed=True, base=base, shape=(20, 20))
    assert same(assembled(rows), a)
    assert rows.counts.duplicates == 200 - a.tocsr().nnz
    loops = sp.coo_array((a.data * (a.row == a.col), (a.row, a.col)), shape=a.shape)
    both = assembled(oc.edge_list(tmp_path / f"a{ending}", base=base, shape=(20, 20)))
    assert (both - (a.tocsr() + a.T.tocsr() - loops.tocsr())).count_nonzero() == 0


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("0 1\n1 x\n", {}, "line 2: 'x' is no number"),
        ("0 1\n1 2 3\n", {}, "line 2: it has 3 numbers, but the first edge has 2"),
        ("# c\n\n0\n", {}, "line 3: it has 1 numbers"),
        ("0 1 2 3\n", {}, "line 1: it has 4 numbers"),
        ("0 1\n-1 2\n", {}, "line 2: -1 is no vertex"),
        ("0 1 1\n1.5 2 1\n", {}, "line 2: 1.5 is no vertex"),
        ("1 2\n0 1\n", {"base": 1}, "line 2: 0 is no vertex"),
        ("0 1\n1 99999999999999999999\n", {}, "line 2: .* is no vertex"),
        ("0 1\n1 2147483646\n", {}, "vertices are numbered up to 2147483646, but there are only 2 edges"),
        ("0 1\n1 7\n", {"shape": (5, 5)}, r"A\[1, 7\] is outside"),
        ("0 1 1\n1 2 1-2\n", {}, "line 2: '1-2' is no number"),
        ("0 1 1\n1 2 1e\n", {}, "line 2: '1e' is no number"),
        ("0 1 1\n1 2 nan\n", {}, "line 2: 'nan' is no number"),
        ("0,1,1\n1,,2\n", {}, "line 2: a field is empty"),
        ("0,1,1\n1,2,\n", {}, "line 2: a field is empty"),
        (",0,1\n", {}, "line 1: a field is empty"),
        ("0 1\n\0\0\0\0\n", {}, "line 2: "),
    ],
)
def test_lists_of_edges_that_are_wrong(tmp_path: Path, content: str, options: dict[str, Any], said: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    refused(tmp_path / "a.txt", said, **options)


def test_zeros_of_rows_that_were_made_before_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1 0\n1 2 5\n1 2 -5\n2 0 3\n")
    rows = rows_of(oc.edge_list(tmp_path / "a.txt", directed=True), zeros="drop")
    assert assembled(rows).nnz == 1
    assert (rows.counts.duplicates, rows.counts.zeros) == (1, 2)


@pytest.mark.parametrize("base", [2, -1, True, "0"])
def test_counting_begins_at_0_or_1(tmp_path: Path, base: Any) -> None:
    with pytest.raises(ValueError, match="vertices are counted from 0 or from 1"):
        oc.edge_list(tmp_path / "a.txt", base=base)


@pytest.mark.parametrize(
    ("lines", "options", "warns"),
    [
        ("1 2\n2 3\n", {}, True),
        ("1,2,0.5\n3,2,1.5\n", {"directed": True}, True),
        ("1 2\n", {"shape": (9, 9)}, True),
        ("1 2\n2 3\n", {"base": 0}, False),
        ("1 2\n2 3\n", {"base": 1}, False),
        ("1 2\n2 0\n", {}, False),
        ("5 2\n2 7\n", {}, True),
        ("5 2\n2 7\n", {"base": 0}, False),
        ("# none\n", {}, False),
    ],
)
def test_lists_that_may_count_from_1_are_told(tmp_path: Path, lines: str, options: dict[str, Any], warns: bool) -> None:
    (tmp_path / "a.txt").write_text(lines)
    with pytest.warns(oc.errors.InputWarning, match="give base=1") if warns else nullcontext():
        oc.edge_list(tmp_path / "a.txt", **options)


@pytest.mark.parametrize("line", ["O,1", "nan,2", '"0","1"', "'0',1", "x\t1", "1x,2", "l;0"])
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_first_line_with_a_number_as_vertex_is_no_line_of_names(tmp_path: Path, ending: str, line: str) -> None:
    (tmp_path / f"a{ending}").write_text(f"{line}\n0,1\n")
    refused(tmp_path / f"a{ending}", "line 1: .* is no number")


@pytest.mark.parametrize("line", ["source,target", "from;to;2020", '"a", "b"', "_1\tx2", "V1 V2"])
def test_a_first_line_of_names_is_passed_over(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.tsv").write_text(f"{line}\n0\t1\n")
    assert assembled(oc.edge_list(tmp_path / "a.tsv")).nnz == 2


@pytest.mark.parametrize("name", ["a.graph", "a.graph.gz", "A.MTX", "a.npz", "a.npy", "a.oocsr"])
def test_a_file_in_another_format_is_no_list_of_edges(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("2 1\n2\n1\n")
    with pytest.raises(ValueError, match=r"is no list of edges, by the ending of its name"):
        oc.edge_list(tmp_path / name, base=1)


def test_an_infinite_weight_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1 1\n3 2 1e999\n")
    with pytest.raises(oc.errors.NonFiniteError, match=r"A\[2, 3\]"):
        list(rows_of(tmp_path / "a.txt").runs())


@pytest.mark.parametrize("content", ["", "# nothing\n", "\n\n"])
def test_lists_without_edges(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    assert rows_of(tmp_path / "a.txt").shape == (0, 0)


# any path


@pytest.mark.parametrize("name", ["a", "a.mat", "a.npx", "a.gz"])
def test_other_endings_are_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"1 2")
    with pytest.raises(ValueError, match=r"ends in none of \.npz, \.npy, \.mtx"):
        rows_of(tmp_path / name)


@pytest.mark.parametrize("ending", [".npz", ".mtx", ".graph", ".txt"])
def test_a_file_that_is_not_there_or_none(tmp_path: Path, ending: str) -> None:
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path / f"a{ending}")
    os.mkfifo(tmp_path / f"b{ending}")
    with pytest.raises(oc.errors.TierError, match="a pipe"):
        rows_of(tmp_path / f"b{ending}")


# shared data


def test_facebook_is_the_graph_of_snap(data_dir: Path) -> None:
    path = data_dir / "facebook_combined.txt"
    pairs = np.array([line.split() for line in path.read_text().splitlines() if re.fullmatch(r"\d+ \d+", line)], int)
    assert len(pairs) == 88234
    expected = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(4039, 4039)).tocsr()
    rows = rows_of(path)
    assert same(assembled(rows), expected + expected.T)
    assert rows.counts.duplicates == 0


@pytest.mark.parametrize("name", ["uk", "add20", "bcsstk29"])
def test_graphs_of_walshaws_archive(data_dir: Path, name: str) -> None:
    path = data_dir / "walshaw" / f"{name}.graph.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    n, m = map(int, lines[0].split()[:2])
    pairs = [(vertex, int(word) - 1) for vertex, line in enumerate(lines[1 : n + 1]) for word in line.split()]
    assert len(pairs) == 2 * m
    assert same(assembled(rows_of(path)), sp.coo_array((np.ones(2 * m), np.transpose(pairs)), shape=(n, n)))
