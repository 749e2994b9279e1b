"""``oc.eigsh`` and ``oc.svds`` on a cluster of processes: the bits of one machine, whatever happens to workers, and errors."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests import space_checks
from tests.cluster_machines import AGAIN_SECONDS, cluster_of, kill
from tests.inside.cli import main
from tests.inside.cluster import connection, placed_space, products, waiting, workers
from tests.space_checks import separated_chunks

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread", "dask_threads")

#: Few passes, and a basis on a device: with no option small matrices are SciPy's.
FEW = {"ncv": 24, "block": 4, "tol": 1e-6, "check": False}


def graph(n: int = 2000, dtype: type = np.float64):
    """A symmetric matrix with a few eigenvalues far from the others."""
    a = scipy.sparse.random_array((n, n), density=0.004, rng=4).tocsr()
    return (a + a.T + scipy.sparse.diags_array(np.r_[60.0, 50.0, 40.0, np.zeros(n - 3)])).tocsr().astype(dtype)


@pytest.fixture(scope="module")
def small():
    with oc.block_csr(graph(), block_bytes="32 KiB") as found:
        assert len(found.blocks.blocks) >= 4
        yield found


@pytest.fixture(scope="module")
def packed():
    with oc.block_csr(separated_chunks(), block_bytes="1 MiB") as found:
        yield found


@pytest.fixture(scope="module")
def stored(packed, tmp_path_factory):
    with oc.block_csr(packed, store=tmp_path_factory.mktemp("packed") / "a.oocsr", block_bytes="1 MiB") as found:
        yield found


def same_pairs(found, expected) -> None:
    space_checks.same_pairs(found, expected)
    assert found.report.key == expected.report.key


def check_pairs(a, client, **options):
    """Pairs on a cluster have the bits of one machine; returns their report."""
    found = oc.eigsh(a, 3, client=client, **options)
    same_pairs(found, oc.eigsh(a, 3, devices="host:0", **options))
    return found.report


def check_triplets(a, client, **options):
    """Triplets on a cluster have the bits of one machine; returns their report."""
    found, expected = oc.svds(a, 3, client=client, **options), oc.svds(a, 3, devices="host:0", **options)
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes()
    assert found.residuals.tobytes() == expected.residuals.tobytes() and found.report.key == expected.report.key
    return found.report


@pytest.mark.commit
def test_pairs_have_the_bits_of_one_machine(two_workers, packed, stored):
    for options in ({}, {"precision": "FDF", "tol": 1e-5}, {"which": "SA", "degree": 4, "tol": 1e-3}):
        report = check_pairs(packed, two_workers, **{**FEW, **options})
        done = report.cluster
        assert len(done.workers) == 2 and done.repeated == 0 and done.products >= report.passes and done.exchanged_bytes > 0
        assert "rows 0 to" in str(report) and report.to_dict()["cluster"]["products"] == done.products
    assert check_pairs(stored, two_workers, **FEW).cluster.matrix_bytes == 0


def test_operators_orders_and_methods_are_those_of_one_machine(two_workers):
    for a in (graph(), abs(separated_chunks())):
        with oc.block_csr(a, block_bytes="32 KiB", order="degree") as found:
            check_pairs(oc.laplacian(found, normalized=True), two_workers, **FEW | {"tol": 1e-2}, which="LA")
            check_pairs(found, two_workers, method="lobpcg", which="LA", tol=1e-3)
            check_pairs(found, two_workers, v0=np.arange(1.0 * a.shape[0]), **FEW)


def test_small_and_dense_matrices_too(two_workers, tmp_path):
    small = check_pairs(graph(1500), two_workers)
    assert small.cluster.products == 0 and "this process multiplies" in str(small)
    dense = check_pairs(graph(90), two_workers)
    assert dense.method == "dense" and dense.cluster.products > 0
    assert check_pairs(1e-200 * graph(90), two_workers).cluster.products > 0
    a = graph(400)
    check_pairs((a + 1j * scipy.sparse.triu(a, 1) - 1j * scipy.sparse.tril(a, -1)).tocsr(), two_workers, **FEW)


def test_triplets_have_the_bits_of_one_machine(two_workers, small, tmp_path):
    report = check_triplets(small, two_workers, **FEW)
    assert report.cluster.products >= report.passes and "of matrix 2" in str(report)
    a = scipy.sparse.random_array((700, 1500), density=0.02, rng=5).tocsr()
    check_triplets(a, two_workers, **FEW)
    check_triplets(a.astype(np.float32), two_workers, ncv=24, block=4, tol=1e-3)
    check_triplets(a[:40, :30], two_workers)
    found = oc.svds(a, 3, client=two_workers, packed=tmp_path / "a.oocsr", **FEW)
    assert found.report.cluster.matrix_bytes == 0
    expected = oc.svds(a, 3, packed=tmp_path / "a.oocsr", **FEW)
    assert found.s.tobytes() == expected.s.tobytes()


def test_plans_tell_rows_of_workers_and_bytes(two_workers, packed):
    plan = oc.plan_eigsh(packed, 3, client=two_workers, **FEW)
    assert len(plan.cluster.shares) == 2 and " of tls://" in str(plan) and "between workers" in str(plan)
    same_pairs(oc.eigsh(packed, 3, client=two_workers, plan=plan, tol=1e-6, check=False), oc.eigsh(packed, 3, **FEW))
    assert len(oc.plan_svds(packed, 3, client=two_workers, **FEW).cluster) == 2


def test_owners_of_rows_are_chosen_once_for_all_products(two_workers, small, packed, monkeypatch):
    chosen, choose = [], products.placed
    monkeypatch.setattr(products, "placed", lambda *given: chosen.append(given) or choose(*given))
    found = oc.svds(small, 3, client=two_workers, **FEW)
    assert found.report.cluster.products > 5 and len(chosen) == 3  # of two matrices, and of one that is as small as theirs
    opened, names = [], placed_space.SpacePart
    monkeypatch.setattr(placed_space, "SpacePart", lambda *given: opened.append(given) or names(*given))
    found = oc.eigsh(packed, 3, client=two_workers, **FEW)
    assert found.report.cluster.products > 5 and len(opened) == 2


def test_workers_of_one_chunk_have_no_rows(two_workers, small):
    report = check_pairs(small, two_workers, **FEW)
    assert len(report.cluster.workers) == 1 and report.cluster.exchanged_bytes == 0


@pytest.mark.parametrize(("count", "are_processes"), [(3, True), (2, False)])
def test_any_workers_have_the_bits_of_one_machine(clusters, packed, count, are_processes):
    limit = {} if are_processes else {"memory_limit": None}
    with cluster_of(count, processes=are_processes, **limit) as client:
        report = check_pairs(packed, client, **FEW)
        assert len(report.cluster.workers) == count
        same_pairs(oc.eigsh(packed, 3, client=client, devices="host:0, host:1", **FEW), oc.eigsh(packed, 3, **FEW))


def test_a_run_is_gone_on_from_on_a_cluster_and_back(two_workers, small, packed, tmp_path):
    expected = oc.eigsh(packed, 3, **FEW)

    def interrupt(done: int, total: int, seconds: float) -> None:
        raise KeyboardInterrupt

    for name, clients in (("there", (None, two_workers)), ("back", (two_workers, None))):
        path = tmp_path / f"{name}.ooceig"
        with pytest.raises(KeyboardInterrupt):
            oc.eigsh(packed, 3, client=clients[0], checkpoint=path, progress=interrupt, **FEW)
        found = oc.eigsh(packed, 3, client=clients[1], checkpoint=path, **FEW)
        assert found.report.resumed > 0
        same_pairs(found, expected)
    path, s = tmp_path / "a.oocsvd", oc.svds(small, 3, **FEW).s
    with pytest.raises(KeyboardInterrupt):
        oc.svds(small, 3, client=two_workers, checkpoint=path, progress=interrupt, **FEW)
    found = oc.svds(small, 3, client=two_workers, checkpoint=path, **FEW)
    assert found.report.resumed > 0 and found.s.tobytes() == s.tobytes()


def test_what_is_not_there_on_a_cluster_is_refused(two_workers, packed):
    for options in ({"sigma": 1.0}, {"which": "SM"}, {"M": np.eye(20)}, {"trace": True}):
        with pytest.raises(ValueError, match="is not there on a cluster"):
            oc.eigsh(packed, 3, client=two_workers, **options)
    with pytest.raises(ValueError, match="trace is not there on a cluster"):
        oc.svds(packed, 3, client=two_workers, trace=True)
    operator = scipy.sparse.linalg.aslinearoperator(graph(50))
    for call in (oc.eigsh, oc.svds):
        with pytest.raises(TypeError, match="client shares out sparse matrices"):
            call(operator, 3, client=two_workers)
    with pytest.raises(TypeError, match="client is a object"):
        oc.eigsh(packed, 3, client=object())
    with pytest.raises(oc.BudgetError, match=r"a basis of 24 vectors on host:0 of tls://"):
        oc.eigsh(packed, 3, client=two_workers, memory_budget="64 KiB", **FEW)


def test_commands_make_products_on_a_cluster(clusters, packed, stored, tmp_path, capsys):
    where = ["--cluster", "local:1", "--devices", "host:0", "--json", "--quiet"]
    assert main(["eigsh", stored.path, "-k", "3", "--ncv", "24", "--block", "4", *where]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["eigenvalues"] == oc.eigsh(packed, 3, ncv=24, block=4).eigenvalues.tolist()
    assert told["report"]["cluster"]["products"] > 0
    assert main(["svds", stored.path, "-k", "2", "--plan", *where]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "lanczos"
    path = tmp_path / "y.npy"
    assert main(["sparse", "multiply", stored.path, "--columns", "2", "--output", str(path), *where]) == 0
    x = np.random.default_rng(0).standard_normal((packed.shape[1], 2))
    assert np.array_equal(np.load(path), oc.multiply(packed, x))
    assert main(["sparse", "multiply", stored.path, "--times", "2", *where]) == 2


def test_imputation_is_on_one_machine():
    with pytest.raises(TypeError, match=r"impute has no argument client: each step .* in one process"):
        oc.impute(np.zeros((2, 3, 4)), np.zeros(2, bool), scipy.sparse.eye_array(2), client="tcp://head:8786")


# workers that leave


@pytest.fixture
def client(clusters: None, monkeypatch):
    """Two workers, of which tests end some: their nannies start others."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.2)
    with cluster_of(2) as client:
        yield client


def happening(monkeypatch, happen, at: int) -> list[int]:
    """Let something happen before the so-manieth answer of a worker is waited for; the list counts these."""
    ask, count = workers.gathered, [0]

    def gathered(*given, **options):
        count[0] += 1
        if count[0] == at:
            happen()
        return ask(*given, **options)

    monkeypatch.setattr(workers, "gathered", gathered)
    monkeypatch.setattr(placed_space, "gathered", gathered)
    return count


def leave(client, count: int) -> None:
    """End so many workers, or let one retire."""
    if count:
        kill(client, count)
    else:
        client.retire_workers(list(client.nthreads())[:1])


def end_all(client) -> None:
    """End all workers, with their nannies."""
    for nanny in list(client.cluster.workers.values()):
        client.cluster.sync(nanny.close)


def test_a_worker_that_dies_in_any_phase_changes_no_bit(client, packed):
    expected = oc.eigsh(packed, 3, **FEW)
    with pytest.MonkeyPatch.context() as patched:
        calm = happening(patched, print, -1)
        oc.eigsh(packed, 3, client=client, **FEW)
    for at, count in ((1, 1), (3, 2), (calm[0] // 2, 1), (calm[0] // 2 + 1, 2), (calm[0], 1), (calm[0] // 3, 0)):
        client.wait_for_workers(2, timeout=AGAIN_SECONDS)
        with pytest.MonkeyPatch.context() as patched:
            happening(patched, lambda count=count: leave(client, count), at)
            found = oc.eigsh(packed, 3, client=client, **FEW)
        same_pairs(found, expected)
        done = found.report.cluster
        assert done.repeated <= 3 * done.products
        assert at >= calm[0] - 1 or done.lost_workers


def test_triplets_survive_workers_too(client, small):
    expected = oc.svds(small, 3, **FEW)
    with pytest.MonkeyPatch.context() as patched:
        happening(patched, lambda: kill(client), 21)
        found = oc.svds(small, 3, client=client, **FEW)
    assert found.s.tobytes() == expected.s.tobytes() and found.report.cluster.lost_workers


def test_a_cluster_without_workers_is_an_error_in_time_from_whose_checkpoint_another_goes_on(
    client, packed, tmp_path, monkeypatch
):
    monkeypatch.setattr(connection, "WAIT_SECONDS", 1.0)
    path, expected = tmp_path / "a.ooceig", oc.eigsh(packed, 3, **FEW)
    began = time.monotonic()
    with pytest.raises(oc.errors.ClusterError, match=r"no worker|left while"):
        oc.eigsh(packed, 3, client=client, checkpoint=path, progress=lambda *_: end_all(client), **FEW)
    assert time.monotonic() - began < 60
    found = oc.eigsh(packed, 3, checkpoint=path, **FEW)
    assert found.report.resumed > 0
    same_pairs(found, expected)


def test_a_connection_that_is_lost_is_an_error_with_advice(two_workers, packed, monkeypatch):
    from distributed import Client

    with Client(two_workers.scheduler.address, security=two_workers.security, set_as_default=False) as client:
        happening(monkeypatch, client.close, 5)
        with pytest.raises(oc.errors.ClusterError, match=r"new client|scheduler"):
            oc.eigsh(packed, 3, client=client, **FEW)
