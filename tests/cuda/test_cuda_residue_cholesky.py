"""Whole factorizations through residues on CUDA devices: right, the same to the bit on any number, and failing as they should."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import forget_plans
from tests.host.matrices import FAMILIES, check_factor, lapack_minor, residual, upper_poisoned
from tests.host.spoiled import INDEFINITE, counter_example, spread_out
from tests.host.spoiled import good as good_to_spoil
from tests.inside.dense import STREAMING, ResidueLayout, default_moduli
from tests.inside.dense import residues as residues_planner
from tests.inside.precision import ResidueBasis
from tests.inside.tasks import StepKind, TileGrid
from tests.ownership import cyclic_rows
from tests.tolerances import FACTOR_ENTRY_C, residue_entry_bound

pytestmark = pytest.mark.cuda

GPUS = ("cuda:0", "cuda:1")
#: Seconds by which the clocks of two streams, or of two devices, may differ in a trace.
CLOCK_SECONDS = 1e-3


def on_cuda(a, nb=128, share=None, devices="cuda:0", **options) -> oc.CholeskyFactor:
    """A factor through residues in ``share`` times the least budget; its bytes and its memory are those of its plan."""
    n = a.n if hasattr(a, "n") else len(a)
    budget = "4 GiB" if share is None else int(share * least_budget(n, nb, **options))
    options = {"tile_size": nb, "devices": devices, "fp64": "residue", "memory_budget": budget, **options}
    factor = oc.cholesky(a, **options)
    plan, execution = factor.report.plan, factor.report.execution
    assert plan.engine == "residue"
    assert execution.link_bytes == tuple(program.link_bytes for program in plan.programs)
    for program, held in zip(plan.programs, plan.budgets, strict=True):
        assert program.peak_resident == program.peak_bytes <= program.layout.arena_bytes
        assert program.layout.arena_bytes + held.workspace_bytes <= held.budget_bytes
    return factor


def least_budget(n: int, nb: int, moduli=None, **_) -> int:
    """The bytes that the planner says suffice."""
    with pytest.raises(oc.BudgetError) as caught:
        oc.plan(n, tile_size=nb, devices="cuda:0", fp64="residue", memory_budget=1, moduli=moduli)
    return caught.value.needed_bytes


# right


@pytest.mark.parametrize(
    ("n", "nb"), [(1, 16), (16, 16), (65, 16), (300, 64), (1000, 112), (2049, 256), (2049, 512), (2500, 496)]
)
def test_every_order_and_tile_size(n, nb):
    a = FAMILIES["exponential"](n)
    check_factor(on_cuda(a, nb), a)
    check_factor(on_cuda(a, nb, 1.0), a)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "nb"), [(300, 64), (2049, 256)])
def test_every_family_is_as_right_as_lapack(family, n, nb):
    a = FAMILIES[family](n)
    check_factor(on_cuda(a, nb, 2.0), a)


@pytest.mark.parametrize("family", ["matern25 nugget 1e-11", "gaussian nugget 1e-12", "graded down", "scaled by 10**150"])
@pytest.mark.parametrize(("n", "nb"), [(6144, 512), (6001, 256)])
def test_hard_families_at_order_6000_beside_lapack(family, n, nb):
    a = FAMILIES[family](n)
    check_factor(on_cuda(a, nb, 1.5), a)


@pytest.mark.parametrize("condition", [1e6, 1e12, 1e14])
def test_any_condition_that_lapack_survives(condition):
    n = 300
    q = np.linalg.qr(np.random.default_rng(3).standard_normal((n, n)))[0]
    a = (q * np.geomspace(1.0, 1 / condition, n)) @ q.T
    a = (a + a.T) / 2
    check_factor(on_cuda(a, 64), a)


@pytest.mark.parametrize("count", [4, 7, 10, 13, 16])
def test_every_number_of_moduli_has_the_accuracy_of_its_bits(count):
    n, a = 300, FAMILIES["random"](300)
    diagonal = np.diagonal(a)
    l_dense = np.asarray(on_cuda(a, 64, moduli=count))
    bound = residue_entry_bound(n, ResidueBasis(count).bits, diagonal[:, None], diagonal[None, :])
    assert np.all(np.abs(residual(l_dense, np.tril(a))) <= bound)


def test_many_sampled_blocks_at_order_16384():
    n = 16384
    points = np.arange(n) + np.random.default_rng(0).uniform(-0.4, 0.4, n)
    a = np.exp(-np.abs(points[:, None] - points[None, :]) / 50) + 1e-6 * np.eye(n)
    sample = on_cuda(a, 1024, 1.5).residual(a)
    assert sample.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C, str(sample)


def test_the_default_tile_size_and_budget():
    a = FAMILIES["matern15 nugget 1e-6"](3000)
    factor = oc.cholesky(a, fp64="residue", devices="cuda:0")
    check_factor(factor, a)
    assert factor.report.plan.engine == "residue"


# one key, one factor


@pytest.fixture(scope="module")
def matrix():
    """Ragged, smooth, badly conditioned; NaN above the diagonal."""
    return upper_poisoned(FAMILIES["matern25 nugget 1e-11"](1500))


@pytest.fixture(scope="module")
def expected(matrix):
    """The factor, and its key, with plenty of memory."""
    factor = on_cuda(matrix)
    return np.asarray(factor), factor.arithmetic_key


def assert_same(factor, expected) -> None:
    assert factor.arithmetic_key == expected[1]
    assert np.array_equal(np.asarray(factor), expected[0])


def force(monkeypatch, *, nb=128, n=1500, chunk, width, strips=0, tiles=2, transit=2, accumulators=2) -> None:
    """Let the planner find this layout best; ``strips`` are those beside the fewest that there must be."""
    least = max(width, -(-TileGrid(n, nb).nt // chunk)) + STREAMING
    layout = ResidueLayout(default_moduli(n), nb, chunk, width, width + tiles, transit, least + strips, accumulators)
    monkeypatch.setattr(residues_planner, "best_layouts", lambda *_, **__: [layout])
    forget_plans()


@pytest.mark.parametrize("share", [1.0, 1.1, 1.5, 2.5, 6.0])
def test_bits_do_not_depend_on_the_budget(matrix, expected, share):
    for _ in range(3):
        assert_same(on_cuda(matrix, share=share), expected)


@pytest.mark.parametrize(("chunk", "width"), [(1, 1), (2, 1), (2, 2), (3, 2), (5, 4), (12, 1), (12, 5), (12, 12)])
@pytest.mark.parametrize("strips", [0, 2, 30])
def test_bits_do_not_depend_on_the_layout(matrix, expected, monkeypatch, chunk, width, strips):
    force(monkeypatch, chunk=chunk, width=width, strips=strips, accumulators=2 + strips % 3)
    assert_same(on_cuda(matrix), expected)


def test_bits_do_not_depend_on_source_or_store(matrix, expected, tmp_path):
    import cupy as cp

    np.save(tmp_path / "a.npy", matrix)
    sources = [np.asfortranarray(matrix), tmp_path / "a.npy", np.load(tmp_path / "a.npy", mmap_mode="r"), cp.asarray(matrix)]
    for source in sources:
        factor = oc.cholesky(source, tile_size=128, devices="cuda:0", fp64="residue", memory_budget="1 GiB")
        assert_same(factor, expected)
    with on_cuda(matrix, share=1.2, store=tmp_path / "l.ooc") as factor:
        assert_same(factor, expected)
    for order in "CF":
        a = np.array(matrix, order=order)
        assert_same(on_cuda(a, share=1.2, overwrite=True), expected)
        assert np.array_equal(np.tril(a), expected[0])


def late_source(matrix, seed=0):
    """A tile function that takes its time: random delays on its stream, different in every tile."""
    import cupy as cp

    held = {}
    spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
    rng = np.random.default_rng(seed)

    def tile(rows, cols, out, stream):
        device = cp.cuda.Device().id
        if device not in held:
            held[device] = cp.asarray(matrix)
            cp.cuda.Device().synchronize()
        spin((1,), (1,), (np.int64(rng.integers(0, 2_000_000)),))
        out[...] = held[device][rows.start : rows.stop, cols.start : cols.stop]

    return oc.from_function(len(matrix), tile)


@pytest.mark.parametrize("seed", range(3))
def test_bits_survive_delays_in_generation(matrix, expected, seed):
    for share in (1.0, 2.0):
        assert_same(on_cuda(late_source(matrix, seed), share=share), expected)


def test_the_key_names_engine_and_moduli(matrix, expected):
    assert expected[1]["engine"] == "residue, 14 moduli"
    assert on_cuda(matrix, moduli=13).arithmetic_key["engine"] == "residue, 13 moduli"


# several devices


@pytest.mark.cuda(n=2)
@pytest.mark.parametrize("share", [1.0, 1.5, 6.0])
def test_two_gpus_give_the_bits_of_one(matrix, expected, share):
    for _ in range(3):
        factor = on_cuda(matrix, share=share, devices=GPUS)
        assert_same(factor, expected)
        assert factor.report.bytes.executed["peer"] > 0
    assert_same(on_cuda(matrix, share=share, devices="cuda:1"), expected)


@pytest.mark.cuda(n=2)
@pytest.mark.parametrize(("chunk", "width"), [(1, 1), (3, 2), (12, 5)])
def test_layouts_and_owners_on_two_gpus(matrix, expected, monkeypatch, chunk, width):
    force(monkeypatch, chunk=chunk, width=width, strips=2)
    assert_same(on_cuda(matrix, devices=GPUS), expected)
    monkeypatch.setattr(residues_planner, "balanced_rows", cyclic_rows)
    forget_plans()
    assert_same(on_cuda(matrix, devices=GPUS), expected)


@pytest.mark.cuda(n=2)
def test_sources_and_stores_on_two_gpus(matrix, expected, tmp_path):
    assert_same(on_cuda(late_source(matrix), share=1.5, devices=GPUS), expected)
    with on_cuda(matrix, share=1.5, devices=GPUS, store=tmp_path / "l.ooc") as factor:
        assert_same(factor, expected)
    assert_same(on_cuda(matrix.copy(), share=1.5, devices=GPUS, overwrite=True), expected)


@pytest.mark.cuda(n=2)
def test_order_6000_on_two_gpus_is_that_on_one():
    a = FAMILIES["matern15 nugget 1e-11"](6001)
    factor = on_cuda(a, 512, 1.5, devices=GPUS)
    check_factor(factor, a)
    assert np.array_equal(np.asarray(factor), np.asarray(on_cuda(a, 512)))


@pytest.mark.cuda(n=4)
def test_four_gpus_give_the_bits_of_one(matrix, expected):
    for share in (1.0, 2.0):
        assert_same(on_cuda(matrix, share=share, devices=tuple(f"cuda:{number}" for number in range(4))), expected)


# failures


def minor_of(a, nb=64, devices="cuda:0", **options) -> int:
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        on_cuda(a, nb, devices=devices, **options)
    minor = caught.value.minor
    assert caught.value.tile == ((minor - 1) // nb,) * 2
    return minor


@pytest.mark.parametrize("kind", INDEFINITE)
def test_every_kind_of_indefinite_matrix_has_the_minor_of_lapack(kind):
    a = np.asarray(INDEFINITE[kind](good_to_spoil()))
    assert minor_of(a, 16) == lapack_minor(a)


@pytest.mark.parametrize("count", [4, 8, 11, 12, 13, 14, 16])
@pytest.mark.parametrize("scale", [1.0, 1e-100, 1.2])
def test_sums_that_wrap_into_a_positive_pivot_are_flagged_before(count, scale):
    assert minor_of(spread_out(counter_example(count, scale), 64), moduli=count) == 6 * 64 + 1


@pytest.mark.parametrize("flagged", [-1.0, 0.0, 1e-9])
def test_a_smaller_minor_wins_over_a_row_that_is_flagged_before(flagged):
    a = np.tril(FAMILIES["exponential"](700))
    a[650, 650] = flagged
    a[300, 299] = 1.5
    for _ in range(5):
        assert minor_of(a) == 301


@pytest.mark.parametrize("at", [0, 63, 64, 300, 699])
@pytest.mark.parametrize("entry", [-1.0, 0.0])
def test_zero_and_negative_diagonal_entries(at, entry):
    a = np.eye(700) * 2
    a[at, at] = entry
    assert minor_of(a) == at + 1


@pytest.mark.cuda(n=2)
@pytest.mark.parametrize("at", [0, 64, 200, 640, 699])
def test_the_first_bad_minor_on_two_gpus(at):
    a = np.eye(700) * 2
    a[at, at] = -1.0
    a[699, 0] = 5.0
    for _ in range(3):
        assert minor_of(a, devices=GPUS) == at + 1


@pytest.mark.parametrize(("row", "col"), [(0, 0), (699, 0), (130, 129), (640, 640), (699, 699)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite(row, col, value):
    a = FAMILIES["exponential"](700)
    a[row, col] = value
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        on_cuda(a, 64, 1.0)
    assert (caught.value.row, caught.value.col) == (row, col)


def test_a_source_that_fails_midway_ends_the_run_with_its_error_and_the_device_serves_again():
    class Failing:
        shape, dtype = (700, 700), np.dtype(np.float64)

        def __len__(self):
            return 700

        def __getitem__(self, key):
            if key[0].start >= 448 and key[1].start == 64:
                raise RuntimeError("the disk is gone")
            return np.eye(700)[key]

    with pytest.raises((RuntimeError, oc.errors.TierError), match="the disk is gone"):
        on_cuda(Failing(), 64, 1.0)
    check_factor(on_cuda(np.eye(200) * 2, 64), np.eye(200) * 2)


# memory and time


@pytest.mark.alone
def test_no_allocation_during_the_run_and_memory_within_budget_by_nvml():
    import cupy as cp
    import pynvml

    from tests.inside.hardware import LIBRARY_BYTES

    class Recorder(cp.cuda.MemoryHook):
        name = "recorder"

        def __init__(self):
            self.sizes = []

        def malloc_preprocess(self, **arguments):
            self.sizes.append(arguments["size"])

        def alloc_preprocess(self, **arguments):
            self.sizes.append(arguments["mem_size"])

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    used = []
    a = FAMILIES["exponential"](4000)
    on_cuda(a, 256, 1.5, store="host")  # contexts, libraries and modules are loaded once
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    recorder = Recorder()
    with recorder:
        told = {"progress": lambda *_: used.append(pynvml.nvmlDeviceGetMemoryInfo(handle).used)}
        factor = on_cuda(a, 256, 1.5, store="host", **told)
    assert recorder.sizes == []
    assert used
    assert max(used) - before <= factor.report.plan.budgets[0].budget_bytes + LIBRARY_BYTES
    assert min(used) == max(used)  # nothing grows during the run


@pytest.mark.parametrize("devices", ["cuda:0", pytest.param(GPUS, marks=pytest.mark.cuda(n=2))])
def test_the_trace_shows_every_stream_on_the_hosts_clock(tmp_path, devices):
    import time

    a = FAMILIES["exponential"](4000)
    began = time.perf_counter_ns()
    factor = on_cuda(a, 256, 1.5, devices=devices, trace=True)
    ended = time.perf_counter_ns()
    records = factor.trace.records
    steps = {(record.device, record.step): record for record in records}
    for record in records:
        assert began <= record.start_ns <= record.end_ns <= ended
        assert all(steps[key].end_ns <= record.end_ns + 1e9 * CLOCK_SECONDS for key in record.after)
    assert {"copy-in", "compute", "copy-out", "finish", "finish-1", "finish-2", "convert", "source"} <= {
        record.stream for record in records
    }
    n_pulls = sum(step.kind is StepKind.PULL for program in factor.report.plan.programs for step in program.steps)
    assert (n_pulls > 0) == (devices is GPUS)
    assert sum(record.label.startswith("product") for record in records) > 100
    assert factor.trace.save(tmp_path / "run.pftrace").stat().st_size > 1000
    assert "compute" in factor.trace.summary()
