"""Two GPUs of one host share a factorization in native FP64 directly and through host memory: the same bits, the same errors."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from tests.host.device_solves import SHAPES, check_team, share_all, symmetric_source
from tests.host.device_solves import symmetric as symmetric_matrix
from tests.host.matrices import FAMILIES, check_factor
from tests.host.runs import check_bytes
from tests.inside.bench import CovarianceProblem
from tests.inside.dense import symmetric
from tests.inside.kernels import workspace_bytes

pytestmark = pytest.mark.multigpu

GPUS = ("cuda:0", "cuda:1")


def on(devices, a, nb=128, slots=12, **options):
    """The factor of ``a`` with some tiles of budget on each device."""
    budget = workspace_bytes(nb) + slots * -(-8 * nb * nb // 4096) * 4096
    return oc.cholesky(a, tile_size=nb, devices=devices, memory_budget=budget, **options)


@pytest.mark.parametrize("policy", ["planned", "async", "v3"])
@pytest.mark.parametrize("slots", [4, 12, 60])
def test_two_gpus_give_the_bits_of_one(policy, slots):
    a = FAMILIES["matern25 nugget 1e-6"](1300)
    one = np.asarray(on("cuda:0", a))
    two = on(GPUS, a, slots=slots, policy=policy)
    check_bytes(two.report.plan, two.report.execution)
    assert np.array_equal(one, np.asarray(two))
    assert np.array_equal(one, np.asarray(on("cuda:1", a)))


def test_files_and_functions_on_two_gpus(tmp_path):
    a = FAMILIES["exponential"](900)
    one = np.asarray(on("cuda:0", a))
    np.save(tmp_path / "a.npy", a)
    with on(GPUS, tmp_path / "a.npy", store=tmp_path / "l.ooc") as factor:
        assert np.array_equal(one, np.asarray(factor))
        check_factor(factor, a)


@pytest.mark.parametrize("at", [0, 200, 640, 699])
def test_the_first_bad_minor_on_two_gpus(at):
    a = np.eye(700) * 2
    a[at, at] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        on(GPUS, a, nb=64, slots=6)
    assert caught.value.minor == at + 1


@pytest.fixture
def small_teams(monkeypatch):
    """Both GPUs share solves and products of any size."""
    share_all(monkeypatch)
    for name, rows in (("LEAST_ROWS", 32), ("_DEVICE_TILE", 128)):
        monkeypatch.setattr(symmetric, name, rows)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_gpus_solve_to_the_bits_of_one(kind, shape, tmp_path, small_teams):
    check_team(GPUS, kind, shape, tmp_path)


def test_products_with_symmetric_matrices_on_two_gpus(small_teams):
    d, b = symmetric_matrix(700, 1), np.random.default_rng(0).standard_normal((700, 9))
    one, two = (oc.symm(symmetric_source(d), b, devices=devices) for devices in ("cuda:0", GPUS))
    assert np.array_equal(one, two)
    np.testing.assert_allclose(one, d @ b, atol=1e-9)


@pytest.mark.parametrize("store", ["host", "device"])
def test_factors_of_two_gpus_solve_on_both(small_teams, store):
    a = FAMILIES["matern25 nugget 1e-6"](1300)
    b = np.random.default_rng(0).standard_normal((1300, 40))
    one, two = (on(devices, a, slots=300, store=store) for devices in ("cuda:0", GPUS))
    assert np.array_equal(one.solve(b), two.solve(b))
    for mine, other in zip(one.half_solves(b[:, :2], b[:, 2:]), two.half_solves(b[:, :2], b[:, 2:]), strict=True):
        assert np.array_equal(mine, other)
    assert np.array_equal(one.matmul(b), two.matmul(b)) and one.logdet() == two.logdet()
    with on(GPUS, a, slots=300, store=store, trace=True) as traced:
        assert "cuda:1" in {record.device for record in traced.trace.records}
        traced.half_solve(b)
        assert {record.device for record in traced.report.passes.records} == set(GPUS)


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("n", [1500, 1291])
def test_an_l_on_two_gpus_answers_with_the_bits_of_one(n, fp64, small_teams):
    source, joint = (oc.from_function(m, p.host_tile, cuda=p.cuda_tile()) for m in (n, n + 301) for p in [CovarianceProblem(m)])
    options = {"tile_size": 128, "fp64": fp64, "memory_budget": "400 MiB", "store": "device"}
    b = np.random.default_rng(0).standard_normal((n, 66))
    answers = []
    for devices in ("cuda:0", GPUS):
        with oc.cholesky(source, devices=devices, **options) as factor:
            answers.append(
                (
                    factor.solve(b),
                    factor.half_solve(b[:, :2]),
                    factor.half_solve(b, transposed=True),
                    *factor.half_solves(b[:, :2], b),
                    factor.inverse_diagonal(),
                    *factor.inverse_traces([source], b[:, :2]),
                    *factor.half_solve_sums(joint, range(n, n + 301), b[:, :2]),
                    *factor.half_solve_sums(joint, range(n, n + 301), b[:, :2], width=50),
                )
            )
    for one, two in zip(*answers, strict=True):
        assert np.array_equal(one, two)


def test_gradients_and_kriging_have_the_bits_of_one_gpu(small_teams):
    sites = np.random.default_rng(3).uniform(size=(1700, 2))
    observations = geostat.make_observations(sites, np.sin(9 * sites[:, 0]) + sites[:, 1])
    model, answers = geostat.Matern(1.0, 0.3, 0.5, 0.01), []
    for devices in ("cuda:0", GPUS):
        settings = geostat.FactorSettings(devices=devices, tile_size=128, memory_budget="400 MiB")
        found = geostat.log_likelihood_gradient(observations, model, traces="probes", information=True, settings=settings)
        exact = geostat.log_likelihood_gradient(observations, model, traces="exact", settings=settings)
        kriged = geostat.predict(observations, model, sites[:200] + 0.001, settings=settings)
        parts = found.gradient, found.information, exact.gradient, kriged.mean, kriged.variance
        answers.append((found.likelihood.loglik, *parts))
    for one, two in zip(*answers, strict=True):
        assert np.array_equal(one, two)


def test_what_was_measured_on_a_gpu_is_read_while_another_one_is_current():
    cp = pytest.importorskip("cupy")
    from tests.inside.kernels import CudaNorms

    with cp.cuda.Device(1):
        norms = CudaNorms(6)
    with cp.cuda.Device(0):
        assert not norms.values().any() and len(norms.values()) == 6
