"""Patterns of sparse matrices: what is refused and where, transposes, parts, unions, and the structure of products."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.diff import Pattern
from tests.host.diff_matrices import MATRICES, dense, entries, poisson, random_matrix
from tests.inside.diff import product_of, product_structure, structure_of, union, union_of

pytestmark = pytest.mark.plan

every_matrix = pytest.mark.parametrize("name", MATRICES)


def ones(pattern):
    return dense(pattern, np.ones(pattern.nnz)).astype(bool)


@pytest.mark.parametrize(
    ("indptr", "indices", "shape", "place", "words"),
    [
        ([1, 2], [0], (1, 2), "row 0", "begins with 1"),
        ([0, 2, 1, 2], [0, 1], (3, 2), "row 1", "falls from 2 to 1"),
        ([0, 1, 3], [0, 1], (2, 2), "row 1", "ends with 3, but there are 2 indices"),
        ([0, 1], [0], (2, 2), "", "2 numbers for 2 rows"),
        ([0, 1, 2], [0, 2], (2, 2), "row 1", r"column 2 \(indices\[1\]\) is outside"),
        ([0, 1, 2], [0, -1], (2, 2), "row 1", r"column -1 \(indices\[1\]\) is outside"),
        ([0, 0, 2], [1, 0], (2, 2), "row 1", r"column 0 \(indices\[1\]\) comes after column 1"),
        ([0, 1, 3], [0, 1, 1], (2, 2), "row 1", "comes twice"),
        ([0, 1], [0], (1, 0), "row 0", "outside of the matrix, which has no columns"),
        ([0], [0], (0, 1), "", "ends with 0, but there are 1 indices"),
        ([1], [0], (0, 1), "", "begins with 1"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(indptr, indices, shape, place, words):
    with pytest.raises(oc.errors.SparseInputError, match=words) as caught:
        Pattern(indptr, indices, shape, name="A")
    assert caught.value.source == "A" and caught.value.place == place and caught.value.advice


@pytest.mark.parametrize(
    ("indptr", "indices", "shape", "error", "words"),
    [
        ([0.0, 1.0], [0], (1, 1), TypeError, "indptr of the pattern is 1-dimensional, of float64"),
        ([0, 1], [[0]], (1, 1), TypeError, "indices of the pattern is 2-dimensional"),
        ([0, 1], [0], (1, -1), ValueError, "two whole numbers that are not negative"),
        ([0, 1], [0], (1, 1.5), ValueError, "two whole numbers"),
        ([0, 1], [0], (1, 2, 3), ValueError, "two whole numbers"),
        ([0, 1], [0], (1, 2**31), ValueError, "counted in int32"),
        *(
            ([0, 1], [0], shape, ValueError, "two whole numbers that are not negative")
            for shape in (
                5,
                None,
                "ab",
                {1, 2},
                {0: 1, 1: 1},
                (1, float("inf")),
                (float("nan"), 1),
                (1, None),
                (1, 1j),
                ("1", "1"),
            )
        ),
    ],
)
def test_arrays_and_shapes_of_other_kinds_are_refused(indptr, indices, shape, error, words):
    for make in (Pattern, Pattern.canonical):
        with pytest.raises(error, match=words):
            make(indptr, indices, shape)


def test_what_is_no_matrix_is_refused():
    with pytest.raises(TypeError, match="is no sparse matrix"):
        Pattern.of(object())


def test_dense_matrices_and_whole_numbers_have_patterns():
    pattern, values = Pattern.of(np.array([[0, 2], [3, 0]]))
    assert pattern.indices.tolist() == [1, 0] and values.dtype == np.float64 and values.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("kind", [np.asarray, csr_array, coo_array])
def test_sparse_matrices_of_other_types_are_as_dense_ones(kind):
    a = np.array([[0, 2], [3, 0]])
    assert Pattern.of(kind(a.astype(np.longdouble)))[1].dtype == np.float64
    with pytest.raises(TypeError, match="not there for complex128"):
        Pattern.of(kind(a.astype(complex)))


def test_a_pattern_is_a_copy_that_nobody_writes_to():
    indptr, indices = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    pattern = Pattern(indptr, indices, (2, 2))
    indices[0] = 1
    assert pattern.indices.tolist() == [0, 1] and pattern.indices.dtype == np.int32
    for array in (pattern.indptr, pattern.indices, pattern.rows, pattern.transposing, pattern.back, pattern.diagonal_places):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@every_matrix
def test_transposing_makes_values_of_the_transpose(name):
    pattern, values = entries(name)
    other = pattern.transposed
    assert np.array_equal(dense(other, values[pattern.transposing]), dense(pattern, values).T)
    assert other.transposed is pattern and pattern.transposed is other
    assert np.array_equal(pattern.transposing[pattern.back], np.arange(pattern.nnz))
    assert np.array_equal(other.transposing, pattern.back) and np.array_equal(other.back, pattern.transposing)
    assert other == Pattern(other.indptr, other.indices, other.shape), "it is a pattern as any other"
    assert pattern.on(None) == pattern.on(values)
    assert [array.dtype for array in pattern.on(None)] == [np.int32] * 5


@every_matrix
def test_rows_and_diagonal_are_where_they_are(name):
    pattern, values = entries(name)
    a = dense(pattern, values)
    assert np.array_equal(a[pattern.rows, pattern.indices], values)
    places = pattern.diagonal_places
    assert places.shape == (min(pattern.shape),) and places.dtype == np.int64
    for row, place in enumerate(places):
        assert (values[place] if place >= 0 else 0) == a[row, row]
    assert np.array_equal(places >= 0, ones(pattern).diagonal())


@every_matrix
@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3])
def test_triangles_are_numpys(name, k):
    pattern, values = entries(name)
    a = dense(pattern, values)
    for part, expected in ((pattern.tril(k), np.tril(a, k)), (pattern.triu(k), np.triu(a, k))):
        assert np.array_equal(dense(part.pattern, values[part.places.host]), expected)
        assert part.pattern == Pattern.of(csr_array(expected))[0]
    assert pattern.tril(k) is pattern.tril(k)
    assert pattern.tril(k) is pattern.tril(k) and pattern.triu(k) is pattern.triu(k)


def test_equal_patterns_are_equal_and_have_one_hash():
    pattern, _ = entries("square")
    twin = Pattern(pattern.indptr.astype(np.int64), pattern.indices.tolist(), pattern.shape, name="another")
    assert pattern == twin and hash(pattern) == hash(twin) and len({pattern, twin}) == 1
    again = pickle.loads(pickle.dumps(pattern))
    assert again == pattern and again.transposed == pattern.transposed
    wider = Pattern(pattern.indptr, pattern.indices, (pattern.n_rows, pattern.n_columns + 1))
    assert pattern != wider and pattern != pattern.tril(-1).pattern and pattern != "pattern"


@pytest.mark.parametrize("seed", range(20))
def test_entries_in_any_order_become_a_pattern(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
    count = int(rng.integers(0, 30))
    rows = np.sort(rng.integers(shape[0], size=count))
    columns, values = rng.integers(shape[1], size=count), rng.integers(-9, 9, count).astype(float)
    indptr = np.searchsorted(rows, np.arange(shape[0] + 1))
    expected = np.zeros(shape)
    np.add.at(expected, (rows, columns), values)
    found = Pattern.canonical(indptr, columns, shape)
    assert np.array_equal(dense(found.pattern, found.values(values)), expected)
    assert found.pattern == Pattern(found.pattern.indptr, found.pattern.indices, shape)
    assert found.pattern.nnz == len(set(zip(rows, columns, strict=True))) == count - found.merged
    unsorted = sum(bool((np.diff(columns[rows == row]) < 0).any()) for row in range(shape[0]))
    assert found.sorted_rows == unsorted and (found.order is None) == (unsorted == 0)
    assert (found.starts is None) == (found.merged == 0)


def test_what_was_sorted_and_merged_is_said():
    assert repr(Pattern.canonical([0, 2, 4], [1, 0, 1, 0], (2, 2))) == "Canonical(2 x 2, 4 entries; 2 rows were sorted)"
    assert repr(Pattern.canonical([0, 3], [0, 0, 0], (1, 1))) == "Canonical(1 x 1, 1 entry; 2 entries were merged into others)"
    assert repr(Pattern.canonical([0, 1], [0], (1, 1))) == "Canonical(1 x 1, 1 entry; nothing was sorted or merged)"
    with pytest.raises(ValueError, match=r"values has shape \(2,\), but 3 entries were given"):
        Pattern.canonical([0, 3], [0, 0, 0], (1, 1)).values(np.ones(2))


def test_duplicates_are_added_in_the_order_they_came_in():
    found = Pattern.canonical([0, 4], [1, 0, 1, 1], (1, 2))
    values = np.array([1e16, 5.0, 1.0, -1e16])
    assert found.values(values).tolist() == [5.0, (1e16 + 1.0) - 1e16]


@pytest.mark.parametrize(
    ("one", "two"), [("square", "square"), ("empty rows", "empty rows"), ("no entries", "no entries"), ("1 x 1", "1 x 1")]
)
def test_the_union_of_a_pattern_with_itself_is_itself(one, two):
    p, q = entries(one)[0], entries(two)[0]
    both = union(p, q)
    assert both.pattern == p and both.from_p.host.tolist() == list(range(p.nnz)) == both.from_q.host.tolist()


@pytest.mark.parametrize("seed", range(10))
def test_a_union_has_the_entries_of_both(seed):
    (p, a), (q, b) = (Pattern.of(random_matrix((6, 5), density, seed)) for density in (0.3, 0.5))
    q, b = Pattern.of(random_matrix((6, 5), 0.5, 100 + seed))
    both = union(p, q)
    assert np.array_equal(ones(both.pattern), ones(p) | ones(q))
    for pattern, values, places in ((p, a, both.from_p.host), (q, b, both.from_q.host)):
        spread = np.zeros(both.pattern.nnz)
        spread[places] = values
        assert np.array_equal(dense(both.pattern, spread), dense(pattern, values))


def test_patterns_of_other_shapes_have_no_union_and_no_product():
    wide, square = entries("wide")[0], entries("square")[0]
    with pytest.raises(ValueError, match="give patterns of one shape"):
        union(wide, square)
    with pytest.raises(ValueError, match="the first has 9 columns, the second 7 rows"):
        product_structure(wide, square)
    with pytest.raises(ValueError, match="positive number of bytes"):
        product_structure(square, square, chunk_bytes=0)


PAIRS = [("square", "square"), ("wide", "tall"), ("tall", "wide"), ("1 x 1", "1 x 1"), ("no entries", "no rows transposed")]


def pair(names):
    one, two = names
    p = entries(one)[0]
    return p, entries("no rows")[0].transposed if two == "no rows transposed" else entries(two)[0]


@pytest.mark.parametrize("names", PAIRS, ids=" @ ".join)
@pytest.mark.parametrize("chunk_bytes", [1, 600, 1 << 20])
def test_triples_are_all_products_of_entries_that_meet(names, chunk_bytes):
    p, q = pair(names)
    triples = product_structure(p, q, chunk_bytes=chunk_bytes)
    found = set()
    for entry in range(triples.pattern.nnz):
        places = range(triples.ends[entry], triples.ends[entry + 1])
        assert len(places) > 0, "an entry without a product is none"
        for t in places:
            a, b = triples.of_a[t], triples.of_b[t]
            assert p.rows[a] == triples.pattern.rows[entry] and q.indices[b] == triples.pattern.indices[entry]
            assert p.indices[a] == q.rows[b]
            found.add((int(a), int(b)))
        assert (np.diff(triples.of_a[places.start : places.stop]) > 0).all(), "the order of sums is fixed"
    meeting = {(a, b) for a in range(p.nnz) for b in range(q.nnz) if p.indices[a] == q.rows[b]}
    assert found == meeting and triples.count == len(meeting)
    assert triples.pattern == Pattern(triples.pattern.indptr, triples.pattern.indices, (p.n_rows, q.n_columns))


@pytest.mark.parametrize("names", PAIRS, ids=" @ ".join)
def test_faces_are_the_same_triples_in_another_order(names):
    p, q = pair(names)
    triples = product_structure(p, q)
    of_product = np.repeat(np.arange(triples.pattern.nnz), np.diff(triples.ends))
    told = sorted(zip(of_product, triples.of_a, triples.of_b, strict=True))
    for face, nnz, columns in ((triples.by_a, p.nnz, (1, 0, 2)), (triples.by_b, q.nnz, (1, 2, 0))):
        assert face.ends.host.size == nnz + 1
        own = np.repeat(np.arange(nnz), np.diff(face.ends.host))
        members = (own, face.first.host, face.second.host)
        # columns[i] is the member that holds the product's, a's and b's place
        assert sorted(zip(*(members[i] for i in columns), strict=True)) == told
    assert triples.by_a is triples.by_a


def test_chunks_do_not_change_a_structure():
    p = Pattern.of(poisson(20))[0]
    whole = product_structure(p, p)
    for chunk_bytes in (1, 5_000, 70_000):
        parts = product_structure(p, p, chunk_bytes=chunk_bytes)
        assert parts.pattern == whole.pattern
        for name in ("ends", "of_a", "of_b"):
            assert np.array_equal(getattr(parts, name), getattr(whole, name))


def test_threads_that_make_both_orders_of_a_pair_do_not_wait_for_each_other():
    for seed in range(40):
        p, q = (Pattern.of(random_matrix((60, 60), 0.2, 2 * seed + i))[0] for i in range(2))
        pairs = [(p, q), (q, p)] * 2
        made = tb.map_in_threads(lambda pair: (structure_of(*pair), union_of(*pair)), pairs)
        assert all(made[i][0] is made[i + 2][0] and made[i][1].pattern is made[i + 2][1].pattern for i in range(2)), "made once"
        assert made[0][1].pattern == made[1][1].pattern


def test_what_two_patterns_make_together_is_made_once_and_let_go():
    p, q = entries("square")[0], Pattern.of(random_matrix((7, 7), 0.3, 9))[0]
    assert structure_of(p, q) is structure_of(p, q) and union_of(p, q).pattern is union_of(p, q).pattern
    assert structure_of(p, q) is not structure_of(q, p)
    assert len(p._pairs) == 1
    del q
    assert len(p._pairs) == 0


def test_a_sum_or_product_without_new_entries_has_the_pattern_of_its_operand():
    full, some = Pattern.of(csr_array(np.ones((2, 2))))[0], Pattern([0, 1, 2], [0, 1], (2, 2))
    for p, q in ((full, some), (some, full)):
        assert union_of(p, q).pattern is full
        assert product_of(p, q)[0] is full
    assert union_of(some, Pattern([0, 1, 2], [0, 1], (2, 2))).pattern is some


@pytest.fixture
def none_of_before():
    """Lets the collector pass over the objects of all tests before, which are many in a run of everything."""
    gc.freeze()
    yield
    gc.unfreeze()


def test_loops_of_sums_and_products_keep_nothing_and_names_stay_short(none_of_before):
    p, q = (Pattern.of(random_matrix((30, 30), 0.1, seed))[0] for seed in (1, 2))
    gc.collect()
    before = sum(type(each) is Pattern for each in gc.get_objects())
    sums = powers = p
    for _ in range(40):
        sums, powers = union_of(sums, q).pattern, product_of(powers, q)[0]
    for _ in range(10):
        powers = product_of(powers, powers)[0]
    assert len(sums.name) <= 80 and len(powers.name) <= 80
    gc.collect()
    assert sum(type(each) is Pattern for each in gc.get_objects()) - before < 30


def test_a_pattern_goes_when_the_last_who_has_it_lets_go(none_of_before):
    """Without the collector of cycles, which knows nothing of the memory of GPUs."""
    gc.collect()
    gc.disable()
    try:
        p, q = (Pattern.of(random_matrix((9, 9), 0.4, seed))[0] for seed in (1, 2))
        gone = weakref.ref(p)
        transposed = p.transposed
        assert transposed.transposed is p
        for one, other in ((p, q), (q, p), (p, transposed), (p, p)):
            union_of(one, other), product_of(one, other)
        same = Pattern(p.indptr, p.indices, p.shape)
        del p, one, other
        assert gone() is None and transposed.transposed == same
        assert transposed.transposed is transposed.transposed
    finally:
        gc.enable()


def test_copies_of_a_pattern_are_the_pattern_and_a_pickled_one_is_equal():
    p, _ = entries("square")
    assert copy.copy(p) is p and copy.deepcopy({"p": p})["p"] is p
    again = pickle.loads(pickle.dumps(p))
    assert again == p and hash(again) == hash(p) and again.name == p.name


@pytest.mark.parametrize("k", [0.5, "1", None])
def test_diagonals_are_counted_in_whole_numbers(k):
    with pytest.raises(TypeError):
        entries("square")[0].tril(k)
