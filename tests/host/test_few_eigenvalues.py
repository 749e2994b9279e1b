"""Matrices with few distinct eigenvalues, where Krylov spaces end: values of theory, by any method, end, block and precision."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests import few_eigenvalues as few
from tests.few_eigenvalues import Case, check_case, check_cases
from tests.inside.eigen import KIND, KrylovBasis
from tests.inside.files import BlockFile, BlockFileWriter
from tests.products import thorough

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack")]

PARTS = 8


@pytest.fixture(scope="module")
def drawn():
    return few.cases()


@pytest.mark.parametrize("part", range(PARTS))
def test_values_are_those_of_theory(drawn, part):
    check_cases(drawn[part::PARTS], "host:0")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 11))
def test_values_of_more_draws(seed):
    check_cases(few.cases(4, seed), "host:0")


@pytest.mark.parametrize(
    ("made", "k", "options"),
    [
        (few.copies(few.complete(30), 20), 6, {}),
        (few.copies(few.complete(30), 20), 6, {"block": 1}),
        (few.cartesian(few.complete(20), few.complete(20)), 2, {"which": "LA"}),
        (few.paley(401), 6, {}),
        *((few.hypercube(10), k, {"which": "LA"}) for k in (57, 60)),
        (few.copies(few.complete(30), 20), 25, {"which": "LA", "degree": None}),
        (few.copies(few.complete(30), 20), 25, {"which": "LA", "degree": 6}),
        *((few.hypercube(7), 96, {"which": "LA", "block": 1, "ncv": ncv}) for ncv in (112, 127)),
        *((few.scaled_identity(777, c), 10, {"block": block}) for c in (0.0, -2.5) for block in (1, 8)),
        *((few.copies(few.complete(7), 31), 31, {"which": "LA", "block": block}) for block in (1, 2, 4, 8)),
    ],
)
def test_default_calls_and_edges(made, k, options):
    case = Case("case", made, k, {"which": "LM", **options})
    pairs = oc.eigsh(made.a, k, devices="host:0", max_passes=400, **options)
    check_case(case, pairs)


@pytest.mark.parametrize("seed", range(8))
def test_copies_in_the_frontier_are_found_where_the_check_is_cut_short(seed):
    """A basis of 112 for 96 pairs leaves the check 14 products: all with random vectors missed a copy from half of these."""
    made = few.hypercube(7)
    v0 = np.random.default_rng(seed).standard_normal((128, 1))
    pairs = oc.eigsh(made.a, 96, which="LA", block=1, ncv=112, v0=v0, devices="host:0", max_passes=400)
    check_case(Case("case", made, 96, {"which": "LA"}), pairs)


@pytest.mark.parametrize("precision", few.PRECISIONS)
@pytest.mark.parametrize(("m", "factor", "block"), [(100, 1.0, 2), (150, -1.0, 4), (150, 1e-9, 8), (222, -1.0, 8), (222, 1e9, 1)])
def test_matrices_of_rank_one(m, factor, block, precision):
    """A product of a vector of their null space is roundoff of roundoff, whose square is no normal number of float32."""
    made = few.affine(few.ones(m), factor)
    for which in few.ENDS:
        case = Case("ones", made, 4, {"which": which, "block": block, "precision": precision})
        check_case(case, oc.eigsh(made.a, 4, devices="host:0", max_passes=400, **case.options))


def test_two_devices_and_a_start_within_one_component():
    """Of 70,000 rows, so that each device has some; the space of the start ends after two products."""
    made, v0 = few.copies(few.complete(4), 17_500), np.zeros(70_000)
    v0[3] = 1.0
    for block in (1, 8):
        case = Case("components", made, 12, {"which": "LA", "block": block})
        check_case(case, oc.eigsh(made.a, 12, devices=["host:0", "host:1"], v0=v0, **case.options))


def test_singular_values_of_equal_parts():
    a = scipy.sparse.block_diag([np.ones((5, 9))] * 40).tocsr()
    for block in (1, 8):
        found = oc.svds(a, 45, block=block, devices="host:0")
        np.testing.assert_allclose(np.sort(found.s), np.repeat([0.0, 45**0.5], [5, 40]), atol=1e-9 * 45**0.5)


# whose fault it is


@pytest.mark.parametrize("block", [1, 8])
def test_a_basis_that_is_none_is_not_called_an_asymmetric_matrix(block, monkeypatch):
    made, read = few.hypercube(9), KrylovBasis.read

    def spoiled(self):
        read(self)
        self._h[0, 2] += 0.1

    monkeypatch.setattr(KrylovBasis, "read", spoiled)
    with pytest.raises(oc.errors.NoConvergenceError, match="vectors of the basis lost their orthogonality"):
        oc.eigsh(made.a, 4, which="LA", block=block, devices="host:0")


@pytest.mark.parametrize("block", [1, 2, 8])
@pytest.mark.parametrize(("size", "precision"), [(1e-3, "DDD"), (1.0, "FFF")])
def test_an_asymmetric_matrix_is_called_that(block, size, precision):
    a = few.copies(few.complete(30), 20).a.tolil()
    a[3, 500] = size
    with pytest.raises(ValueError, match="A is not symmetric"):
        oc.eigsh(a.tocsr(), 4, block=block, precision=precision, devices="host:0")


# checkpoints of which all checksums are right


def changed(path, panel, change, facts=None):
    """The checkpoint at a path with one panel changed, or what its header says, and checksums of what it holds then."""
    file = BlockFile(path, "krylov-basis", KIND.files)
    panels = [np.empty(size, np.uint8) for size in file.sizes]
    for number, out in enumerate(panels):
        file.read_stored((number, 0), out)
    told = dict(file.facts)
    file.close()
    if panel is not None:
        change(panels[panel].view(np.dtype(told["storage"])))
    if facts is not None:
        facts(told["state"])
    with BlockFileWriter(path, [], kind=KIND.files) as writer:
        for each in panels:
            room = writer.room(each.size)
            room[:] = each
            writer.put(room)
        writer.complete("krylov-basis", told)


def add(numbers):
    numbers[17] += 0.01


def swap(numbers):
    numbers[:40] = numbers[40:80].copy()


def first_value(state):
    state["values"][0] = (float.fromhex(state["values"][0]) * 1.01).hex()


def first_coupling(state):
    largest = max(range(len(state["coupling"])), key=lambda at: abs(float.fromhex(state["coupling"][at])))
    state["coupling"][largest] = (float.fromhex(state["coupling"][largest]) * 1.1).hex()


@pytest.mark.parametrize(
    ("panel", "change", "facts"),
    [(0, add, None), (-1, add, None), (1, swap, None), (None, None, first_value), (None, None, first_coupling)],
)
@pytest.mark.parametrize("arithmetic", [("DDD", 1), ("FFF", 1), *thorough(("DDD", 8), ("FDF", 1))])
def test_a_checkpoint_of_other_numbers_is_refused(panel, change, facts, arithmetic, tmp_path):
    n, (precision, degree) = 900, arithmetic
    a = scipy.sparse.diags_array([np.ones(n - 1), np.linspace(0, 3, n), np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()
    options = {"which": "LA", "precision": precision, "block": 2, "ncv": 24, "degree": degree, "devices": "host:0"}
    path = tmp_path / "run"
    with suppress(oc.errors.NoConvergenceError):
        oc.eigsh(a, 4, checkpoint=path, max_passes=30, **options)
    whole = path.read_bytes()
    changed(path, panel, change, facts)
    with pytest.raises(oc.errors.DamagedFileError, match="those of no run on this matrix") as told:
        oc.eigsh(a, 4, checkpoint=path, **options)
    assert told.value.path == str(path)
    path.write_bytes(whole)
    assert oc.eigsh(a, 4, checkpoint=path, **options).report.resumed >= 12
