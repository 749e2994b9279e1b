"""Factors through residues: as right as LAPACK's, the same to the bit in any memory and order, and never silently wrong."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.builders import forget_plans, host_device, memory_store
from tests.host.matrices import FAMILIES, check_factor, lapack_minor, powers_of_two, residual
from tests.host.one_matrix import NB, SOURCES, A, N
from tests.host.residue_reference import integer
from tests.host.runs import jitter_devices, jitter_kind, use_devices
from tests.host.spoiled import INDEFINITE, PLACES, counter_example, spread_out
from tests.host.spoiled import N as ERROR_N
from tests.host.spoiled import good as good_to_spoil
from tests.host.turns import in_turn
from tests.inside.dense import STREAMING, ResidueLayout, ResidueOperations, store_opening
from tests.inside.dense import residues as residues_planner
from tests.inside.kernels import registry
from tests.inside.precision import MOST_MODULI, ResidueBasis
from tests.inside.schedulers import SCHEDULERS, AbstractScheduler, Job, ResidueScheduler, Schedule
from tests.inside.tasks import StreamKind, TileGrid
from tests.ownership import cyclic_rows
from tests.products import share_of_examples, thorough
from tests.tolerances import residue_entry_bound

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

COUNTS = range(4, MOST_MODULI + 1)
NT = 10


def through_residues(a, nb=NB, **options) -> oc.CholeskyFactor:
    """A factor through residues; its bytes and its memory are those of its plan."""
    factor = oc.cholesky(a, **{"tile_size": nb, "fp64": "residue", "devices": "host:0", "memory_budget": "256 MiB", **options})
    plan, execution = factor.report.plan, factor.report.execution
    assert plan.engine == "residue"
    assert execution.link_bytes == tuple(program.link_bytes for program in plan.programs)
    for program, budget in zip(plan.programs, plan.budgets, strict=True):
        assert program.peak_resident == program.peak_bytes <= program.layout.arena_bytes
        assert not budget.workspace_bytes + program.layout.arena_bytes > budget.budget_bytes
    return factor


def least_budget(n: int, nb: int, **options) -> int:
    """The bytes that the planner says suffice."""
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(n, tile_size=nb, fp64="residue", memory_budget=1, **{"devices": "host:0", **options})
    return caught.value.needed_bytes


# right


@pytest.mark.parametrize(("family", "case"), in_turn(FAMILIES, [(65, 16, True), (160, 32, True), (200, 64, False)]))
def test_every_family_is_as_right_as_lapack(family, case):
    n, nb, least = case
    a = FAMILIES[family](n)
    check_factor(through_residues(a, nb, **({"memory_budget": least_budget(n, nb)} if least else {})), a)


@pytest.mark.parametrize("family", ["matern25 nugget 1e-11", "gaussian nugget 1e-12", "scaled by 10**150", "graded down"])
def test_hard_families_at_order_400_on_two_devices(family):
    a = FAMILIES[family](400)
    check_factor(through_residues(a, 112, devices=2), a)


@pytest.mark.parametrize("condition", [1e6, 1e12, 1e14])
@pytest.mark.parametrize("nb", [16, 64])
def test_any_condition_that_lapack_survives(condition, nb):
    n = 160
    q = np.linalg.qr(np.random.default_rng(3).standard_normal((n, n)))[0]
    a = (q * np.geomspace(1.0, 1 / condition, n)) @ q.T
    a = (a + a.T) / 2
    check_factor(through_residues(a, nb), a)


@pytest.mark.parametrize("entry", [1.0, 1.01, 3.99, 1.01 * 4.0**37, 1.01 * 4.0**-490, 1e300])
def test_rows_just_beside_powers_of_four(entry):
    n = 100
    a = entry * FAMILIES["matern15 nugget 1e-11"](n)
    check_factor(through_residues(a, 16), a)


@pytest.mark.parametrize(("n", "nb"), [(1, 16), (16, 16), (17, 16), (95, 48), (100, 112), (129, 32)])
def test_every_order_and_tile_size(n, nb):
    a = FAMILIES["exponential"](n)
    check_factor(through_residues(a, nb), a)


def test_the_default_tile_size_and_budget():
    a = FAMILIES["matern15 nugget 1e-6"](600)
    check_factor(oc.cholesky(a, fp64="residue"), a)


@share_of_examples(0.3)
@given(
    n=st.integers(1, 140),
    nb=st.sampled_from([16, 32, 48]),
    devices=st.integers(1, 3),
    share=st.floats(1.0, 4.0),
    family=st.sampled_from(sorted(FAMILIES)),
    order=st.sampled_from("CF"),
)
def test_any_choice_of_options(n, nb, devices, share, family, order):
    a = np.array(FAMILIES[family](n), order=order)
    budget = int(share * least_budget(n, nb, devices=devices))
    check_factor(through_residues(a, nb, devices=devices, memory_budget=budget), a)


@pytest.mark.parametrize("family", ["exponential", "matern25 nugget 1e-6", "random"])
def test_scaling_rows_by_powers_of_two_scales_the_factor_exactly(family):
    a, d = FAMILIES[family](200), powers_of_two(200)
    scaled = np.asarray(through_residues(d[:, None] * a * d[None, :], 64))
    assert np.array_equal(scaled, d[:, None] * np.asarray(through_residues(a, 64)))


# moduli


@pytest.mark.parametrize("family", ["exponential", "random", "graded down", "scaled by 10**150"])
def test_every_modulus_gives_four_bits(family):
    n, a = 64, FAMILIES[family](64)
    diagonal = np.diagonal(a)
    roots, norms = np.sqrt(diagonal), {}
    for count in COUNTS:
        l_dense = np.asarray(through_residues(a, 32, moduli=count)) / roots[:, None]
        r = residual(l_dense, a / roots[:, None] / roots)
        assert np.all(np.abs(r) <= residue_entry_bound(n, ResidueBasis(count).bits, 1.0, 1.0))
        norms[count] = float(np.linalg.norm(r.astype(float)))
    gained = {count: float(np.log2(norms[count] / norms[count + 1])) for count in range(4, 12)}
    assert all(2.5 <= bits <= 4.5 for bits in gained.values()), gained
    assert sum(gained.values()) == pytest.approx(ResidueBasis(12).bits - ResidueBasis(4).bits, abs=1.5)


@pytest.mark.parametrize(
    "family", ["matern15 nugget 1e-6", "matern25 nugget 1e-11", "gaussian nugget 1e-12", "random, condition 1e10"]
)
def test_too_few_moduli_give_an_error_or_the_accuracy_of_their_bits(family):
    n, a = 96, FAMILIES[family](96)
    diagonal, outcomes = np.diagonal(a), set()
    for count in (4, 5, 6, 7, 9, 12, 16):
        try:
            l_dense = np.asarray(through_residues(a, 32, moduli=count))
        except oc.NotPositiveDefiniteError:
            outcomes.add("error")
            continue
        outcomes.add("factor")
        bound = residue_entry_bound(n, ResidueBasis(count).bits, diagonal[:, None], diagonal[None, :])
        assert np.all(np.abs(residual(l_dense, np.tril(a))) <= bound)
    assert "factor" in outcomes


# one key, one factor

#: Moduli of the tests of order, bits and errors: enough for A, which is well conditioned, and a third of the work.
FEW = 6


def through_few(a, **options) -> oc.CholeskyFactor:
    return through_residues(a, **{"moduli": FEW, **options})


@pytest.fixture(scope="module")
def expected():
    """The factor, and its key, on one device with plenty of memory."""
    with threadpool_limits(limits=1, user_api="blas"):
        factor = through_few(A)
    return np.asarray(factor), factor.arithmetic_key


def assert_same(factor, expected) -> None:
    assert factor.arithmetic_key == expected[1]
    assert np.array_equal(np.asarray(factor), expected[0])


def force(monkeypatch, *, nb=NB, n=N, chunk, width, strips=0, tiles=1, transit=1, accumulators=2, folds=False) -> ResidueLayout:
    """Let the planner find this layout best; ``strips`` are those beside the fewest that there must be."""
    nt = TileGrid(n, nb).nt
    least = max(width, -(-nt // chunk)) + STREAMING
    layout = ResidueLayout(FEW, min(n, nb), chunk, width, width + tiles, transit, least + strips, accumulators, folds=folds)
    monkeypatch.setattr(residues_planner, "best_layouts", lambda *_, **__: [layout])
    forget_plans()
    return layout


SHAPES = [
    *((1, 1), (2, 1), (3, 3), (5, 2), (5, 5), (10, 4), (10, 7), (10, 10)),
    *thorough((2, 2), (3, 1), (3, 2), (5, 1), (5, 3), (5, 4), (10, 1), (10, 3)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_panel_width_and_chunk(expected, monkeypatch, shape):
    (chunk, width), fetched = shape, []
    for devices, strips in ((1, 0), (2, 3), (1, 40)):
        folds = strips == 3  # what its products leave in accumulators changes no bit
        layout = force(monkeypatch, chunk=chunk, width=width, strips=strips, accumulators=2 + strips % 3, folds=folds)
        factor = through_few(A, devices=devices)
        assert factor.report.plan.layout == layout
        assert_same(factor, expected)
        fetched.append(factor.report.bytes.executed["fetch"])
    assert fetched[2] <= fetched[0]


@pytest.mark.parametrize(("share", "devices"), in_turn([1.0, 1.7, 30.0], [1, 2, 3], each=2))
def test_budgets_and_numbers_of_devices(expected, devices, share):
    factor = through_few(A, devices=devices, memory_budget=int(share * least_budget(N, NB, moduli=FEW)))
    assert len(factor.report.plan.devices) == devices
    assert_same(factor, expected)
    pulled = factor.report.bytes.executed["peer"]
    assert (pulled > 0) == (devices > 1)


def test_more_devices_than_tile_rows(expected):
    assert_same(through_few(A, devices=16), expected)


@pytest.mark.parametrize("name", ["cyclic", "all on the second", "random"])
def test_who_owns_a_row_does_not_matter(expected, monkeypatch, name):
    tables = {
        "cyclic": cyclic_rows(NT, 3),
        "all on the second": (1,) * NT,
        "random": tuple(random.Random(4).choice([0, 1, 2]) for _ in range(NT)),
    }
    monkeypatch.setattr(residues_planner, "balanced_rows", lambda *_: tables[name])
    force(monkeypatch, chunk=3, width=2)
    assert_same(through_few(A, devices=max(tables[name]) + 1), expected)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_rows_in_a_panel_does_not_matter(expected, monkeypatch, seed):
    class ByChance(AbstractScheduler[Job]):
        """The panel's own rows in their order, then the others in any."""

        name = "by chance"

        def schedule(self, grid, owners, panels, given=frozenset(), window=None):
            rng, ends = random.Random(seed), [panel.k0 + panel.width for panel in panels]
            mixed = []
            for jobs in ResidueScheduler().schedule(grid, owners, panels, given).tasks:
                chance = [(job.panel, job.row if job.row < ends[job.panel] else NT + rng.random(), job) for job in jobs]
                mixed.append(tuple(job for _, _, job in sorted(chance)))
            return Schedule(grid, tuple(mixed))

    monkeypatch.setitem(SCHEDULERS, "residues", ByChance)
    force(monkeypatch, chunk=4, width=2, strips=2)
    assert_same(through_few(A, devices=1 + seed % 3), expected)


@pytest.mark.parametrize(("kind", "devices"), in_turn(SOURCES, [1, 2]))
def test_every_source(expected, tmp_path, kind, devices):
    factor = through_few(SOURCES[kind](tmp_path), devices=devices)
    assert_same(factor, expected)
    assert (factor.report.bytes.executed["source"] == 0) == (kind == "function")


@pytest.mark.parametrize("devices", [1, 3])
def test_every_store(expected, tmp_path, monkeypatch, devices):
    force(monkeypatch, chunk=2, width=2)
    with through_few(A, devices=devices, store=tmp_path / "L.ooc") as in_file:
        assert_same(in_file, expected)
    with oc.load(tmp_path / "L.ooc") as loaded:
        assert_same(loaded, expected)
    for order in "CF":
        a = np.array(A, order=order)
        assert_same(through_few(a, devices=devices, overwrite=True), expected)
        assert np.array_equal(np.tril(a), expected[0])
        assert np.isnan(a[~np.tri(N, dtype=bool)]).all()


def test_from_a_file_over_the_same_file(expected, tmp_path):
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r+")
    assert_same(through_few(mapped, devices=2, overwrite=True), expected)
    del mapped
    assert np.array_equal(np.tril(np.load(tmp_path / "a.npy")), expected[0])


def test_the_key_names_engine_and_moduli(expected, tmp_path):
    assert expected[1]["engine"] == "residue, 6 moduli"
    assert expected[1]["k_segment_tiles"] == 0
    assert through_residues(A).arithmetic_key["engine"] == "residue, 14 moduli"
    fewer, native = through_few(A, moduli=5), oc.cholesky(A, tile_size=NB, fp64="native")
    assert fewer.arithmetic_key["engine"] == "residue, 5 moduli"
    assert native.arithmetic_key["engine"] == "native"
    assert not np.array_equal(np.asarray(fewer), expected[0])
    fewer.save(tmp_path / "L.ooc")
    with oc.load(tmp_path / "L.ooc") as loaded:
        assert loaded.arithmetic_key == fewer.arithmetic_key


# weather


@pytest.mark.parametrize("seed", [*range(4), *thorough(*range(4, 9))])
def test_delays_in_copies_and_kernels_on_all_streams(expected, monkeypatch, seed):
    rng = random.Random(seed)
    beside = replace(registry.HOST, finishes_beside=True)
    monkeypatch.setattr(residues_planner, "kind_of", lambda name: beside)
    use_devices(monkeypatch, jitter_devices(seed))
    chunk = rng.choice([1, 2, 4, 10])
    force(monkeypatch, chunk=chunk, width=rng.randint(1, chunk), strips=rng.choice([0, 4]), accumulators=rng.choice([2, 3]))
    a = A.copy()
    factor = through_few(a, devices=1 + seed % 3, overwrite=seed % 2 == 0)
    streams = {step.stream for program in factor.report.plan.programs for step in program.steps}
    assert {StreamKind.FINISH, StreamKind.FINISH_1, StreamKind.CONVERT} <= streams
    assert_same(factor, expected)


def test_l_over_a_waits_until_every_device_has_read_the_diagonal(expected, monkeypatch):
    """1. The second device has not read its diagonal tiles yet. 2. The first one is done with a tile and writes L over A."""

    class Late(jitter_kind(0)):
        def copy_in(self, stream, tier, index, tile):
            if self.name == "host:1" and index[0] == index[1]:
                stream.enqueue(lambda: time.sleep(0.03))
            super().copy_in(stream, tier, index, tile)

    use_devices(monkeypatch, partial(host_device, kind=Late))
    monkeypatch.setattr(residues_planner, "balanced_rows", lambda *_: (0,) * 5 + (1,) * 5)  # five rows that need nobody else
    assert_same(through_few(A.copy(), devices=2, overwrite=True), expected)


# not positive definite


def minor_of(a, **options) -> tuple[int, tuple[int, int]]:
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(a, **{"tile_size": 16, "memory_budget": "64 MiB", "devices": "host:0", **options})
    return caught.value.minor, caught.value.tile


def wrapped_pivots(a, count: int) -> list[float]:
    """Pivots of a factorization whose sums are taken modulo P and whose rows nobody watches; entries are within their bounds."""
    basis = ResidueBasis(count)
    e = [basis.exponent(a_ii) for a_ii in a.diagonal()]
    n, l_dense, pivots = len(a), np.zeros_like(a), []
    for i in range(n):
        for j in range(i + 1):
            q = [(integer(l_dense[i, k], e[i]), integer(l_dense[j, k], e[j])) for k in range(j)]
            total = sum(x * y for x, y in q) % basis.product
            total -= basis.product * (total > basis.product // 2)
            rest = float(Fraction(a[i, j]) - total * Fraction(2) ** -(e[i] + e[j]))
            if i == j:
                pivots.append(rest)
            l_dense[i, j] = np.sqrt(rest) if i == j else rest / l_dense[j, j]
            assert i == j or abs(l_dense[i, j]) <= np.sqrt(a[i, i])
    return pivots


@pytest.mark.parametrize("count", [4, 13, 16, *thorough(*(count for count in COUNTS if count not in (4, 13, 16)))])
@pytest.mark.parametrize("scale", [1.0, *thorough(1e-100, 1.2, 2.0**200)])
def test_sums_that_wrap_into_a_positive_pivot_are_flagged_before(count, scale):
    small = counter_example(count, scale)
    assert min(wrapped_pivots(small, count)) > 0
    assert np.linalg.eigvalsh(small / small[0, 0])[0] < -0.1
    a = spread_out(small)
    assert minor_of(a, fp64="residue", moduli=count, devices=1 + count % 2) == (97, (6, 6))
    assert lapack_minor(a) == 97


@pytest.mark.parametrize("scale", [1e-100, 1.2, 2.0**200])
def test_sums_that_wrap_are_flagged_at_every_scale(scale):
    for count in (4, 9, 14):
        small = counter_example(count, scale)
        assert min(wrapped_pivots(small, count)) > 0
        assert minor_of(spread_out(small), fp64="residue", moduli=count) == (97, (6, 6))


def test_without_flags_the_counter_example_would_pass_for_positive_definite(monkeypatch):
    monkeypatch.setattr(ResidueOperations, "flagged_row", lambda self: None)
    a = spread_out(counter_example(13))
    l_dense = np.asarray(through_residues(a, 16, moduli=13))
    assert np.abs(np.tril(l_dense @ l_dense.T - a)).max() > 1


@pytest.mark.parametrize(("kind", "devices"), in_turn(INDEFINITE, [1, 3]))
def test_every_kind_of_indefinite_matrix_has_the_minor_of_native(kind, devices):
    a = np.asarray(INDEFINITE[kind](good_to_spoil()))
    found = minor_of(a, fp64="residue", devices=devices, moduli=None if devices == 1 else FEW)
    assert found == minor_of(a, fp64="native", devices=devices)
    assert found[0] == lapack_minor(a)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("flagged", [-1.0, 0.0, 1e-9])
def test_a_smaller_minor_wins_over_a_row_that_is_flagged_before(flagged, devices):
    a = np.tril(FAMILIES["exponential"](ERROR_N))
    a[85, 85] = flagged  # its row is flagged at the start, or in the first panel
    a[50, 49] = 1.5  # within one tile: met by its pivot alone
    for _ in range(2):
        assert minor_of(a, fp64="residue", devices=devices, moduli=FEW) == (51, (3, 3))
    a[50, 49] = 0.0
    a[50, :50] = 0.0
    assert minor_of(a, fp64="residue", devices=devices)[0] == lapack_minor(a)


@pytest.mark.parametrize(
    ("minor", "devices", "entry"), in_turn([1, 2, 16, 17, 33, 80, 81, 90], [1, 3], [0.0, -1.0, -1e300, -5e-324], each=2)
)
def test_zero_and_negative_diagonal_entries(entry, minor, devices):
    a = good_to_spoil()
    a[minor - 1, minor - 1] = entry
    k = (minor - 1) // 16
    assert minor_of(a, fp64="residue", devices=devices, moduli=FEW) == (minor, (k, k))


def test_an_order_of_one():
    for value in (0.0, -4.0):
        assert minor_of(np.array([[value]]), fp64="residue") == (1, (0, 0))


@pytest.mark.parametrize("seed", [*range(3), *thorough(*range(3, 6))])
def test_random_indefinite_matrices_have_the_minor_of_lapack(seed):
    rng = np.random.default_rng(seed)
    n = 150
    a = FAMILIES["random"](n) / n
    at = rng.integers(1, n, 3)
    a[at, at] *= rng.choice([0.1, 0.5, 1e-6], 3)
    a[at, at // 2] += rng.uniform(0.5, 3.0, 3)
    minor = lapack_minor(a)
    for devices in (1, 2):
        assert minor_of(a, fp64="residue", devices=devices)[0] == minor


# NaN and infinity


@pytest.mark.parametrize(
    ("place", "engine", "devices", "value"), in_turn(PLACES, ["native", "residue"], [1, 3], [np.nan, np.inf, -np.inf], each=2)
)
def test_an_entry_that_is_not_finite_is_found_where_it_is(place, engine, devices, value):
    a = good_to_spoil()
    a[place] = value
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        moduli = FEW if engine == "residue" else None
        oc.cholesky(a, tile_size=16, devices=devices, memory_budget="64 MiB", fp64=engine, moduli=moduli)
    assert (caught.value.row, caught.value.col) == place
    assert caught.value.tile == (place[0] // 16, place[1] // 16)


# memory and arguments


@pytest.mark.parametrize(("n", "nb"), [(1, 16), (40, 16), (90, 32), (300, 32), (600, 256)])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_budget_that_is_too_small_says_how_much_suffices(n, nb, devices):
    a = 2.0 * np.eye(n)
    options = {"tile_size": nb, "devices": devices, "fp64": "residue"}
    with pytest.raises(oc.BudgetError, match="give that much or more, or use fp64='native'") as caught:
        oc.cholesky(a, memory_budget=100, **options)
    error = caught.value
    assert error.what == "memory_budget of host:0" and error.budget_bytes == 100 < error.needed_bytes
    with pytest.raises(oc.BudgetError):
        oc.cholesky(a, memory_budget=error.needed_bytes - 1, **options)
    assert np.array_equal(np.asarray(oc.cholesky(a, memory_budget=error.needed_bytes, **options)), np.sqrt(a))


@pytest.mark.parametrize("devices", [1, 2])
def test_what_devices_hold_is_not_left_for_l(monkeypatch, devices):
    plan = oc.plan(A, tile_size=NB, fp64="residue", devices=devices, memory_budget="256 MiB")
    arenas, needed = devices * plan.layout.arena_bytes, memory_store(plan.grid).nbytes
    monkeypatch.setattr(store_opening, "free_host_bytes", lambda: arenas + needed - 1)
    with pytest.raises(oc.BudgetError, match=r"host memory for L.*store=") as caught:
        through_residues(A, devices=devices)
    assert caught.value.budget_bytes == needed - 1 == caught.value.needed_bytes - 1
    monkeypatch.setattr(store_opening, "free_host_bytes", lambda: arenas + needed)
    through_residues(A, devices=devices)


REFUSED = {
    "tile size": ({"tile_size": 20}, "tile_size is 20, but products through residues take multiples of 16"),
    "policy": ({"policy": "v3"}, "policy 'v3' orders tiles of native FP64; products through residues have 'planned' only"),
    "too few moduli": ({"moduli": 3}, "moduli is 3, but from 4 to 16"),
    "too many moduli": ({"moduli": 17}, "moduli is 17, but from 4 to 16"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_residues_cannot_do_says_so(kind):
    options, text = REFUSED[kind]
    for call in (oc.cholesky, oc.plan):
        with pytest.raises(ValueError, match=text):
            call(np.eye(40), fp64="residue", **options)


def test_the_page_and_the_trace_of_a_run(tmp_path):
    factor = through_residues(A, devices=2, trace=True)
    page = str(factor.report.plan)
    assert "products through residues of 14 moduli (54 bits)" in page and "from device to device" in page
    assert factor.trace.save(tmp_path / "run.pftrace").stat().st_size > 1000
    labels = {record.label.split()[0] for record in factor.trace.records}
    assert {"product", "convert", "reconstruct", "POTRF", "TRSM", "pull", "write"} <= labels
    steps = {(record.device, record.step): record for record in factor.trace.records}
    for record in factor.trace.records:
        assert all(steps[key].end_ns <= record.end_ns for key in record.after)


def test_a_tile_function_that_fails_ends_all_devices():
    class BoomError(Exception):
        """The user's own error."""

    error = BoomError()

    def tile(rows, cols, out, stream):
        if (rows.start, cols.start) == (192, 64):
            raise error
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    for devices in (1, 3):
        with pytest.raises(BoomError) as caught:
            through_few(oc.from_function(N, tile), devices=devices)
        assert caught.value is error
