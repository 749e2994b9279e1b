"""A factorization on a cluster of processes: the bits of one machine, whatever happens to workers, and its errors."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import cache

import numpy as np
import pytest

import ooc_chol as oc
from tests.cluster_machines import cluster_of
from tests.documents import ROOT, read
from tests.host.runs import ENVIRONMENT
from tests.inside.cluster import BlockGrid, BlockPlace, Placing, needed_blocks, planning, priority
from tests.inside.tasks import TileGrid
from tests.products import thorough

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Order, tile size: eleven tile rows, the last one short; blocks of two.
N, NB = 210, 20


def spd(n: int = N, dtype: str = "float64", seed: int = 3) -> np.ndarray:
    """A positive definite matrix that is not banded, with the same bits in every test of a process."""
    return _spd(n, dtype, seed).copy()


@cache
def _spd(n: int, dtype: str, seed: int) -> np.ndarray:
    """Made once: a product on two threads of BLAS differs from one on one thread."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, n))
    if dtype.startswith("complex"):
        x = x + 1j * random.standard_normal((n, n))
    return (x @ x.conj().T + n * np.eye(n)).astype(dtype)


def exponential(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """A covariance as a tile function, which travels to workers by its text."""
    np.exp(-np.abs(np.subtract.outer(np.asarray(rows), np.asarray(cols))) / 9.0, out=out)


def slow_exponential(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """The same, so slowly that there is time to do something meanwhile."""
    time.sleep(0.02)
    np.exp(-np.abs(np.subtract.outer(np.asarray(rows), np.asarray(cols))) / 9.0, out=out)


def bad_in_the_end(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """The same, with a diagonal that is 0 in the end: the last minors are not positive definite."""
    slow_exponential(rows, cols, out, stream)
    out -= np.equal.outer(np.asarray(rows), np.asarray(cols)) * (np.asarray(rows) >= 205)[:, np.newaxis]


def bad_early_slow_late(rows: range, cols: range, out: np.ndarray, stream: object) -> None:
    """A matrix whose second diagonal block is negative, while rows far below are still being made."""
    exponential(rows, cols, out, stream)
    if rows.start >= 120:
        time.sleep(0.4)
    out -= 5 * np.equal.outer(np.asarray(rows), np.asarray(cols)) * (np.asarray(rows) == 50)[:, np.newaxis]


def _half_way(done: int, total: int, seconds: float) -> None:
    """Interrupt a run at half of its flops."""
    if done > 0.5 * total:
        raise KeyboardInterrupt


def source(tile_fn=exponential, n: int = N):
    """A function that workers get by value: they have no tests to import."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return oc.from_function(n, tile_fn)


def one_machine(a, **options) -> np.ndarray:
    with oc.cholesky(a, tile_size=NB, fp64="native", **options) as factor:
        return np.asarray(factor)


def check_bits(a, client, expected, **options):
    """The factor on a cluster has these bits; returns its report."""
    with oc.cholesky(a, tile_size=NB, client=client, memory_budget="8 MiB", **options) as factor:
        assert np.asarray(factor).tobytes() == expected.tobytes()
        return factor.report


# sources


@pytest.mark.commit
def test_a_dask_array_of_odd_chunks_gives_the_bits_of_one_machine(two_workers):
    import dask.array

    a = spd()
    report = check_bits(dask.array.from_array(a, chunks=((77, 133), (50, 50, 110))), two_workers, one_machine(a))
    assert report.tasks == report.plan.n_tasks and report.repeated == 0 and report.lost_workers == ()
    assert len(report.busy_seconds) == 2, "one of two workers did nothing"


def test_above_the_diagonal_of_a_dask_array_nothing_is_computed(two_workers):
    import dask.array

    a = spd()
    chunks = ((70, 70, 70), (70, 70, 70))

    def made(block_info=None):
        (r0, _), (c0, _) = block_info[None]["array-location"]
        if c0 > r0:
            raise AssertionError("a chunk above the diagonal was made")
        return a[r0 : r0 + 70, c0 : c0 + 70]

    lazy = dask.array.map_blocks(made, chunks=chunks, dtype=a.dtype, meta=np.empty((0, 0)))
    with oc.cholesky(lazy, tile_size=35, client=two_workers, memory_budget="8 MiB") as factor:
        np.testing.assert_allclose(np.asarray(factor), np.linalg.cholesky(a), rtol=1e-12, atol=1e-12)


def test_chunks_of_a_numpy_array_are_sent_with_the_blocks_that_need_them(two_workers):
    """Not all of them with each block: the scheduler is sent A about once, which Dask would warn of each time."""
    import dask.array

    a = spd()
    lazy = dask.array.from_array(a, chunks=70)
    with (
        dask.config.set({"distributed.admin.large-graph-warning-threshold": a.nbytes * 3 // 4}),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        check_bits(lazy, two_workers, one_machine(a))
    assert not [each for each in warned if "large graph" in str(each.message)]


def test_a_dask_array_goes_to_the_client_that_is_current(two_workers):
    import dask.array

    a = spd(60)
    with two_workers.as_current(), oc.cholesky(dask.array.from_array(a, chunks=30), tile_size=NB) as factor:
        assert "cluster" in repr(factor) and len(factor.report.workers) == 2
    with dask.config.set(scheduler="synchronous"):
        factor = oc.cholesky(dask.array.from_array(a, chunks=30), tile_size=NB)
    with factor:
        assert factor.report.plan.devices, "without a client a Dask array is read on this machine"


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_numpy_arrays_of_every_type_give_the_bits_of_one_machine(two_workers, dtype):
    a = spd(110, dtype)
    check_bits(a, two_workers, one_machine(a, dtype=dtype), dtype=dtype)


def test_the_upper_triangle_is_read_where_that_is_asked_for(two_workers):
    import dask.array

    a = spd(110)
    upper = np.triu(a) + np.tril(np.full_like(a, np.nan), -1)
    expected = one_machine(a)
    check_bits(upper, two_workers, expected, lower=False)
    check_bits(dask.array.from_array(upper, chunks=40), two_workers, expected, lower=False)


def test_residues_give_the_bits_of_one_machine(two_workers):
    import dask.array

    a = spd(192)
    with oc.cholesky(a, tile_size=32, fp64="residue") as factor:
        expected, key = np.asarray(factor), factor.arithmetic_key
    for given in (a, dask.array.from_array(a, chunks=100)):
        with oc.cholesky(given, tile_size=32, fp64="residue", client=two_workers, memory_budget="32 MiB") as factor:
            assert np.asarray(factor).tobytes() == expected.tobytes() and factor.arithmetic_key == key


def test_functions_and_files_are_read_by_workers(two_workers, tmp_path):
    expected = one_machine(source())
    check_bits(source(), two_workers, expected)
    a = np.empty((N, N))
    exponential(range(N), range(N), a, None)
    np.save(tmp_path / "a.npy", a)
    check_bits(tmp_path / "a.npy", two_workers, expected)


@pytest.fixture(scope="module")
def stored_a(tmp_path_factory) -> str:
    """The matrix as a Zarr array; Zarr's own threads stay as long as the process."""
    import zarr

    a, place = spd(), str(tmp_path_factory.mktemp("zarr") / "A.zarr")
    zarr.create_array(place, shape=a.shape, chunks=(64, 64), dtype=a.dtype)[...] = a
    return place


def test_a_zarr_array_is_read_by_workers(two_workers, stored_a):
    check_bits(stored_a, two_workers, one_machine(spd()))


def test_what_is_chosen_is_told_and_the_same_for_a_plan(two_workers):
    plan = oc.plan(600, client=two_workers)
    with oc.cholesky(source(n=600), client=two_workers) as factor:
        assert factor.arithmetic_key["nb"] == factor.tile_size < 600
        assert "tasks" in str(factor.report) and factor.report.to_dict()["tasks"]["made"] == factor.report.tasks
        assert factor.plan is factor.report.plan
    assert (plan.blocks, plan.n_tasks) == (factor.plan.blocks, factor.plan.n_tasks)


def test_a_plan_predicts_seconds_by_rates_of_the_workers_and_chooses_the_fastest_blocks(two_workers):
    plan = oc.plan(4000, client=two_workers)
    assert plan.seconds > 0 and {"arithmetic", "longest chain", "network"} <= set(plan.bounds)
    assert "predicted" in str(plan) and "GFLOP/s of products" in str(plan)
    assert len(plan.others) >= 2 and plan.blocks.n_blocks >= 4
    before = dict(two_workers.run(_speeds_measured))
    again = oc.plan(4000, client=two_workers)
    assert two_workers.run(_speeds_measured) == before, "kernels of one tile size are measured once by a worker"
    assert again.case.rates.network_bytes_per_second == plan.case.rates.network_bytes_per_second


def _speeds_measured() -> int:
    from tests.inside.cluster import speeds

    return speeds._measured.cache_info().misses


def test_blocks_of_a_run_are_those_that_rates_choose_and_its_report_predicts(two_workers, monkeypatch):
    monkeypatch.setattr(planning, "LEAST_MEASURED_FLOPS", 1.0)
    report = check_bits(source(), two_workers, one_machine(source()))
    assert report.plan.others and report.blocks == report.plan.blocks
    assert report.tasks == report.plan.n_tasks and report.seconds.predicted == report.to_dict()["seconds"]["predicted"] > 0
    assert "predicted" in str(report)
    monkeypatch.undo()
    assert check_bits(source(), two_workers, one_machine(source())).seconds.predicted is None, "small ones measure nothing"


@pytest.mark.usefixtures("clusters")
def test_a_task_that_takes_long_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr(planning, "LEAST_MEASURED_FLOPS", 0.0)
    monkeypatch.setattr(planning, "is_one_task", lambda client, facts: True)
    seen = []
    with cluster_of(1) as client:
        progress = lambda *told: seen.append(told)  # noqa: E731 - as a user writes it
        with oc.cholesky(source(slow_exponential), tile_size=14, client=client, progress=progress) as factor:
            assert factor.report.tasks == 1
    shares = [done / total for done, total, _ in seen]
    assert shares[0] == 0 and shares[-1] == 1 and shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)


def test_a_factor_on_a_cluster_solves_saves_and_is_not_pickled(two_workers, tmp_path):
    import pickle

    a = spd()
    seen = []
    with oc.cholesky(a, tile_size=NB, client=two_workers, progress=lambda *told: seen.append(told)) as factor:
        x = factor.solve(np.ones(N))
        assert np.linalg.norm(a @ x - 1) < 1e-10
        np.testing.assert_allclose(factor.logdet(), np.linalg.slogdet(a)[1], rtol=1e-13)
        factor.save(tmp_path / "L.ooc")
        with pytest.raises(TypeError, match="save"):
            pickle.dumps(factor)
        expected = np.asarray(factor)
    with oc.load(tmp_path / "L.ooc") as loaded:
        assert np.asarray(loaded).tobytes() == expected.tobytes()
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] > N**3 / 3.3
    with pytest.raises(oc.errors.ClosedError):
        factor.solve(np.ones(N))
    _wait(lambda: not _tasks(two_workers), "the scheduler has forgotten L")


# errors


@pytest.mark.parametrize("row", [*thorough(0), 47, N - 1])
def test_a_matrix_that_is_not_positive_definite_has_the_minor_of_one_machine(two_workers, row):
    a = spd()
    a[row, row] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as here:
        oc.cholesky(a, tile_size=NB, fp64="native")
    with pytest.raises(oc.NotPositiveDefiniteError) as there:
        oc.cholesky(a, tile_size=NB, client=two_workers)
    assert there.value.minor == here.value.minor and there.value.tile == here.value.tile
    _wait(lambda: not _tasks(two_workers), "the other tasks are cancelled")
    check_bits(spd(), two_workers, one_machine(spd()))


def test_a_nan_is_named(two_workers):
    a = spd()
    a[150, 31] = np.nan
    with pytest.raises(oc.errors.NonFiniteError) as found:
        oc.cholesky(a, tile_size=NB, lower=True, client=two_workers)
    assert (found.value.row, found.value.col, found.value.tile) == (150, 31, (7, 1))


def test_an_error_of_the_users_function_comes_as_it_is(two_workers):
    def broken(rows, cols, out, stream):
        raise ZeroDivisionError("the user's own")

    with pytest.raises(ZeroDivisionError, match="the user's own"):
        oc.cholesky(source(broken), tile_size=NB, client=two_workers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "v3"}, "policy"),
        ({"host_budget": "1 GB"}, "host_budget"),
        ({"overwrite": True}, "overwrite"),
        ({"trace": True}, "trace"),
        ({"store": oc.HostMemory()}, "store"),
        ({"store": "device"}, "store"),
        ({"store": "host"}, "store"),
        ({"store": "L.ooc"}, "Zarr"),
        ({"store": "memory://L.zarr"}, "memory"),
        ({"plan": oc.plan(50)}, "plan is of one machine"),
    ],
)
def test_what_is_not_there_on_a_cluster_is_refused(two_workers, options, words):
    with pytest.raises(ValueError, match=words):
        oc.cholesky(spd(50), client=two_workers, **options)


def test_what_is_no_client_is_refused():
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        oc.cholesky(spd(50), client=7)
    with pytest.raises(oc.errors.ClusterError, match="no scheduler"):
        oc.cholesky(spd(50), client="not a place")


@pytest.mark.usefixtures("processes")
def test_without_the_extra_the_error_names_it():
    program = (
        "import sys; sys.modules['distributed'] = None\n"
        "import numpy, ooc_chol as oc\n"
        "try: oc.cholesky(numpy.eye(3), client='tcp://127.0.0.1:1')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "[cluster]" in done.stdout


@pytest.mark.usefixtures("processes")
def test_the_package_and_its_cluster_free_calls_import_no_dask():
    program = (
        "import sys, numpy, ooc_chol as oc\noc.cholesky(numpy.eye(3))\n"
        "print([name for name in ('dask', 'distributed', 'zarr') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_workers_that_differ_are_named(two_workers):
    from tests.inside.cluster import _check_equal

    with pytest.raises(oc.errors.ClusterError, match="tcp://b") as found:
        _check_equal({"tcp://a": "1", "tcp://b": "2", "tcp://c": "1"}, "the version")
    assert set(found.value.workers) == {"tcp://b"}


# memory


@pytest.mark.usefixtures("clusters")
def test_four_workers_give_the_bits_of_one_machine_and_plans_count_their_bytes():
    expected = one_machine(source())
    with cluster_of(4) as client:
        report = check_bits(source(), client, expected)
    assert len(report.workers) == 4
    # Dask may move a task from its owner, and then other blocks go to other workers than planned.
    assert 0 < report.network_bytes <= 3 * report.plan.stored_bytes


def _most_resident() -> int:
    """The most bytes that this process has held since it was last asked."""
    with open("/proc/self/status") as file:
        most = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the kernel counts anew from what is held now
    return most


def test_a_worker_needs_its_budget_and_a_constant_with_a_group(two_workers, tmp_path):
    n, budget, constant = 3000, 4 << 20, 24 << 20
    whole = 8 * n * n // 2  # of L, on the two together
    how = {"client": two_workers, "memory_budget": budget}
    two_workers.run(_most_resident)
    with oc.cholesky(source(n=300), tile_size=50, store=tmp_path / "first.zarr", **how):
        before = two_workers.run(_most_resident)
    with oc.cholesky(source(n=n), tile_size=100, store=tmp_path / "L.zarr", **how):
        grown = [most - before[worker] for worker, most in two_workers.run(_most_resident).items()]
    assert max(grown) < budget + constant < whole


# failures


def _tasks(client) -> list[str]:
    """Names of the blocks that the scheduler knows."""
    known = client.run_on_scheduler(_known_here)
    return [key for key in known if key.startswith(("block-", "ooc-"))]


def _known_here(dask_scheduler):
    return [str(key) for key in dask_scheduler.tasks]


def _wait(condition, what: str, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        gc.collect()  # what another test's error still holds is no task of this one
        assert time.monotonic() < until, f"not within {seconds} seconds: {what}"
        time.sleep(0.05)


def _pids(client) -> dict[str, int]:
    return client.run(os.getpid)


@pytest.mark.usefixtures("clusters")
@pytest.mark.parametrize("shares", [(0.05, 0.4, 0.8), pytest.param((0.4,), marks=pytest.mark.commit)], ids=str)
def test_workers_that_are_killed_at_these_moments_change_no_bit(shares):
    expected = one_machine(source())
    with cluster_of(2) as client:
        for share in shares:
            client.wait_for_workers(2, timeout=120)
            report = check_bits(source(slow_exponential), client, expected, progress=_killer(client, share))
            assert len(report.lost_workers) == 1


def _killer(client, share: float):
    """What ends one worker, for good, when so much of a run is done."""
    victims = list(_pids(client).values())[:1]

    def kill(done: int, total: int, seconds: float) -> None:
        if victims and done >= share * total:
            os.kill(victims.pop(), signal.SIGKILL)

    return kill


@pytest.mark.usefixtures("clusters")
def test_a_worker_that_comes_late_and_one_that_is_retired_change_no_bit():
    expected = one_machine(source())
    with cluster_of(1) as client:
        called = []

        def change(done: int, total: int, seconds: float) -> None:
            if done > 0.2 * total and not called:
                called.append(threading.Thread(target=_grow_then_retire, args=(client,)))
                called[0].start()

        check_bits(source(slow_exponential), client, expected, progress=change)
        called[0].join()


def _grow_then_retire(client) -> None:
    first = list(client.nthreads())
    client.cluster.scale(2)
    client.wait_for_workers(2, timeout=120)
    client.retire_workers(first)


def test_a_connection_that_is_lost_is_an_error_with_advice(two_workers):
    from distributed import Client

    with Client(two_workers.scheduler.address, security=two_workers.security, set_as_default=False) as client:
        closing = []

        def close(done: int, total: int, seconds: float) -> None:
            if done > 0.2 * total and not closing:
                closing.append(True)
                client.close()

        with pytest.raises(oc.errors.ClusterError, match=r"new client|scheduler"):
            oc.cholesky(source(slow_exponential), tile_size=NB, client=client, progress=close)


def test_ctrl_c_cancels(two_workers):
    def interrupt(done: int, total: int, seconds: float) -> None:
        if done > 0.2 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(source(slow_exponential), tile_size=NB, client=two_workers, progress=interrupt)
    _wait(lambda: not _tasks(two_workers), "all tasks are cancelled")
    check_bits(spd(), two_workers, one_machine(spd()))


# a Zarr group


@pytest.mark.commit
def test_a_group_has_the_bits_of_one_machine_and_outlives_the_cluster(two_workers, stored_a, tmp_path):
    import zarr

    a = spd()
    report = check_bits(a, two_workers, one_machine(a), store=str(tmp_path / "L.zarr"))
    assert report.network_bytes == 0
    with oc.load(tmp_path / "L.zarr") as factor:
        assert np.asarray(factor).tobytes() == one_machine(a).tobytes()
    assert zarr.open(str(tmp_path / "L.zarr"))["L"][:].tobytes() == one_machine(a).tobytes()
    with pytest.raises(oc.errors.OutputError):
        oc.cholesky(spd(seed=4), tile_size=NB, client=two_workers, store=str(tmp_path / "L.zarr"))


def test_an_interrupted_run_goes_on_from_its_group(two_workers, tmp_path):
    place = tmp_path / "L.zarr"
    with pytest.raises(KeyboardInterrupt) as ended:
        oc.cholesky(source(slow_exponential), tile_size=NB, client=two_workers, store=place, checkpoint=True, progress=_half_way)
    assert "checkpoint" in ended.value.__notes__[0]
    with pytest.raises(oc.errors.OutputError, match="replace"):
        oc.cholesky(source(), tile_size=NB, client=two_workers, store=place)
    with pytest.raises(oc.errors.CheckpointError):
        oc.cholesky(spd(), tile_size=NB, client=two_workers, store=place, checkpoint=True)
    report = check_bits(source(), two_workers, one_machine(source()), store=place, checkpoint=True)
    assert report.resumed > 0 and 0 < report.tasks == report.plan.n_tasks - report.resumed
    again = check_bits(source(), two_workers, one_machine(source()), store=place, checkpoint=True)
    assert again.tasks == 0 and again.resumed == report.plan.n_tasks


@pytest.mark.parametrize("options", [{}, {"checkpoint": True}])
def test_nobody_else_writes_the_group_of_a_run(options, two_workers, tmp_path):
    place, refused = tmp_path / "L.zarr", []

    def disturb(done: int, total: int, seconds: float) -> None:
        if not refused:
            for more in ({"client": two_workers}, {}, {"checkpoint": True}):
                with pytest.raises(oc.errors.TierError, match="another run is writing this group"):
                    oc.cholesky(spd(seed=4), tile_size=NB, store=place, **more, replace=True)
                refused.append(more)

    check_bits(source(), two_workers, one_machine(source()), store=place, progress=disturb, **options)
    assert len(refused) == 3
    check_bits(spd(), two_workers, one_machine(spd()), store=place, replace=True, **options)


def test_a_verdict_on_a_leaves_no_group(two_workers, tmp_path):
    a = spd()
    a[100, 100] = -1
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(a, tile_size=NB, client=two_workers, store=tmp_path / "L.zarr", checkpoint=True)
    assert not (tmp_path / "L.zarr").exists()


def test_a_task_that_still_runs_does_not_bring_a_removed_group_back(two_workers, tmp_path):
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(source(bad_early_slow_late), tile_size=NB, client=two_workers, store=tmp_path / "L.zarr")
    time.sleep(1.5)
    assert not (tmp_path / "L.zarr").exists()


def test_workers_share_what_one_process_left(two_workers, tmp_path):
    a, place = spd(), tmp_path / "L.zarr"
    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(a, tile_size=NB, fp64="native", store=place, checkpoint=True, progress=_half_way)
    report = check_bits(a, two_workers, one_machine(a), store=place, checkpoint=True)
    assert report.plan.n_tasks > 2 and len(report.workers) == 2


def test_a_verdict_on_a_removes_the_group_that_was_gone_on_from(two_workers, tmp_path):
    place = tmp_path / "L.zarr"
    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(source(bad_in_the_end), tile_size=NB, client=two_workers, store=place, checkpoint=True, progress=_half_way)
    assert (place / "zarr.json").exists()
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(source(bad_in_the_end), tile_size=NB, client=two_workers, store=place, checkpoint=True)
    _wait(lambda: not place.exists(), "the group is removed")


def test_programs_of_the_page_run(two_workers, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mark = "<!-- not run by the tests: it needs a client, and tests of clusters run it -->"
    programs = re.findall(rf"^{mark}\n```python\n(.*?)^```", read(ROOT / "docs/cluster.md"), flags=re.DOTALL | re.MULTILINE)
    names = {"oc": oc, "np": np, "client": two_workers, "A": spd(100), "b": np.ones(100), "B": np.ones((100, 8))}
    assert len(programs) == 3
    oc.block_csr(oc.testing.rmat(12), store="graph.oocsr").close()
    with two_workers.as_current():  # as a client is that somebody makes
        for program in programs:
            exec(compile(program, "docs/cluster.md", "exec"), names)
    told = capsys.readouterr().out
    assert "True\n" in told and "rows" in told.splitlines()[-1]


# placing


def test_what_others_wait_for_comes_first():
    blocks = BlockGrid(TileGrid(160, 10), 2)
    order = sorted(blocks.places(), key=priority, reverse=True)
    assert order[:4] == [BlockPlace(0, 0), BlockPlace(1, 0), BlockPlace(1, 1), BlockPlace(2, 0)] or order[3].column <= 1
    before: set[BlockPlace] = set()
    for place in blocks.places():
        assert set(needed_blocks(place, in_order=False)) <= before
        assert set(needed_blocks(place, in_order=True)) <= set(needed_blocks(place, in_order=False))
        before.add(place)


def test_what_is_needed_in_order_has_all_else_behind_it():
    blocks = BlockGrid(TileGrid(160, 10), 2)
    for place in blocks.places():
        behind, ahead = set(), list(needed_blocks(place, in_order=True))
        while ahead:
            behind.add(each := ahead.pop())
            ahead.extend(needed_blocks(each, in_order=True))
        assert set(needed_blocks(place, in_order=False)) <= behind


def test_rows_are_shared_out_evenly():
    blocks = BlockGrid(TileGrid(160, 10), 1)
    placing = Placing.of(blocks, ("a", "b"), {}, 0)
    work = {name: sum(place.row + 1 for place in blocks.places() if placing.owner(place) == name) for name in "ab"}
    assert max(work.values()) < 1.1 * min(work.values())
