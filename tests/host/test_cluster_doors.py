"""A cluster that is started here lets in nobody without its certificate, and nothing of it listens beyond this machine."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import dask
import dask.array as da
import distributed
import numpy as np
import psutil
import pytest
import scipy.sparse
from distributed import Security

import ooc_chol as oc
from tests.cluster_machines import SETTINGS, cluster_of
from tests.inside.cluster import opening, shares_memory

pytestmark = pytest.mark.usefixtures("no_hang", "dask_threads")

N, NB = 120, 20


def listening() -> set[tuple[str, int]]:
    """Addresses and ports on which this process and those that it started listen."""
    here = psutil.Process()
    sockets = [each for process in (here, *here.children(recursive=True)) for each in process.net_connections()]
    return {(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN}


@pytest.fixture(scope="module", params=["cores", "GPUs"])
def opened(clusters: None, request):
    """A client of a cluster by a word, on a machine without GPUs and on one that believes it had two; and where it listens."""
    before = listening()
    with dask.config.set(SETTINGS), pytest.MonkeyPatch.context() as patched:
        patched.setattr(opening, "cuda_names", lambda _: ["a", "b"] if request.param == "GPUs" else [])
        with oc.open_cluster("local:2") as client:
            yield client, listening() - before


def servers(client) -> list[str]:
    """Addresses of the scheduler, of the workers and of their nannies."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return [client.scheduler.address, *workers, *(each["nanny"] for each in workers.values())]


def answer(address: str, security: Security | None) -> bytes:
    """What the server says to whoever greets it, encrypted with the certificate of ``security``; nothing where it hangs up."""
    host, port = address.partition("://")[2].split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            if security is None:
                plain.sendall(b"let me in" * 99)
                return plain.recv(1)
            context = security.get_connection_args("client")["ssl_context"]
            context.verify_mode = ssl.CERT_NONE  # it is the server that has to look
            with context.wrap_socket(plain) as encrypted:
                return encrypted.recv(1)
    except (ConnectionError, ssl.SSLError):
        return b""


def test_nothing_listens_beyond_loopback(opened):
    client, ports = opened
    assert {int(each.rpartition(":")[2]) for each in servers(client)} <= {port for _, port in ports}
    assert len(ports) >= 2 * len(servers(client)) - 2  # a page of the scheduler and of each worker, too
    assert [ip for ip, _ in ports if not ipaddress.ip_address(ip).is_loopback] == []


def test_every_server_refuses_who_has_no_certificate_or_another(opened):
    client, _ = opened
    stranger = Security.temporary()
    for each in servers(client):
        assert answer(each, client.security)
        assert answer(each, None) == answer(each, stranger) == b""


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_a_call_without_the_certificate_gets_nowhere(opened, scheme):
    address = opened[0].scheduler.address.replace("tls", scheme)
    with pytest.raises(oc.errors.ClusterError, match=r"certificates"):
        oc.cholesky(np.eye(3), client=address)


@pytest.mark.usefixtures("clusters")
def test_a_killed_worker_whose_memory_the_system_takes_back_slowly_is_waited_for(monkeypatch):
    """Dask gives up after 9 seconds, and the cluster would never be closed."""
    kill, given_up = distributed.nanny.WorkerProcess.kill, []

    async def too_late(self, *arguments, **options):
        await kill(self, *arguments, **options)
        given_up.append(self.status)
        raise TimeoutError

    monkeypatch.setattr(opening, "cuda_names", lambda _: ["a"])
    monkeypatch.setattr(distributed.nanny.WorkerProcess, "kill", too_late)
    with dask.config.set(SETTINGS), oc.open_cluster("local:1") as client:
        (pid,) = client.run(os.getpid).values()
    assert given_up and not psutil.pid_exists(pid)


@pytest.mark.parametrize("opened", ["cores"], indirect=True)
@pytest.mark.parametrize("options", [{}, {"store": "L.zarr"}, {"precision_threshold": 1e-6}], ids=["memory", "Zarr", "mixed"])
@pytest.mark.commit
def test_calls_work_behind_the_certificate(opened, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client, rng = opened[0], np.random.default_rng(3)
    assert shares_memory(client, tuple(client.nthreads()))
    a = (half := rng.standard_normal((N, N))) @ half.T + N * np.eye(N)
    kept = {name: value for name, value in options.items() if name != "store"}
    how = {"tile_size": NB, "devices": "host:0"}
    with oc.cholesky(a, client=client, **how, **options) as factor, oc.cholesky(a, **how, **kept) as alone:
        assert np.array_equal(np.asarray(factor), np.asarray(alone))  # of one machine, to the bit


@pytest.mark.parametrize("opened", ["cores"], indirect=True)
def test_arrays_that_a_solve_returns_are_computed_in_any_thread(opened):
    a, b = 4 * np.eye(N), da.ones((N, 2), chunks=(50, 2))
    with oc.cholesky(a, tile_size=NB, client=opened[0]) as factor, ThreadPoolExecutor(1) as pool:
        x = factor.solve(b)
        assert x.sum().compute() == pool.submit(x.sum().compute).result() == N / 2


@pytest.mark.usefixtures("clusters")
def test_a_cluster_at_an_address_computes_arrays_in_its_block():
    with cluster_of(1, processes=False) as there, oc.open_cluster(there.scheduler.address) as client:
        assert distributed.default_client() is client and da.ones(3, chunks=1).sum().compute() == 3


@pytest.mark.usefixtures("clusters")
def test_slurm_gets_a_certificate_and_keeps_what_its_configuration_says(monkeypatch):
    asked = {}

    class Recorded(Exception):
        pass

    def cluster(**given):
        asked.update(given)
        raise Recorded

    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=cluster))

    def given(**told):
        with dask.config.set({"jobqueue.slurm": told}), pytest.raises(Recorded), oc.open_cluster("slurm:3"):
            pass
        return asked

    assert given()["security"].require_encryption
    assert asked["scheduler_options"] == {"dashboard_address": "127.0.0.1:0"}
    assert asked["worker_extra_args"] == ["--dashboard-address", "127.0.0.1:0"]
    told = {"scheduler-options": {"port": 7, "dashboard_address": ":1"}, "worker-extra-args": ["--nthreads", "1"]}
    given(**told, **{"shared-temp-directory": "/shared"})
    assert asked["scheduler_options"] == told["scheduler-options"]
    assert asked["worker_extra_args"][2:] == told["worker-extra-args"]
    assert asked["shared_temp_directory"] == "/shared"
    with dask.config.set({"distributed.comm.require-encryption": True}):
        assert given()["security"] is None  # Dask's own configuration has the certificates of the site


@pytest.mark.usefixtures("clusters")
def test_without_cryptography_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(oc.errors.MissingPackageError, match=r"cryptography.*\[cluster\]"), oc.open_cluster("local:1"):
        pass


@pytest.mark.parametrize("word", ["local", "local:2", "local:-1", "slurm:16", "Local", " "])
def test_words_of_clusters_are_no_clients(word):
    """They are refused at once, where a scheduler of that name would be waited for."""
    with pytest.raises(ValueError, match=r"no address of a scheduler.*open_cluster"):
        oc.cholesky(np.eye(2), client=word)
    with pytest.raises(ValueError, match=r"no address of a scheduler.*open_cluster"):
        oc.multiply(scipy.sparse.eye_array(2, format="csr"), np.ones(2), client=word)
