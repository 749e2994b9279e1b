"""Whole factorizations on CUDA devices: right, the same to the bit, within budget, and failing as they should."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.host.matrices import FAMILIES, check_factor
from tests.host.runs import check_bytes
from tests.inside.memory import RELEASER
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.cuda

MIB = 1 << 20

EXPONENTIAL = r"""
extern "C" __global__ void exponential(double* out, int rows, int cols, long long row0, long long col0,
                                       const double* x, double range, double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    const double dx = x[2 * i] - x[2 * j], dy = x[2 * i + 1] - x[2 * j + 1];
    out[(long long)r * cols + c] = exp(-sqrt(dx * dx + dy * dy) / range) + (i == j ? nugget : 0.0);
}
"""


def on_cuda(a, nb=128, slots=12, **options):
    """The factor of ``a`` on cuda:0 with a budget of some tiles beside the workspace."""
    from tests.inside.kernels import workspace_bytes

    budget = workspace_bytes(nb) + slots * -(-8 * nb * nb // 4096) * 4096
    return oc.cholesky(a, tile_size=nb, devices="cuda:0", memory_budget=budget, **options)


@pytest.mark.parametrize(
    ("n", "nb"), [(1, 16), (2, 16), (63, 64), (64, 64), (65, 64), (300, 64), (1000, 100), (2049, 256), (2049, 500)]
)
def test_every_order_and_tile_size(n, nb):
    a = FAMILIES["exponential"](n)
    factor = on_cuda(a, nb)
    check_factor(factor, a)
    check_bytes(factor.report.plan, factor.report.execution)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("n", "nb"), [(300, 64), (2049, 512)])
def test_every_family(family, n, nb):
    a = FAMILIES[family](n)
    check_factor(on_cuda(a, nb), a)


def test_bits_do_not_depend_on_budget_policy_or_store(tmp_path):
    a = FAMILIES["matern25 nugget 1e-6"](1300)
    first = np.asarray(on_cuda(a, slots=200))
    for slots in (3, 4, 5, 7, 9, 14, 22, 40, 70):
        assert np.array_equal(first, np.asarray(on_cuda(a, slots=slots))), slots
    for policy in ("sync", "async", "v1", "v2", "v3"):
        assert np.array_equal(first, np.asarray(on_cuda(a, slots=9, policy=policy))), policy
    with on_cuda(a, slots=9, store=tmp_path / "l.ooc") as factor:
        assert np.array_equal(first, np.asarray(factor))
    for order in "CF":
        assert np.array_equal(first, np.asarray(on_cuda(np.array(a, order=order))))
    copy = a.copy()
    assert np.array_equal(first, np.asarray(on_cuda(copy, overwrite=True)))


def test_bits_survive_delays_in_copies_and_generation():
    import cupy as cp

    a = FAMILIES["matern15 nugget 1e-6"](1300)
    first = np.asarray(on_cuda(a))
    held = cp.asarray(a)
    spin = cp.RawKernel('extern "C" __global__ void spin(long long c){long long s=clock64();while(clock64()-s<c);}', "spin")
    rng = np.random.default_rng(0)

    def late(rows, cols, out, stream):
        spin((1,), (1,), (np.int64(rng.integers(0, 3_000_000)),))
        out[...] = held[rows.start : rows.stop, cols.start : cols.stop]

    for slots in (5, 12, 40):
        assert np.array_equal(first, np.asarray(on_cuda(oc.from_function(len(a), late), slots=slots)))


def test_sources_of_every_kind(tmp_path):
    import cupy as cp

    a = FAMILIES["exponential"](700)
    first = np.asarray(on_cuda(a))
    np.save(tmp_path / "a.npy", a)
    assert np.array_equal(first, np.asarray(on_cuda(tmp_path / "a.npy")))
    assert np.array_equal(first, np.asarray(on_cuda(np.load(tmp_path / "a.npy", mmap_mode="r"))))
    assert np.array_equal(first, np.asarray(on_cuda(cp.asarray(a))))
    narrow = a.astype(np.float32)
    wide = np.asarray(on_cuda(narrow.astype(np.float64)))
    assert np.array_equal(wide, np.asarray(on_cuda(narrow)))
    assert np.array_equal(wide, np.asarray(on_cuda(cp.asarray(narrow))))


def test_a_torch_tensor_on_the_device_comes_by_dlpack():
    import torch

    a = FAMILIES["exponential"](300)
    assert np.array_equal(np.asarray(on_cuda(a)), np.asarray(on_cuda(torch.from_numpy(a).cuda())))


def test_cuda_source_fills_tiles():
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(900, 2))
    distance = np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(-1))
    a = np.exp(-distance / 0.2) + 1e-3 * np.eye(900)
    source = oc.from_function(900, tb.cuda_source(EXPONENTIAL, "exponential", x, 0.2, 1e-3))
    l_dense = np.asarray(on_cuda(source))
    assert np.abs(np.tril(l_dense @ l_dense.T - a)).max() <= 1e-13


@pytest.mark.parametrize("at", [0, 63, 64, 300, 699])
def test_a_matrix_that_is_not_positive_definite(at):
    a = np.eye(700) * 2
    a[at, at] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        on_cuda(a, nb=64, slots=6)
    assert caught.value.minor == at + 1


@pytest.mark.parametrize(("row", "col"), [(0, 0), (699, 0), (130, 129), (640, 640), (699, 699)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite(row, col, value):
    a = FAMILIES["exponential"](700)
    a[row, col] = value
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        on_cuda(a, nb=64, slots=6)
    assert (caught.value.row, caught.value.col) == (row, col)


def test_a_source_that_fails_midway_ends_the_run_with_its_error():
    class Failing:
        shape, dtype = (700, 700), np.dtype(np.float64)

        def __getitem__(self, key):
            if key[0].start >= 448:
                raise RuntimeError("the disk is gone")
            return np.eye(700)[key]

    with pytest.raises((RuntimeError, oc.errors.TierError), match="the disk is gone"):
        on_cuda(Failing(), nb=64, slots=6)


@pytest.mark.alone
def test_device_memory_taken_by_someone_else():
    import cupy as cp

    cp.get_default_memory_pool().free_all_blocks()
    RELEASER.release_now()
    free = cp.cuda.runtime.memGetInfo()[0]
    taken = cp.cuda.Memory(int(free - 64 * MIB))
    try:
        with pytest.raises(oc.BudgetError, match="cuda:0"):  # its tiles alone have 137 MiB
            oc.cholesky(np.eye(6000), tile_size=512, devices="cuda:0", memory_budget=400 * MIB)
    finally:
        del taken
    check_factor(on_cuda(np.eye(200) * 2), np.eye(200) * 2)


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
    a = FAMILIES["exponential"](2000)
    on_cuda(a, nb=256, store="host")  # contexts, libraries and modules are loaded once
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    recorder = Recorder()
    with recorder:
        factor = on_cuda(a, nb=256, store="host", progress=lambda *_: used.append(pynvml.nvmlDeviceGetMemoryInfo(handle).used))
    assert recorder.sizes == []
    assert used
    assert max(used) - before <= factor.report.plan.budgets[0].budget_bytes + LIBRARY_BYTES
    assert min(used) == max(used)  # nothing grows during the run
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used <= before + 16 * MIB


def test_the_trace_shows_device_times_on_the_hosts_clock(tmp_path):
    import time

    a = FAMILIES["exponential"](2000)
    began = time.perf_counter_ns()
    factor = on_cuda(a, nb=256, trace=True)
    ended = time.perf_counter_ns()
    records = factor.trace.records
    assert all(began <= record.start_ns <= record.end_ns <= ended for record in records)
    assert factor.trace.save(tmp_path / "run.pftrace").stat().st_size > 1000
    assert "compute" in factor.trace.summary()


def test_the_papers_policies_move_less_and_less():
    a = FAMILIES["exponential"](2048)
    moved = {
        policy: sum(on_cuda(a, nb=128, slots=20, policy=policy).report.bytes.executed.values())
        for policy in ("async", "v1", "v2", "v3", "planned")
    }
    assert moved["planned"] <= moved["v3"] <= moved["v2"] <= moved["v1"] <= moved["async"]


def test_many_sampled_blocks_at_order_8192():
    n = 8192
    points = np.arange(n) + np.random.default_rng(0).uniform(-0.4, 0.4, n)
    a = np.exp(-np.abs(points[:, None] - points[None, :]) / 50) + 1e-6 * np.eye(n)
    factor = on_cuda(a, nb=1024, slots=12)
    sample = factor.residual(a)
    assert sample.max_scaled_over_sqrt_n <= FACTOR_ENTRY_C, str(sample)


@pytest.mark.parametrize(
    "family", ["exponential", "matern15 nugget 1e-11", "matern25 nugget 1e-11", "gaussian nugget 1e-12", "graded down"]
)
def test_hard_families_at_order_8192_beside_lapack(family):
    a = FAMILIES[family](8192)
    check_factor(on_cuda(a, nb=1024, slots=12), a)


def test_order_16384_out_of_core_beside_lapack():
    a = FAMILIES["matern25 nugget 1e-11"](16384)
    check_factor(on_cuda(a, nb=2048, slots=12), a)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 11])
def test_bits_do_not_depend_on_panel_shapes(width):
    from tests.builders import open_device
    from tests.host.runs import factor_of, with_panels
    from tests.inside.kernels import workspace_bytes
    from tests.inside.tasks import uniform_panels

    a = FAMILIES["matern25 nugget 1e-6"](1300)
    first = np.asarray(on_cuda(a))
    plan = oc.plan(a, tile_size=128, devices="cuda:0", memory_budget=workspace_bytes(128) + 70 * 8 * 128 * 128)
    for height in (1, 2, 4):
        shaped = with_panels(plan, uniform_panels(plan.grid.nt, width, height))
        assert np.array_equal(first, factor_of(shaped, a, open_device)), height


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_matern_covariance_of_geostatistics_is_the_hosts(smoothness, dimensions):
    from ooc_chol.apps.geostat import Matern, covariance_source

    sites = np.random.default_rng(6).uniform(size=(500, dimensions))
    source = covariance_source(Matern(variance=2.0, range=0.3, smoothness=smoothness, nugget=0.1), sites)
    on_host = np.asarray(oc.cholesky(source, tile_size=64, devices="host:0"))
    assert np.abs(np.asarray(on_cuda(source, nb=64)) - on_host).max() <= 1e-12


def test_a_likelihood_on_the_gpu_is_that_on_the_host():
    from ooc_chol.apps.geostat import FactorSettings, Matern, log_likelihood, make_observations

    rng = np.random.default_rng(7)
    sites = rng.uniform(size=(600, 2))
    observations = make_observations(sites, rng.standard_normal(600))
    model = Matern(variance=1.0, range=0.2, smoothness=1.5, nugget=0.1)
    values = [
        log_likelihood(observations, model, settings=FactorSettings(devices=device, tile_size=128)).loglik
        for device in ("host:0", "cuda:0")
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-11)
