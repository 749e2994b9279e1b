"""Workers with GPUs: the bits of one process on one GPU, alone on it or shared, within their budgets, and what ends a run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol import FactorOptions
from tests.cluster_machines import cluster_of
from tests.inside.cluster import PlacedSpace, Sharing, agreed_facts, asked_of_all, placed_space, speed_here
from tests.inside.hardware import memory_info
from tests.inside.precision import FP64
from tests.inside.tasks import TileGrid
from tests.space_checks import same_pairs, separated_chunks
from tests.tolerances import solve_bound

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.package("distributed"),
    pytest.mark.usefixtures("dask_threads"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

DEVICE = "cuda:0"
#: Order and tile size: twelve tile rows, the last one short.
N, NB = 2900, 256
RANGE, NUGGET = 300.0, 0.01
CODE = r"""
extern "C" __global__ void exponential(double* out, int rows, int cols, long long row0, long long col0, double range,
                                       double nugget)
{
    const int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= rows || c >= cols) return;
    const long long i = row0 + r, j = col0 + c;
    out[(long long)r * cols + c] = exp(-fabs((double)(i - j)) / range) + (i == j ? nugget : 0.0);
}
"""
#: What a worker's process has beside a GPU's context: CuPy and CUDA's libraries take most of it.
MEMORY_LIMIT = "12 GiB"
#: Bytes by which what is free on a GPU may differ before and after a run: the driver takes memory in pieces.
DRIVER_BYTES = 128 << 20


def on_host(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    i, j = np.arange(rows.start, rows.stop)[:, None], np.arange(cols.start, cols.stop)[None, :]
    out[...] = np.exp(-np.abs(i - j) / RANGE) + NUGGET * (i == j)


def slow(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """The same where ``out`` is, so slowly that a worker can be ended meanwhile."""
    if isinstance(out, np.ndarray):
        import numpy as arrays
    else:
        import cupy as arrays
    time.sleep(0.02)
    i, j = arrays.arange(rows.start, rows.stop)[:, None], arrays.arange(cols.start, cols.stop)[None, :]
    out[...] = arrays.exp(-arrays.abs(i - j) / RANGE) + NUGGET * (i == j)


def source(n: int = N):
    """A that each worker makes on its GPU; functions travel by value, as workers have no tests to import."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return oc.from_function(n, on_host, cuda=tb.cuda_source(CODE, "exponential", RANGE, NUGGET))


def slow_source():
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return oc.from_function(N, slow)


def dense(n: int = N) -> np.ndarray:
    a = np.empty((n, n))
    on_host(range(n), range(n), a, None)
    return a


def chunk(block_info=None) -> np.ndarray:
    (rows, cols) = (range(*ends) for ends in block_info[None]["array-location"])
    out = np.empty((len(rows), len(cols)))
    on_host(rows, cols, out, None)
    return out


def dask_array():
    """Chunks that workers make on their cores, and that are no blocks."""
    import dask.array

    source()  # so that its function travels by value
    chunks = dask.array.core.normalize_chunks((700, 1000), (N, N))
    return dask.array.map_blocks(chunk, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)))


#: How A is given to a cluster, and to one process.
GIVEN = {"function": (source, source), "dask": (dask_array, dense), "array": (dense, dense)}


def gpu_cluster(workers: int):
    """A client of workers that see the same GPUs and announce one each."""
    return cluster_of(workers, memory_limit=MEMORY_LIMIT, resources={"GPU": 1})


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers of one GPU"])
def workers(request, dask_threads):
    """A client of workers that are as good as new when a test is over."""
    with gpu_cluster(request.param) as client:
        yield client


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("given", GIVEN)
def test_the_bits_are_those_of_one_process_on_one_gpu(workers, given, fp64):
    there, here = GIVEN[given]
    options = {"tile_size": NB, "devices": DEVICE, "fp64": fp64, "lower": True}
    with oc.cholesky(here(), **options) as factor:
        expected, key = np.asarray(factor), factor.arithmetic_key
    with oc.cholesky(there(), client=workers, **options) as factor:
        assert factor.arithmetic_key == key and key["engine"].startswith(fp64)
        assert np.asarray(factor).tobytes() == expected.tobytes()
        report = factor.report
        assert report.tasks == report.plan.n_tasks and report.repeated == 0
        assert set(report.busy_seconds) == set(workers.nthreads()), "a worker did nothing"
        a, b = dense(), np.random.default_rng(0).standard_normal((N, 2))
        x = factor.solve(b)
        assert np.linalg.norm(b - a @ x) <= solve_bound(N, np.linalg.norm(a), np.linalg.norm(x))


@pytest.mark.cuda(n=2)
def test_a_cluster_of_this_machine_is_one_worker_with_all_gpus():
    with oc.open_cluster("local") as client:
        (seen,) = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).values()
        assert len(seen.split(",")) >= 2
        for n, nb in ((N, NB), (8192, 512)):  # in many tasks, and in one
            options = {"tile_size": nb, "fp64": "residue", "lower": True}
            with oc.cholesky(source(n), devices=DEVICE, store="host", **options) as factor:
                expected = factor.diagonal()
            with oc.cholesky(source(n), client=client, **options) as factor:
                assert (factor.report.tasks == 1) is (n > N)
                assert factor.diagonal().tobytes() == expected.tobytes()


def uses_of_blocks(dask_worker) -> list[int]:
    """Of each block that a worker keeps, how many had its memory before; nothing where workers share none."""
    blocks = [value for key, value in dask_worker.data.items() if str(key).startswith("block-")]
    return [value.memory.address.use for value in blocks if hasattr(value, "memory")]


def blocks_kept(dask_worker) -> int:
    return sum(str(key).startswith("block-") for key in dask_worker.data)


def test_memory_that_was_page_locked_is_used_again_with_the_same_bits(workers):
    options = {"tile_size": NB, "devices": DEVICE, "fp64": "residue", "lower": True, "client": workers}
    with oc.cholesky(source(), **options) as factor:
        expected = np.asarray(factor).tobytes()
    for _ in range(2):
        deadline = time.monotonic() + 20
        while any(workers.run(blocks_kept).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        with oc.cholesky(source(), **options) as factor:
            assert np.asarray(factor).tobytes() == expected
            uses = workers.run(uses_of_blocks)
    assert all(map(any, uses.values()))  # also of one worker alone, whose blocks nobody else maps


@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_what_a_gpu_keeps_between_tasks_is_not_fetched_again(workers, fp64):
    options = {"tile_size": NB, "devices": DEVICE, "fp64": fp64, "client": workers}
    with oc.cholesky(source(), **options) as factor:
        report = factor.report
    assert report.tasks > 1
    assert report.link_bytes["fetch"] <= report.network_bytes  # each block of another worker once, and none of its own
    assert report.link_bytes["write"] == report.plan.stored_bytes


def test_a_gpu_makes_all_of_l_in_one_task_where_one_worker_is_there():
    n, options = 8192, {"tile_size": 512, "devices": DEVICE, "fp64": "residue", "lower": True}
    with oc.cholesky(source(n), store="host", **options) as factor:
        expected = factor.diagonal()
    with gpu_cluster(1) as client:
        for _ in range(2):  # of which the second one finds memory that is page-locked
            with oc.cholesky(source(n), client=client, **options) as factor:
                assert factor.report.tasks == 1
                assert factor.diagonal().tobytes() == expected.tobytes()


def test_mixed_precision_has_the_formats_and_the_bits_of_one_process(workers):
    options = {"tile_size": NB, "devices": DEVICE, "precision_threshold": 1e-5, "half_products": False, "lower": True}
    for fp64 in ("native", "residue"):
        with (
            oc.cholesky(source(), fp64=fp64, objective="bytes", **options) as alone,  # however fast FP64 is
            oc.cholesky(source(), fp64=fp64, client=workers, **options) as factor,
        ):
            assert factor.formats == alone.formats and len(factor.formats) > 1
            assert factor.arithmetic_key == alone.arithmetic_key
            assert np.asarray(factor).tobytes() == np.asarray(alone).tobytes()
            assert 0 < float(factor.report.certified_bound) <= 1e-5


@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_a_matrix_that_is_not_positive_definite_is_refused_with_its_minor(workers, fp64):
    a = dense()
    a[2000, 2000] = -1.0
    for client in (None, workers):
        with pytest.raises(oc.NotPositiveDefiniteError) as told:
            oc.cholesky(a, tile_size=NB, devices=DEVICE, fp64=fp64, lower=True, client=client)
        assert told.value.minor == 2001


@pytest.mark.package("zarr")
def test_a_group_of_zarr_has_the_same_bits(workers, tmp_path):
    options = {"tile_size": NB, "devices": DEVICE, "fp64": "native"}
    with oc.cholesky(source(), **options) as factor:
        expected = np.asarray(factor)
    with oc.cholesky(source(), client=workers, store=tmp_path / "L.zarr", **options) as factor:
        assert np.asarray(factor).tobytes() == expected.tobytes()


def test_workers_of_one_gpu_share_its_memory_and_its_rates(workers):
    count = len(workers.nthreads())
    facts = agreed_facts(workers, N, FactorOptions(devices=DEVICE), FP64)
    assert set(facts.sharing.values()) == {Sharing(count, count)}
    _, total = memory_info(DEVICE)
    assert 0.5 * total < count * facts.options.memory_budget < total
    assert facts.resources == {"GPU": 1.0}
    first, grid = next(iter(facts.workers)), TileGrid(N, facts.options.tile_size)
    alone, shared = (
        asked_of_all(workers, {first: (speed_here, (facts.options, grid, FP64, Sharing(count, gpu)))})[first] for gpu in (1, 2)
    )
    assert shared.flops_per_second == alone.flops_per_second / 2
    assert shared.link_bytes_per_second == alone.link_bytes_per_second / 2
    assert oc.plan(N, devices=DEVICE, client=workers).seconds > 0


def test_budgets_that_the_gpu_does_not_hold_are_refused_before_a_run(workers):
    _, total = memory_info(DEVICE)
    budget = int(1.2 * total / len(workers.nthreads()))
    with pytest.raises(oc.errors.ClusterError, match="more than their GPU has"):
        oc.cholesky(source(), tile_size=NB, devices=DEVICE, memory_budget=budget, client=workers)


@contextmanager
def least_free(name: str) -> Iterator[list[int]]:
    """The least bytes that were free on a GPU inside the block, looked at every millisecond."""
    found, is_over = [memory_info(name)[0]], threading.Event()

    def look() -> None:
        while not is_over.wait(0.001):
            found[0] = min(found[0], memory_info(name)[0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


@pytest.mark.alone
def test_workers_keep_to_their_budgets_and_give_all_back(workers):
    from tests.inside.hardware import LIBRARY_BYTES

    n, budget, count = 24_576, 256 << 20, len(workers.nthreads())
    options = {"tile_size": 1024, "devices": DEVICE, "fp64": "native", "memory_budget": budget, "client": workers}
    with oc.cholesky(source(4096), **options):
        pass  # contexts and libraries are there now
    before, _ = memory_info(DEVICE)
    with least_free(DEVICE) as least, oc.cholesky(source(n), **options) as factor:
        blocks = factor.report.blocks
        held = sum(8 * (len(span) * n) for span in map(blocks.rows, range(min(2, blocks.n_blocks))))
        assert held > budget + LIBRARY_BYTES, (
            "two block rows, which a task needs, take no more than the budget: nothing is tested"
        )
    assert before - least[0] <= count * (budget + LIBRARY_BYTES)
    deadline = time.monotonic() + 20  # pools keep for two seconds what nobody uses
    while memory_info(DEVICE)[0] < before - DRIVER_BYTES and time.monotonic() < deadline:
        time.sleep(0.05)
    assert memory_info(DEVICE)[0] >= before - DRIVER_BYTES


def test_a_worker_that_is_killed_changes_no_bit():
    options = {"tile_size": NB, "devices": DEVICE, "fp64": "native", "lower": True}
    with oc.cholesky(slow_source(), **options) as factor:
        expected = np.asarray(factor)
    with gpu_cluster(2) as client:
        victims = list(client.run(os.getpid).values())[:1]

        def kill(done: int, total: int, seconds: float) -> None:
            if victims and done >= 0.3 * total:
                os.kill(victims.pop(), signal.SIGKILL)

        with oc.cholesky(slow_source(), client=client, progress=kill, **options) as factor:
            assert np.asarray(factor).tobytes() == expected.tobytes()
            assert len(factor.report.lost_workers) == 1


#: Some restarts of eigenvectors, of panels on three chunks of rows.
FEW = {"ncv": 24, "block": 4, "tol": 1e-6, "devices": DEVICE}


def packed_chunks():
    return oc.block_csr(separated_chunks(), block_bytes="1 MiB")


@pytest.fixture
def mapped(monkeypatch) -> list[bool]:
    """Of each basis on workers, whether these give each other vectors in memory of their GPUs."""
    told, ask = [], PlacedSpace._mapped

    def asked(self) -> bool:
        told.append(ask(self))
        return told[-1]

    monkeypatch.setattr(PlacedSpace, "_mapped", asked)
    return told


@pytest.mark.parametrize("precision", oc.Precision)
def test_pairs_have_the_bits_of_one_process_and_workers_map_memory_of_gpus(workers, mapped, precision):
    with packed_chunks() as packed:
        expected = oc.eigsh(packed, 3, precision=precision, **FEW)
        count = len(workers.nthreads())
        for _ in range(3):
            found = oc.eigsh(packed, 3, precision=precision, client=workers, **FEW)
            same_pairs(found, expected)
            assert found.report.cluster.exchanged_by == ("memory of GPUs" if count > 1 else "")
        assert mapped == [count > 1] * 3


def test_pairs_have_the_bits_of_one_process_where_a_worker_cannot_map_memory_of_others(workers, mapped, monkeypatch):
    monkeypatch.setattr(placed_space, "map_lent", lambda held, handles: held.map(handles) and False)
    with packed_chunks() as packed:
        same_pairs(oc.eigsh(packed, 3, client=workers, **FEW), oc.eigsh(packed, 3, **FEW))
    assert mapped == [False]


@pytest.mark.cuda(n=2)
def test_pairs_of_two_gpus_have_the_bits_of_one_whoever_sees_them(mapped):
    with packed_chunks() as packed:
        expected = oc.eigsh(packed, 3, **FEW)
        for count in (1, 2, 3):
            with oc.open_cluster(f"local:{count}") as client:
                for _ in range(2):
                    same_pairs(oc.eigsh(packed, 3, client=client, **FEW | {"devices": None}), expected)
    assert mapped == [False, False, True, True, True, True]


def test_pairs_are_the_same_where_a_worker_is_killed_whose_memory_others_map(mapped, monkeypatch):
    ask, victims, asked = PlacedSpace.ask, [], []

    def killed(self, *given):
        asked.append(given)
        if len(asked) == 4:
            os.kill(victims.pop(), signal.SIGKILL)
        return ask(self, *given)

    monkeypatch.setattr(PlacedSpace, "ask", killed)
    with packed_chunks() as packed, gpu_cluster(2) as client:
        victims += list(client.run(os.getpid).values())[:1]
        found = oc.eigsh(packed, 3, client=client, **FEW)
        assert not victims and found.report.cluster.lost_workers
        same_pairs(found, oc.eigsh(packed, 3, **FEW))
    assert mapped[0]


def test_a_worker_without_a_gpu_beside_one_with_is_refused():
    import dask
    from distributed import Client, Nanny, Scheduler, Security, SpecCluster

    from tests.cluster_machines import SETTINGS

    security = Security.temporary()
    closed = {"host": "127.0.0.1", "protocol": "tls://", "security": security}

    def spec(gpus: str) -> dict:
        each = {**closed, "nthreads": 1, "memory_limit": MEMORY_LIMIT, "env": {"CUDA_VISIBLE_DEVICES": gpus}}
        return {"cls": Nanny, "options": each}

    scheduler = {"cls": Scheduler, "options": {**closed, "dashboard_address": "127.0.0.1:0"}}
    with (
        dask.config.set(SETTINGS),
        SpecCluster({0: spec("0"), 1: spec("")}, scheduler, security=security) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        with pytest.raises(oc.errors.ClusterError, match="model of its devices"):
            oc.cholesky(source(), tile_size=NB, client=client)
        with pytest.raises(ValueError, match="no device 'cuda:0'"):
            oc.cholesky(source(), tile_size=NB, devices=DEVICE, client=client)
        with oc.cholesky(source(), tile_size=NB, devices="host:0", fp64="native", client=client) as factor:
            assert factor.arithmetic_key["device_model"] == "host"


def test_a_cluster_by_a_word_has_workers_on_this_gpu_with_even_shares_of_memory():
    from distributed.system import MEMORY_LIMIT as ALL

    with oc.open_cluster("local:2") as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert {each["memory_limit"] for each in workers} == {ALL // 2}
        seen = set(client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).values())
        assert all(len(each.split(",")) == 1 for each in seen)
        with oc.cholesky(source(), tile_size=NB, fp64="native", client=client) as factor:
            assert factor.arithmetic_key["device_model"] != "host"
