"""Numbers of sparse matrices in files: whole ones by their digits, lines by their form, and orders by their entries."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.memory import allocate_aligned

pytestmark = pytest.mark.host

#: Numbers that are whole only once they are rounded, and what no number is, as a vertex of an edge, a row or a column.
NOT_WHOLE = (
    "1e-400",
    "-1e-400",
    "0.99999999999999999",
    "1.00000000000000001",
    "1e-99999999999999999999",
    "1.5",
    "1-1",
    "1e",
    "nan",
)


@pytest.mark.parametrize("weight", ["", " 2.5"])
@pytest.mark.parametrize("edge", ["{} 1", "1 {}"])
@pytest.mark.parametrize("word", NOT_WHOLE)
def test_vertices_are_whole_by_their_digits(word, edge, weight, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"# an edge\n0 3{weight}\n{edge.format(word)}{weight}\n")
    with pytest.raises(oc.errors.SparseInputError, match=r"line 3: .*(is no vertex: they are whole numbers|is no number)"):
        oc.edge_list(path)


def test_vertices_that_are_written_as_real_numbers_are_read(tmp_path):
    path, edges = tmp_path / "a.txt", np.array([(0, 1), (1, 2), (2, 12345679)])
    np.savetxt(path, edges)  # 1.234567900000000000e+07
    with oc.block_csr(oc.edge_list(path)) as packed:
        rows, columns = packed.tocsr().nonzero()
    assert {*zip(rows.tolist(), columns.tolist(), strict=True)} == {
        (i, j) for a, b in edges.tolist() for i, j in ((a, b), (b, a))
    }


#: Lines of a Matrix Market file by the field of its header; SciPy reads most of the wrong ones as something else.
WRONG_LINES = {
    "real": (
        *(f"{word} 1 3.0" for word in (*NOT_WHOLE, "2.0", "+1", "-1")),
        *(f"1 {word} 3.0" for word in (*NOT_WHOLE, "2.0", "+1", "-1")),
        *(f"1 1 {word}" for word in ("1.5.5", "1-2", "1e", "1e+", "1e5.5", "1e5e5", "e5", ".", "+", "1nan", "nan1", "1 2", "")),
    ),
    "integer": ("1 1 1.5", "1 1 1e3", "1 1 1-2", "1 -1 2", "1 1", "1 1 1 1", "1 1 --1"),
    "pattern": ("1 1 1", "1", "1 1.0", "1 1e0"),
}


@pytest.mark.parametrize(("field", "line"), [(field, line) for field, lines in WRONG_LINES.items() for line in lines])
def test_a_line_that_is_no_entry_is_named(field, line, tmp_path):
    path = tmp_path / "a.mtx"
    good = "2 2" if field == "pattern" else "2 2 1"
    path.write_text(f"%%MatrixMarket matrix coordinate {field} general\n% of two\n2 2 2\n{good}\n{line}\n")
    with pytest.raises(oc.errors.SparseInputError, match="line 5: "):
        oc.block_csr(path)


@pytest.mark.parametrize("value", ["5.", "-1.5E-03", "1e5", " 7 \r", "\t3.25"])
def test_values_of_all_forms_are_read(value, tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n\n2 2 2\n2 2 1\n1 1 {value}\n", newline="")
    with oc.block_csr(path) as packed:
        assert packed.tocsr()[0, 0] == float(value)


TINY = ("1e-400", "-2.4E-324", "0.001e-0999", "1" + "0" * 50 + "e-9999", "0.5e-323999999999999999999")


@pytest.mark.parametrize("word", [*TINY, "5e-324", "0e-400", "0.000E-999", "-1e-0300"])
@pytest.mark.parametrize("name", ["a.mtx", "a.txt", "a.csv"])
def test_a_value_that_is_not_zero_does_not_become_zero(word, name, tmp_path):
    path, between = tmp_path / name, "," if name == "a.csv" else " "
    lines = [between.join(words) for words in (("1", "2", "3.5"), ("2", "1", word), ("2", "2", "1e-5"))]
    head = "%%MatrixMarket matrix coordinate real general\n3 3 3\n" if name == "a.mtx" else between.join("001") + "\n"
    path.write_text(head + "\n".join(lines) + "\n")
    place = (1, 0) if name == "a.mtx" else (2, 1)

    def made():
        return path if name == "a.mtx" else oc.edge_list(path, directed=True)

    if word in TINY:
        with pytest.raises(oc.errors.SparseInputError, match=f"line {len(head.splitlines()) + 2}: .*below all numbers of FP64"):
            oc.block_csr(made())
    else:
        with oc.block_csr(made()) as packed:
            assert packed.tocsr()[place] == float(word)


LARGEST = 2**31 - 1


def _declared_mtx(path: Path) -> None:
    path.write_text(f"%%MatrixMarket matrix coordinate real general\n{LARGEST} {LARGEST} 2\n1 1 1.0\n2 1 2.0\n")


def _declared_edges(path: Path) -> None:
    path.write_text(f"0 1\n1 {LARGEST - 1}\n")


def _declared_npz(form: str, path: Path) -> None:
    """What ``save_npz`` would write of so many rows, without their memory; 2**26 in CSR form."""
    entries = {"row": [0, 1], "col": [0, 0]} if form == "coo" else {"indices": [0, 1], "indptr": [0, 2]}
    rows = LARGEST
    if form == "csr":
        rows = 1 << 26
        starts = np.zeros(rows + 1, np.int32)
        starts[2:], starts[1] = 2, 1
        entries = {"indices": [0, 0], "indptr": starts}
    whole = {name: np.asarray(value, np.int32) for name, value in entries.items()}
    shape = np.array([rows, 1])
    np.savez_compressed(path, format=np.array(form.encode()), shape=shape, data=np.array([1.0, 2.0]), **whole)


DECLARED = {
    "a.mtx": _declared_mtx,
    "a.txt": _declared_edges,
    **{f"{form}.npz": functools.partial(_declared_npz, form) for form in ("coo", "csc", "csr")},
}


@pytest.mark.parametrize("name", DECLARED)
def test_rows_without_entries_give_no_reason_for_their_memory(name, tmp_path):
    DECLARED[name](path := tmp_path / name)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(oc.errors.SparseInputError, match=r"there are only 2 (entries|edges); number"):
        oc.block_csr(path)


def test_memory_that_the_system_refuses_is_more_than_there_is():
    with pytest.raises(oc.BudgetError) as caught:
        allocate_aligned(1 << 60)
    assert caught.value.budget_bytes < caught.value.needed_bytes
