"""Vecchia's approximation on GPUs: the host's numbers, whatever the budget and the number of devices."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat import FactorSettings, Matern, fit, make_observations, simulate, vecchia_log_likelihood
from tests.apps.geostat.vecchia_problems import CASES, TWO_DEVICES, assert_same, problem_of
from tests.inside.geostat import parts_on_cuda, parts_on_host

pytestmark = pytest.mark.cuda

GPU, HOST = FactorSettings(devices="cuda:0"), FactorSettings(devices="host:0")


def fields():
    """All that an approximation gives."""
    return ("whitened", "logdet", "trace_sums", "crossed", "products")


@pytest.mark.parametrize("neighbours", [1, 30, 60])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_those_of_the_host(case, neighbours):
    problem, graph = problem_of(case, 700, neighbours, has_noise=neighbours == 30)
    assert_same(parts_on_cuda(problem, graph, GPU), parts_on_host(problem, graph))


def test_many_neighbours_take_more_shared_memory():
    problem, graph = problem_of("Matern 0.889", 400, 120)
    assert_same(parts_on_cuda(problem, graph, GPU), parts_on_host(problem, graph))


def test_a_small_budget_changes_no_bit():
    problem, graph = problem_of("Matern 2.5", 5000, 30)
    whole = parts_on_cuda(problem, graph, GPU)
    again = parts_on_cuda(problem, graph, FactorSettings(devices="cuda:0", memory_budget=1 << 20))
    for name in fields():
        assert np.array_equal(getattr(whole, name), getattr(again, name))
    with pytest.raises(oc.BudgetError, match="larger memory_budget"):
        parts_on_cuda(problem, graph, FactorSettings(devices="cuda:0", memory_budget=1 << 16))


@pytest.mark.multigpu
def test_two_gpus_change_no_bit():
    problem, graph = problem_of("Matern 2.5", 5001, 30)
    one, two = (parts_on_cuda(problem, graph, FactorSettings(devices=count)) for count in (1, 2))
    for name in fields():
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_a_matrix_that_is_not_positive_definite_is_named():
    sites = np.vstack([np.arange(3000.0), np.arange(3000.0)]).reshape(-1, 1)
    observations = make_observations(sites, np.sin(np.arange(6000.0)))
    with pytest.raises(oc.NotPositiveDefiniteError, match=r"observations 0 and 3000 .* share a place"):
        vecchia_log_likelihood(observations, Matern(1.0, 2.0, 1.5), neighbours=5, settings=GPU)


def test_a_fit_is_that_of_the_host():
    sites = np.random.default_rng(0).uniform(size=(6000, 2))
    truth = Matern(1.0, 0.05, 0.8, 0.05)
    values = simulate(truth, sites, seed=1, target="observation")[0]
    observations = make_observations(sites, values)
    results = [fit(observations, smoothness="free", method="vecchia", exact_check="skip", settings=how) for how in (GPU, HOST)]
    assert results[0].loglik == pytest.approx(results[1].loglik, rel=TWO_DEVICES * 100)
    assert results[0].model.range == pytest.approx(results[1].model.range, rel=1e-5)


def test_blocks_of_ones_own():
    """The public function: rows of jobs, outputs, arguments, shared memory above 48 KiB, and jobs in parts."""
    code = """
    extern "C" __global__ void sums(const double* x, double* sum, int* number, const double* weights, double factor, int width)
    {
        extern __shared__ double memory[];
        for (int e = threadIdx.x; e < width; e += blockDim.x) memory[e + 7000] = weights[e] * x[blockIdx.x * width + e];
        __syncthreads();
        if (threadIdx.x) return;
        double total = 0.0;
        for (int e = 0; e < width; ++e) total += memory[e + 7000];
        sum[blockIdx.x] = factor * total;
        number[2 * blockIdx.x] = width;
    }"""
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(1001, 50)), rng.normal(size=50)
    for budget in (None, 20_000):
        sums, number = tb.run_cuda_blocks(
            code,
            "sums",
            [x],
            [((), np.float64), ((2,), np.int32)],
            [weights, 2.0, np.int32(50)],
            threads=64,
            shared_bytes=60_000,
            devices="cuda:0",
            memory_budget=budget,
        )
        np.testing.assert_allclose(sums, 2.0 * x @ weights, rtol=1e-12, atol=1e-12)
        assert np.array_equal(number, np.tile([50, 0], (1001, 1)))
