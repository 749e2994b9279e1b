"""Where eigenpairs and singular triplets are looked for if no devices are named: on the host if the matrix is small."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array, eye_array, kron, random_array

import ooc_chol as oc
from ooc_chol.apps import spectral
from tests.inside.hardware import CUDA

pytestmark = pytest.mark.plan

BUDGET = "8 GiB"
GPUS, HOST = ("cuda:0", "cuda:1"), ("host:0",)
PLANS = pytest.mark.parametrize("plan", [oc.plan_eigsh, oc.plan_svds])


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))  # no rates
    monkeypatch.setattr(type(CUDA), "default_names", lambda self: GPUS)


def facts(n, entries):
    return (n, n), entries, "fp64"


def planned(plan, A, k=6, **options):
    return plan(A, k, **{"memory_budget": BUDGET, **options})


def is_on_gpus(plan):
    """Tell whether a plan is for GPUs, of which a matrix of few rows takes one."""
    return set(plan.devices) <= set(GPUS)


def grid(m):
    """The Laplacian of an m x m grid."""
    path = diags_array([-1.0, -1.0], offsets=[-1, 1], shape=(m, m))
    edges = kron(path, eye_array(m)) + kron(eye_array(m), path)
    return csr_array(edges - diags_array(edges.sum(axis=1)))


@PLANS
@pytest.mark.parametrize(("n", "entries"), [(50, 200), (400, 4000), (1000, 19_885), (5000, 100_000), (10_000, 50_000)])
def test_a_small_matrix_goes_to_the_host(plan, n, entries):
    found = planned(plan, facts(n, entries))
    assert found.devices == HOST
    assert "host:0, as none is named, and so few numbers" in str(found)
    assert found.to_dict()["why_devices"]


@PLANS
@pytest.mark.parametrize(("n", "entries"), [(10_000, 500_000), (10_001, 50_000), (40_000, 199_200), (1 << 18, 1 << 22)])
def test_a_large_one_goes_to_gpus(plan, n, entries):
    found = planned(plan, facts(n, entries))
    assert is_on_gpus(found)
    assert "as none is named" not in str(found) and not found.to_dict()["why_devices"]


@PLANS
@pytest.mark.parametrize("options", [{}, {"precision": "FDF"}])
def test_the_host_is_left_where_entries_and_basis_grow(plan, options):
    """Along each of rows, entries and pairs there is one step, from the host to GPUs."""
    for along in (
        [facts(n, 10 * n) for n in range(1000, 20_001, 1000)],
        [facts(5000, entries) for entries in range(50_000, 1_000_000, 50_000)],
    ):
        on_host = [planned(plan, each, **options).devices == HOST for each in along]
        assert on_host == sorted(on_host, reverse=True) and on_host[0] and not on_host[-1]
    on_host = [planned(plan, facts(5000, 50_000), k, **options).devices == HOST for k in (6, 24, 100, 400)]
    assert on_host == sorted(on_host, reverse=True) and on_host[0] and not on_host[-1]


@PLANS
@pytest.mark.parametrize("devices", ["cuda:0", ["cuda:0", "cuda:1"], "cuda"])
def test_gpus_that_are_named_are_taken(plan, devices):
    found = planned(plan, facts(1000, 19_885), devices=devices)
    assert is_on_gpus(found) and "as none is named" not in str(found)


@PLANS
def test_a_host_that_is_named_is_taken(plan):
    for n, entries in ((1000, 19_885), (40_000, 199_200)):
        found = planned(plan, facts(n, entries), devices="host:0")
        assert found.devices == HOST and "as none is named" not in str(found)


@PLANS
def test_options_of_lanczos_leave_a_matrix_on_gpus(plan):
    """On the host a device of it would serve them, whose passes are no shorter than a GPU's."""
    assert is_on_gpus(planned(plan, facts(1000, 19_885), block=4))


@PLANS
def test_no_gpu_is_looked_for_where_a_matrix_is_small(plan, monkeypatch):
    def asked(self):
        raise AssertionError("GPUs were counted")

    monkeypatch.setattr(type(CUDA), "names", asked)
    monkeypatch.setattr(type(CUDA), "default_names", asked)
    assert plan(facts(1000, 19_885), 6).devices == HOST
    a = random_array((600, 600), density=0.02, rng=1)
    assert plan(csr_array(a + a.T), 6).devices == HOST


@PLANS
def test_a_matrix_on_a_gpu_stays_on_gpus(plan):
    half = random_array((600, 600), density=0.02, rng=1)
    a = csr_array(half + half.T)
    assert planned(plan, a).devices == HOST
    a.is_cuda = True  # as PyTorch's tensors say
    assert is_on_gpus(planned(plan, a))


# inverses


def test_the_host_factors_and_multiplies_near_sigma():
    found = planned(oc.plan_eigsh, facts(40_000, 199_200), sigma=0.0)
    assert (found.method, found.devices) == ("shift-invert", HOST)
    assert "host:0, as none is named, and the inverse" in str(found)
    assert planned(oc.plan_eigsh, facts(40_000, 199_200), which="SM").devices == HOST
    assert planned(oc.plan_eigsh, facts(40_000, 199_200), sigma=0.0, devices="cuda:0").devices == ("cuda:0",)
    assert is_on_gpus(planned(oc.plan_eigsh, facts(40_000, 199_200), sigma=0.0, OPinv=lambda x: x))


def test_null_vectors_lead_to_the_host_where_the_factor_is_small():
    mesh, ones = grid(110), np.ones(12_100)
    found = planned(oc.plan_eigsh, mesh, which="SA", null=ones)
    assert found.devices == HOST and "the inverse" in str(found)
    with oc.block_csr(mesh) as packed:
        assert planned(oc.plan_eigsh, packed, which="SA", null=ones).devices == HOST
    # No factor where the budget is small, LOBPCG is meant, or only sizes are known.
    assert is_on_gpus(planned(oc.plan_eigsh, mesh, which="SA", null=ones, memory_budget="8 MiB"))
    assert is_on_gpus(planned(oc.plan_eigsh, mesh, which="SA", null=ones, method="lobpcg"))
    assert is_on_gpus(planned(oc.plan_eigsh, facts(12_100, mesh.nnz), which="SA", null=ones))


def test_null_vectors_of_an_irregular_graph_stay_on_gpus():
    half = random_array((3000, 3000), density=0.004, rng=1, data_sampler=lambda size: -np.ones(size))
    edges = csr_array(half + half.T)
    a = csr_array(edges - diags_array(edges.sum(axis=1)))
    assert is_on_gpus(planned(oc.plan_eigsh, a, which="SA", null=np.ones(3000)))


# partitions


@pytest.mark.parametrize("n", [1000, 5000, 50_000])
def test_partitions_go_where_they_decide(n):
    """They name the method, and with it leave a matrix on GPUs."""
    open_, named = (spectral.plan_bisect(facts(n, 6 * n), memory_budget=BUDGET, devices=each) for each in (None, "cuda"))
    assert open_.eigsh is not None and is_on_gpus(open_)
    assert open_.eigsh.to_dict() == named.eigsh.to_dict()
