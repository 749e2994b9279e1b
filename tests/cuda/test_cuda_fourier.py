"""Fourier transforms over graphs whose eigenvectors a GPU computes."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.tensor_runs import random_graph

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("devices", [None, "cuda:0"])
def test_all_eigenvectors_are_those_of_the_host(devices):
    graph = random_graph(700, seed=3)
    found, expected = oc.GraphFourier(graph, devices=devices), oc.GraphFourier(graph, devices="host:0")
    assert found.devices == ("cuda:0",) and expected.devices == ("host:0",)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, atol=1e-12)
    u = found.basis
    assert np.abs(u.T @ u - np.eye(700)).max() <= 1e-12
    laplacian = (expected.basis * expected.eigenvalues) @ expected.basis.T
    assert np.abs((u * found.eigenvalues) @ u.T - laplacian).max() <= 1e-12


def test_small_components_stay_on_the_host():
    assert oc.GraphFourier(random_graph(60), devices="cuda:0").devices == ("host:0",)


def test_imputation_computes_them_on_its_devices():
    graph = random_graph(600, seed=1)
    x = oc.testing.low_rank_tensor(oc.GraphFourier(graph, devices="host:0"), 12, 10, 2)
    mask = oc.testing.random_mask(x.shape, 0.9)
    on_gpu = oc.impute(x, mask, graph, devices="cuda:0").tensor
    on_host = oc.impute(x, mask, graph, devices="host:0").tensor
    assert np.linalg.norm(on_gpu - on_host) <= 1e-4 * np.linalg.norm(x)
