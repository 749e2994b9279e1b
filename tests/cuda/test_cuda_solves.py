"""Solves, sums over the inverse and products on a GPU: the checks of the host device, formats, and agreement with the host."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import device_solver, factor_over
from tests.host.device_solves import SHAPES, check_half_solve_sums, check_inverse_sums, check_product, check_solves
from tests.host.stored_factors import MIXED_STORES, STORES, lapack_factor, random_spd, write_factor
from tests.inside.bench import CovarianceProblem
from tests.inside.dense import LocalPlace, solve
from tests.inside.precision import FORMATS
from tests.inside.runtime import Pass
from tests.inside.tasks import TileGrid
from tests.tolerances import gamma

pytestmark = pytest.mark.cuda
DEVICE = "cuda:0"


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_solves(kind, shape, tmp_path):
    check_solves(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_the_inverse(kind, shape, tmp_path):
    check_inverse_sums(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_half_solves(kind, shape, tmp_path):
    check_half_solve_sums(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (300, 9), (5000, 40)])
def test_products(n, m):
    check_product(DEVICE, n, m)


@pytest.mark.parametrize("kind", MIXED_STORES)
def test_tiles_of_narrow_formats_are_widened_on_the_way(kind, tmp_path):
    grid, names = TileGrid(150, 32), itertools.cycle(FORMATS)
    formats = [FORMATS["fp64"] if i == j else FORMATS[next(names)] for i, j in grid.tiles()]
    store = MIXED_STORES[kind](grid, formats, tmp_path)
    write_factor(lapack_factor(random_spd(150, seed=3, condition=10.0)), store)
    b = np.random.default_rng(0).standard_normal((150, 40))
    x = b.copy()
    solve(device_solver(DEVICE, 1 << 28), store, x, transposed=(False, True), run=Pass(""))
    with factor_over(store) as host:
        # the same system, whose matrix has a condition of about ten
        np.testing.assert_allclose(x, host.solve(b), atol=1e3 * gamma(150) * np.abs(x).max())


def test_a_factor_made_on_a_gpu_solves_there_as_on_the_host():
    n = 6000
    problem = CovarianceProblem(n)
    source = oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    b = np.random.default_rng(0).standard_normal((n, 64))
    with oc.cholesky(source, devices=DEVICE, tile_size=1024, memory_budget="400 MB") as factor:
        device = factor.half_solve(b), factor.solve(b), factor.inverse_diagonal(), factor.inverse_traces([source])
        factor._place = LocalPlace()
        host = factor.half_solve(b), factor.solve(b), factor.inverse_diagonal(), factor.inverse_traces([source])
    for ours, theirs in zip(device[:3], host[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())
    # tr(inv(A) A) = n
    assert device[3].products[0] == pytest.approx(n, rel=1e-10)
    np.testing.assert_allclose(device[3].diagonal, host[3].diagonal, rtol=1e-10)
