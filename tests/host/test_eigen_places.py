"""Eigenpairs and singular triplets of small matrices, with GPUs that nobody names: the host finds them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array, eye_array, kron, random_array

import ooc_chol as oc
from tests.inside.hardware import CudaKind

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def gpu_that_cannot_be_opened(monkeypatch):
    monkeypatch.setattr(CudaKind, "default_names", lambda self: ("cuda:0",))


@pytest.fixture(scope="module")
def a():
    half = random_array((600, 600), density=0.02, rng=1)
    return csr_array(half + half.T)


@pytest.mark.parametrize("find", [oc.eigsh, oc.svds])
def test_the_host_finds_what_is_small(find, a):
    report = find(a, 4).report
    assert report.devices == ("host:0",)
    assert "host:0, as none is named" in str(report)
    assert report.key == find(a, 4, devices="host:0").report.key


def test_a_plan_of_the_host_is_followed(a):
    key = oc.eigsh(a, 4, block=2, devices="host:0").report.key
    assert oc.eigsh(a, 4, plan=oc.plan_eigsh(a, 4, block=2, devices="host:0")).report.key == key
    plan = oc.plan_svds(a, 4, block=2, devices="host:0")
    assert oc.svds(a, 4, plan=plan).report.devices == ("host:0",)


def test_a_plan_of_a_gpu_is_not_followed_elsewhere(a):
    plan = oc.plan_eigsh(a, 4, devices="cuda:0", memory_budget="1 GiB")
    with pytest.raises(ValueError, match="no device 'cuda:0'"):
        oc.eigsh(a, 4, plan=plan)


def test_the_inverse_is_taken_there():
    path = diags_array([-1.0, -1.0], offsets=[-1, 1], shape=(110, 110))
    edges = kron(path, eye_array(110)) + kron(eye_array(110), path)
    report = oc.eigsh(csr_array(edges - diags_array(edges.sum(axis=1))), 3, which="SA", null=np.ones(12_100)).report
    assert (report.method, report.devices) == ("shift-invert", ("host:0",))
    assert "the inverse of A is taken there" in str(report)
