"""Intervals on GPUs: A multiplied there, the truth of the host inside, one GPU and several."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.bench import CovarianceProblem

pytestmark = pytest.mark.cuda

#: What a product of FP64 numbers may differ by, summed in another order.
RTOL = 1e-9


def checked(n: int, threshold: float | None, devices: object, **options: object) -> tb.CertifiedAnswers:
    """Answers of a factor on GPUs that hold the truth, which the host's FP64 says to more digits than they claim."""
    problem = CovarianceProblem(n)
    b = np.random.default_rng(0).standard_normal(n)
    a = oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    with oc.cholesky(a, devices="host:0") as plain:
        truth, form, x = plain.logdet(), plain.quadratic(b), plain.solve(b)
    with oc.cholesky(a, threshold, devices=devices, **options) as factor:
        answers = factor.certify(b)
        assert answers.logdet.gap < 0.5 and "product with A" in factor.report.passes.totals
    room = 1e-11 * n
    assert answers.logdet.lower - room <= truth <= answers.logdet.upper + room
    assert answers.quadratic[0].lower - room <= form <= answers.quadratic[0].upper + room
    assert (np.abs(answers.solution.x - x) <= answers.solution.half_width + 1e-8).all()
    return answers


@pytest.mark.parametrize("threshold", [None, 1e-4, 1e-7])
@pytest.mark.parametrize("options", [{}, {"store": "device"}, {"tile_size": 512, "memory_budget": "80 MiB"}])
def test_the_truth_is_in_every_interval(threshold, options):
    checked(3000, threshold, "cuda:0", **options)


def test_the_gap_is_that_of_the_factor():
    """Its norm, by dense matrices of the host, is below the bound and of its size."""
    n = 2000
    problem = CovarianceProblem(n)
    a = oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    with oc.cholesky(a, 1e-4, devices="cuda:0", tile_size=256, objective="bytes") as factor:
        dense, seen = np.asarray(factor), factor.logdet(certified=True)
        assert factor.report.plan.precision is not None and set(factor.formats) > {"fp64"}
    off = problem.block(slice(0, n), slice(0, n)) - dense @ dense.T
    gap = np.linalg.norm(np.linalg.solve(dense, np.linalg.solve(dense, off).T))
    assert gap <= seen.gap <= 4.0 * gap + 1e-7


def test_an_array_that_lies_on_the_gpu():
    import cupy as cp

    n = 1500
    problem = CovarianceProblem(n)
    dense = problem.block(slice(0, n), slice(0, n))
    with cp.cuda.Device(0), oc.cholesky(cp.asarray(dense)) as factor:
        answers = factor.certify(cp.ones(n))
    assert answers.logdet.lower - 1e-8 <= np.linalg.slogdet(dense)[1] <= answers.logdet.upper + 1e-8


@pytest.mark.multigpu
def test_two_gpus_certify_what_one_does():
    one = checked(3000, 1e-4, ["cuda:0"], tile_size=512)
    two = checked(3000, 1e-4, ["cuda:0", "cuda:1"], tile_size=512)
    assert two.logdet.gap == pytest.approx(one.logdet.gap, rel=1e-3)
    assert two.logdet.value == pytest.approx(one.logdet.value, rel=RTOL)
