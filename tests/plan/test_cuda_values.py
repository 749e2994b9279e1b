"""The kernels of differentiable operations compile; launched as C++ whose threads take turns, they are within their bounds."""

from __future__ import annotations

import subprocess
from itertools import pairwise

import numpy as np
import pytest

from tests import diff_problems as problems
from tests.diff_problems import CASES, LENGTHS
from tests.emulated_cuda import Emulated, held
from tests.inside.kernels import LONG, SEGMENT, WINDOW, modules, term_groups, width_and_lanes
from tests.products import thorough

#: Columns beside each other: none, one, those of each width of a lane, several panels.
COLUMNS = [None, 8, 5, 0, 1, 2, 3, 6, 64, 130, 260]
#: What of them each type meets without ``--thorough``.
USUAL = {CASES[0]: (None, 8), CASES[1]: (8, 5), CASES[2]: (None, 5)}
C_TYPES = {np.float32: "float", np.float64: "double"}


@pytest.fixture(scope="module")
def emulated(compilers: None, tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("values"), "values")


class OnTheHost:
    """A pattern whose arrays the emulated module takes."""

    def __init__(self, pattern, dtype=np.int32):
        self.nnz, self.n_rows = pattern.nnz, pattern.n_rows
        self._arrays = {"indptr": pattern.indptr.astype(dtype), "indices": pattern.indices, "rows": pattern.rows}
        self._arrays = {name: held(array) for name, array in self._arrays.items()}

    def place(self, name, like):
        return self._arrays[name]


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "kind",
    [
        (CASES[0], (1, 1), {}),
        (CASES[1], (4, 16), {"A_PLACE": "int"}),
        (CASES[2], (2, 32), {"A_PLACE": "long long"}),
        *thorough((CASES[0], (4, 32), {"A_PLACE": "int"}), (CASES[2], (1, 1), {"A_PLACE": "int"})),
    ],
    ids=str,
)
@pytest.mark.usefixtures("compilers")
def test_kernels_compile_without_warnings(kind, tmp_path):
    case, sizes, places = kind
    text = modules.code(
        "values.cu",
        NUMBER=C_TYPES[case.storage],
        SUM=C_TYPES[case.compute],
        END="int",
        B_PLACE="int",
        HAS_B=1,
        HAS_ORDER=int(bool(places)),
        WIDTH=sizes[0],
        LANES=sizes[1],
        WINDOW=WINDOW,
        LONG=LONG,
        **({"A_PLACE": "int"} | places),
    )
    (tmp_path / "values.cu").write_text(text, encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out")]
    ran = subprocess.run([*words, str(tmp_path / "values.cu")], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("case", "columns"),
    [
        pytest.param(case, columns, marks=() if columns in USUAL[case] else pytest.mark.thorough)
        for case in CASES
        for columns in COLUMNS
    ],
)
@pytest.mark.commit
def test_products_and_samples_are_within_their_bounds(case, columns, emulated):
    pattern = problems.pattern_of(LENGTHS + problems.short_rows())
    mine = OnTheHost(pattern)
    compute = np.dtype(case.compute)
    v = problems.numbers(pattern.nnz, case)
    width = () if columns is None else (columns,)
    x, g = problems.numbers((pattern.n_columns, *width), case, 5), problems.numbers((pattern.n_rows, *width), case, 6)
    found = emulated.module.matmul(mine, held(v), held(x), compute)
    problems.check_product(np.asarray(found), pattern, v, x, case)
    order = np.random.default_rng(7).permutation(pattern.nnz)
    ordered = emulated.module.matmul(mine, held(v), held(x), compute, held(order.astype(np.int32)))
    assert ordered.tobytes() == emulated.module.matmul(mine, held(v[order]), held(x), compute).tobytes()
    problems.check_sampled(np.asarray(emulated.module.sampled(mine, held(g), held(x), compute)), pattern, g, x, case)


@pytest.mark.nvcc
@pytest.mark.parametrize("places", [np.int32, *thorough(np.int64)])
@pytest.mark.parametrize("case", CASES)
def test_sums_of_products_and_of_segments_are_within_their_bounds(case, places, emulated):
    pattern = problems.pattern_of(LENGTHS + problems.short_rows())
    a, b = problems.numbers(900, case, 5), problems.numbers(1100, case, 6)
    ends, of_a, of_b = problems.triples(pattern, a.size, b.size, places)
    compute = np.dtype(case.compute)
    found = emulated.module.bilinear(held(ends), held(of_a), held(of_b), held(a), held(b), compute)
    problems.check_bilinear(np.asarray(found), ends, of_a, of_b, a, b, case)
    v, ones = problems.numbers(pattern.nnz, case), np.ones(1, case.storage)
    sums = emulated.module.segment_sums(held(ends), held(v), compute)
    nothing = np.zeros(v.size, int)
    problems.check_bilinear(np.asarray(sums), ends, np.arange(v.size), nothing, v, ones, case)


@pytest.mark.nvcc
def test_bits_of_a_row_are_its_own(emulated):
    """They depend neither on the rows before it nor on where a panel of vectors begins in memory."""
    case = CASES[0]
    pattern = problems.pattern_of(LENGTHS + problems.short_rows(100))
    v = problems.numbers(pattern.nnz, case)
    for columns in (1, 8):
        x = problems.numbers((pattern.n_columns, columns), case, 5)
        whole = emulated.module.matmul(OnTheHost(pattern), held(v), held(x), np.dtype(np.float32))
        apart = np.zeros(x.size + 1, np.float32)
        apart[1:] = x.ravel()
        shifted = held(apart)[1:].reshape(x.shape)
        for row in range(3, len(LENGTHS), 2):
            lone = problems.pattern_of([0, LENGTHS[row]])
            begin, end = pattern.indptr[row : row + 2]
            lone = type(lone)([0, 0, end - begin], pattern.indices[begin:end], lone.shape)
            found = emulated.module.matmul(OnTheHost(lone), held(v[begin:end]), shifted, np.dtype(np.float32))
            assert found[1].tobytes() == whole[row].tobytes()


@pytest.mark.nvcc
@pytest.mark.parametrize("places", [np.int32, np.int64])
def test_gathers_and_scatters(places, emulated):
    v = problems.numbers(1000, CASES[0])
    at = np.random.default_rng(5).permutation(1000)[:600].astype(places)
    at[::7] = -1
    assert np.array_equal(emulated.module.gather(held(v), held(at)), np.where(at < 0, 0, v[at]))
    wanted = np.zeros(1000, np.float32)
    wanted[at[at >= 0]] = v[:600][at >= 0]
    assert np.array_equal(emulated.module.scatter(held(v[:600]), held(at), 1000), wanted)
    nothing = np.zeros(0, places)
    assert emulated.module.gather(held(v[:0]), held(nothing)).shape == (0,)
    assert not emulated.module.scatter(held(v[:0]), held(nothing), 3).any()


@pytest.mark.nvcc
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [LONG + 1], [0, LONG + 1, 0], [2, 0]])
def test_small_and_empty_patterns(lengths, emulated):
    case, pattern = CASES[2], problems.pattern_of(lengths)
    v = problems.numbers(pattern.nnz, case)
    for width in ((), (2,)):
        x = problems.numbers((pattern.n_columns, *width), case)
        found = emulated.module.matmul(OnTheHost(pattern), held(v), held(x), np.dtype(float))
        problems.check_product(np.asarray(found), pattern, v, x, case)
        g = problems.numbers((pattern.n_rows, *width), case)
        sampled = emulated.module.sampled(OnTheHost(pattern), held(g), held(x), np.dtype(float))
        problems.check_sampled(np.asarray(sampled), pattern, g, x, case)


@pytest.mark.nvcc
def test_groups_are_found_once_for_an_array_and_forgotten_with_it(emulated):
    case, pattern = CASES[2], problems.pattern_of([5, 3])
    ends, v = held(pattern.indptr.copy()), problems.numbers(8, case)
    before = set(emulated.module._GROUPS)
    emulated.module.segment_sums(ends, held(v), np.dtype(float))
    (key,) = set(emulated.module._GROUPS) - before
    kept = emulated.module._GROUPS[key][1]
    emulated.module.segment_sums(ends, held(v), np.dtype(float))
    assert emulated.module._GROUPS[key][1] is kept
    del ends
    assert key not in emulated.module._GROUPS


@pytest.mark.nvcc
def test_places_of_other_types_are_refused(emulated):
    v = held(problems.numbers(4, CASES[2]))
    with pytest.raises(TypeError, match="places are of uint8: give int32 or int64"):
        emulated.module.gather(v, held(np.zeros(4, np.uint8)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("lengths", [[], [0] * 5000, LENGTHS, LENGTHS * 3 + problems.short_rows(5000), [5] * 2000])
def test_every_row_is_in_one_group_and_every_long_term_in_one_segment(lengths, dtype):
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(dtype)
    groups = term_groups(np, ends)
    rows = groups.rows.astype(int)
    assert rows[-1] == len(lengths) and (rows[0] == 0 or not lengths)
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(groups.terms, ends[rows]) and groups.terms.dtype == dtype
    for first, last in pairwise(rows.tolist()):
        assert last - first <= WINDOW
        assert ends[last - 1] - ends[first] < WINDOW
    long = np.flatnonzero(np.array(lengths, int) > LONG)
    assert np.array_equal(groups.long_rows, long)
    for at, row in enumerate(long):
        own = groups.segment_terms[groups.row_segments[at] : groups.row_segments[at + 1]]
        assert own[0, 0] == ends[row] and own[-1, 1] == ends[row + 1]
        assert np.array_equal(own[1:, 0], own[:-1, 1])
        assert np.all(own[:, 1] - own[:, 0] <= SEGMENT) and np.all(own[:, 1] > own[:, 0])
    assert groups.row_segments[-1] == len(groups.segment_terms)


def test_rows_of_a_five_point_stencil_are_a_thread_each():
    groups = term_groups(np, np.arange(0, 5 * 256 * 40 + 1, 5))
    assert np.array_equal(np.diff(groups.rows.astype(int)), np.full(40, 256))


@pytest.mark.parametrize(
    ("columns", "itemsize", "wanted"),
    [
        (1, 4, (1, 1)),
        (2, 4, (2, 1)),
        (64, 4, (4, 16)),
        (64, 8, (2, 32)),
        (7, 4, (1, 8)),
        (500, 4, (4, 32)),
        (6, 8, (2, 4)),
        (0, 4, (4, 1)),
    ],
)
def test_a_lane_reads_at_most_16_bytes(columns, itemsize, wanted):
    assert width_and_lanes(columns, itemsize) == wanted
