"""One arithmetic key, one factor: to the bit, whatever the memory, the order, the workers, the tiers and the weather."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.builders import factor_over, file_store, host_device, memory_store
from tests.host.matrices import FAMILIES
from tests.host.one_matrix import ALL_TILES, NB, NT, SOURCES, A, N
from tests.host.runs import (
    CountingSource,
    CountingStore,
    budget_of,
    check_bytes,
    factor_of,
    jitter_devices,
    run_plan,
    with_panels,
)
from tests.host.turns import in_turn
from tests.inside.dense import POLICIES, Lru
from tests.inside.hardware import HostDevice
from tests.inside.memory import as_source
from tests.inside.tasks import Link, StepKind, StreamKind, uniform_panels
from tests.products import thorough

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


def factored(a=A, tiles=ALL_TILES, **options) -> oc.CholeskyFactor:
    """A factor with tiles of NB, its bytes checked."""
    factor = oc.cholesky(a, tile_size=NB, memory_budget=budget_of(tiles, N, NB), **options)
    check_bytes(factor.report.plan, factor.report.execution)
    return factor


def plan_of(tiles, **options) -> oc.Plan:
    return oc.plan(A, tile_size=NB, memory_budget=budget_of(tiles, N, NB), **options)


@pytest.fixture(scope="module")
def expected():
    """The factor, and its key, with all tiles in memory and one worker."""
    with threadpool_limits(limits=1, user_api="blas"):
        factor = factored()
    return np.asarray(factor), factor.arithmetic_key


def assert_same(factor, expected) -> None:
    assert factor.arithmetic_key == expected[1]
    assert np.array_equal(np.asarray(factor), expected[0])


# memory, order, workers


def test_twenty_random_capacities(expected):
    chosen = random.Random(0).sample(range(3, ALL_TILES + 8), 20)
    loads = set()
    for tiles in chosen:
        factor = factored(tiles=tiles)
        assert_same(factor, expected)
        loads.add(factor.report.plan.loaded_bytes)
    assert len(loads) > 10, "the capacities hardly change what is moved"


@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, NT, *thorough(5, 6, 8, 9)])
def test_every_panel_width(expected, width):
    plan = plan_of(ALL_TILES)
    for height in (1, 2, 5):
        other = with_panels(plan, uniform_panels(NT, width, height))
        assert np.array_equal(factor_of(other, A), expected[0])


def test_every_panel_width_that_fits_little_memory(expected):
    plan = plan_of(24)
    fetched = {}
    for width in (1, 2, 3, 4):
        other = with_panels(plan, uniform_panels(NT, width, 2))
        fetched[width] = other.link_bytes(Link.FETCH)
        assert np.array_equal(factor_of(other, A), expected[0])
    assert len(set(fetched.values())) == 4, "these are not four different orders"


@pytest.mark.parametrize(("width", "devices"), in_turn([1, 3, 5, NT], [1, 2]))
def test_a_finish_stream_beside_the_sweeps(expected, width, devices):
    plan = plan_of(ALL_TILES if width == NT else 36, devices=devices)
    for seed, height in enumerate((1, 2)):
        other = with_panels(plan, uniform_panels(NT, width, height), finishes=True)
        assert any(step.stream is StreamKind.FINISH for program in other.programs for step in program.steps)
        assert np.array_equal(factor_of(other, A, jitter_devices(seed)), expected[0])


@pytest.mark.parametrize("finishes", [False, True])
def test_only_the_streams_of_the_program_are_made_and_the_finish_stream_is_urgent(finishes):
    made = {}

    class Watched(HostDevice):
        def create_stream(self, name, *, is_urgent=False):
            made[name] = is_urgent
            return super().create_stream(name, is_urgent=is_urgent)

    run_plan(
        with_panels(plan_of(20), uniform_panels(NT, 2, 1), finishes=finishes), A, make_device=partial(host_device, kind=Watched)
    )
    expected = {"copy-in": False, "compute": False, "copy-out": False}
    assert made == (expected | {"finish": True} if finishes else expected)


@pytest.mark.parametrize("tiles", [3, 7, 20])
def test_another_eviction_policy(expected, tiles):
    plan = plan_of(tiles)
    other = with_panels(plan, uniform_panels(NT, 1, 1), Lru())
    assert np.array_equal(factor_of(other, A), expected[0])


@pytest.mark.parametrize(("policy", "devices", "tiles"), in_turn(POLICIES, [1, 2, 3], [3, 8, ALL_TILES], each=2))
def test_every_policy_and_number_of_workers(expected, policy, devices, tiles):
    assert_same(factored(tiles=tiles, policy=policy, devices=devices), expected)


def test_devices_by_name_in_any_order(expected):
    assert_same(factored(devices=["host:3", "host:0"]), expected)
    assert_same(factored(devices="host:15"), expected)


@pytest.mark.parametrize("objective", ["bytes", "seconds"])
def test_every_objective(expected, objective):
    assert_same(factored(tiles=12, objective=objective), expected)


def test_more_workers_than_tile_rows(expected):
    factor = factored(devices=16)
    assert len(factor.report.plan.devices) == NT
    assert_same(factor, expected)


@pytest.mark.parametrize("devices", [1, 3])
def test_repeated_runs(expected, devices):
    for _ in range(4):
        assert_same(factored(tiles=6, devices=devices), expected)


def test_the_number_of_threads_that_share_a_tile_does_not_matter():
    a = FAMILIES["matern15 nugget 1e-6"](1450)
    factors = []
    for threads in (1, 2, 3):
        with threadpool_limits(limits=threads, user_api="blas"):
            factors.append(oc.cholesky(a, tile_size=700, memory_budget=budget_of(4, 1450, 700)))
    assert all(factor.arithmetic_key == factors[0].arithmetic_key for factor in factors)
    first = np.asarray(factors[0])
    assert all(np.array_equal(np.asarray(factor), first) for factor in factors)


# tiers


@pytest.mark.parametrize(("kind", "devices"), in_turn(SOURCES, [1, 2]))
def test_every_source(expected, tmp_path, kind, devices):
    factor = factored(SOURCES[kind](tmp_path), tiles=9, devices=devices)
    assert_same(factor, expected)
    assert (factor.report.bytes.executed["source"] == 0) == (kind == "function")


@pytest.mark.parametrize(("policy", "devices", "tiles"), in_turn(POLICIES, [1, 3], [4, ALL_TILES]))
def test_every_store(expected, tmp_path, devices, tiles, policy):
    with factored(tiles=tiles, devices=devices, policy=policy, store=tmp_path / "L.ooc") as in_file:
        assert_same(in_file, expected)
    for order in "CF":
        a = np.array(A, order=order)
        assert_same(factored(a, tiles=tiles, devices=devices, policy=policy, overwrite=True), expected)
        assert np.array_equal(np.tril(a), expected[0])
        assert np.isnan(a[~np.tri(N, dtype=bool)]).all()


def test_from_a_file_over_the_same_file(expected, tmp_path):
    np.save(tmp_path / "a.npy", A)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r+")
    assert_same(factored(mapped, tiles=5, overwrite=True), expected)
    del mapped
    assert np.array_equal(np.tril(np.load(tmp_path / "a.npy")), expected[0])


# weather


def without_waits(plan):
    """``plan`` with kernels that do not wait for their tiles."""
    steps = (step._replace(waits=()) if step.kind is StepKind.COMPUTE else step for step in plan.programs[0].steps)
    return replace(plan, programs=(replace(plan.programs[0], steps=tuple(steps)),))


def test_these_delays_would_show_a_missing_wait():
    plan = plan_of(10)
    source = CountingSource(as_source(A), 1e-3)
    # The NaN that fills a tile until it is there, met by a pivot first or, as what is enqueued runs out, by the check of A.
    with pytest.raises((oc.NotPositiveDefiniteError, oc.errors.NonFiniteError)):
        run_plan(without_waits(plan), source, None, jitter_devices(0))


@pytest.mark.parametrize("seed", [*range(4), *thorough(*range(4, 16))])
def test_delays_in_copies_and_kernels(expected, seed):
    rng = random.Random(seed)
    options = {"devices": rng.choice([1, 2, 3]), "policy": rng.choice([*POLICIES, "planned", "planned"])}
    plan = plan_of(rng.choice([3, 4, 6, 10, 30]), **options)
    store = CountingStore(memory_store(plan.grid), rng.choice([0.0, 5e-4]), ordered_by_events=rng.random() < 0.5)
    source = CountingSource(as_source(A), rng.choice([0.0, 1e-3]))
    execution = run_plan(plan, source, store, jitter_devices(seed))
    assert np.array_equal(np.asarray(factor_over(store.store)), expected[0])
    moved = {Link.SOURCE: source.nbytes, **store.moved}
    assert {link: sum(device[link] for device in execution.link_bytes) for link in moved} == moved


@pytest.mark.parametrize("devices", [1, 3])
def test_a_file_store_that_other_devices_read_late(expected, tmp_path, devices):
    plan = plan_of(5, devices=devices)
    store = file_store(tmp_path / "L.ooc", plan.grid)
    run_plan(plan, A, CountingStore(store, 5e-4), jitter_devices(100))
    store.complete()
    store.close()
    with oc.load(tmp_path / "L.ooc") as factor:
        assert np.array_equal(np.asarray(factor), expected[0])


@pytest.mark.parametrize("devices", [1, 2])
def test_a_tile_function_that_takes_its_time(expected, devices):
    rng = np.random.default_rng(devices)

    def tile(rows, cols, out, stream):
        source.read_block(rows, cols, out)

    source = CountingSource(as_source(A), float(rng.uniform(1e-4, 2e-3)))
    assert_same(factored(oc.from_function(N, tile), tiles=7, devices=devices), expected)
