"""Rates of GPUs: all of them are there, of the right size, and predict the seconds of a run."""

from __future__ import annotations

import json
import time
from dataclasses import fields

import pytest

import ooc_chol as oc
from ooc_chol.rates import measure_rates
from tests.inside.bench import CovarianceProblem
from tests.inside.dense import CAPABILITIES, Rates, ResidueRates, generation, measuring, nominal_rates, stored_rates
from tests.inside.hardware import CUDA, rates_path
from tests.inside.kernels import machine_identity
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32
from tests.inside.tasks import TileGrid

pytestmark = [pytest.mark.cuda, pytest.mark.alone]

#: More than any GPU of today has, in flops, bytes or entries per second: a figure above it has the wrong unit.
TOO_MUCH = 1e16
#: Largest error of a prediction at order 16384, where runs of 20 to 40 ms are made of short kernels.
PREDICTION_ERROR = 0.4
#: Seconds that quick rates of one tile order may take; how far they may be off those under load, and
#: nominal ones off measured ones.
QUICK_SECONDS, QUICK_DIFFERENCE, NOMINAL_DIFFERENCE = 10.0, 0.4, 0.5
FAST = ("potrf", "trsm", "syrk", "gemm", "source", "fetch", "write", "memory_fetch", "memory_write", "generate", "invert")

#: What has no rate on a GPU: products in FP32, which is no faster there; the formats of a plan's tiles, which are no rate; and
#: files, which are measured by folder.
NOT_HERE = ("trsm_float32", "gemm_float32", "precision", "model", "disk")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Rates at tiles of 2048 of a device that was under load for a second, in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOC_CHOL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(measuring, "SUSTAINED_SECONDS", 0.3)
        yield measure_rates(2048, "cuda:0", warm_seconds=1.0)


def test_every_rate_is_of_the_right_size(measured):
    assert all(0 < getattr(measured, name) < TOO_MUCH for name in FAST)
    assert set(FAST) | {"tile_size", "launch", "residue", "origin"} | set(NOT_HERE) == {field.name for field in fields(Rates)}
    assert {name: getattr(measured, name) for name in NOT_HERE} == dict.fromkeys(NOT_HERE)
    assert 0 < measured.launch < 1e-3
    assert measured.potrf < measured.trsm < measured.gemm
    assert stored_rates(TileGrid(16384, 2048), "array", "memory", "cuda:0") == measured


@pytest.mark.parametrize("fmt", [FP32, COMPLEX128, COMPLEX64])
def test_other_types_have_rates(measured, fmt):
    rates = stored_rates(TileGrid(16384, 2048), "array", "memory", "cuda:0", fmt)
    assert rates.origin is measured.origin and rates.residue == measured.residue
    assert all(0 < getattr(rates, name) < TOO_MUCH for name in ("potrf", "trsm", "syrk", "gemm", "generate"))
    assert oc.plan(16384, tile_size=2048, devices="cuda:0", dtype=fmt.dtype).seconds > 0


def test_residues_have_rates(measured):
    assert measured.residue is not None and measured.residue.moduli == measuring.MODULI
    assert all(0 < getattr(measured.residue, field.name) < TOO_MUCH for field in fields(ResidueRates))
    # An entry of an accumulator is one of 13 numbers of 4 bytes, read and written; one of a tile is converted to 13 bytes.
    assert measured.residue.convert > measured.residue.accumulate
    assert measured.residue.reconstruct > 1e9


def test_links_are_no_faster_both_ways_than_alone(measured):
    links = json.loads(rates_path().read_text())[machine_identity("cuda:0")]["2048"]["links"]
    assert (measured.fetch, measured.write) == (links["memory-read"], links["memory-write"])
    for way in ("read", "write"):
        assert 0 < links[f"memory-{way}"] <= 1.05 * links[f"memory-{way}-alone"]


@pytest.mark.parametrize(("fp64", "budget"), [("native", "1 GiB"), ("residue", "6 GiB")])
def test_seconds_are_predicted(measured, fp64, budget):
    problem = CovarianceProblem(16384)
    ratios = []
    for _ in range(4):  # the first run loads libraries and compiles
        source = oc.from_function(problem.n, problem.host_tile, cuda=problem.cuda_tile())
        with oc.cholesky(source, tile_size=2048, devices="cuda:0", memory_budget=budget, fp64=fp64) as factor:
            assert factor.report.plan.seconds is not None
            ratios.append(factor.report.plan.seconds / factor.report.inside_seconds)
    assert min(abs(ratio - 1) for ratio in ratios[1:]) < PREDICTION_ERROR, ratios


def test_cuda_source_is_measured_once(measured, monkeypatch):
    problem, opened = CovarianceProblem(8192), []

    def open_and_note(name, *arguments, **options):
        opened.append(name)
        return open_tile_device(name, *arguments, **options)

    open_tile_device = generation.open_tile_device
    monkeypatch.setattr(generation, "open_tile_device", open_and_note)
    for correlation_range in (0.1, 0.2, 0.3):  # as a fit does
        other = CovarianceProblem(problem.n, correlation_range)
        source = oc.from_function(problem.n, other.host_tile, cuda=other.cuda_tile())
        plan = oc.plan(source, tile_size=2048, devices="cuda:0", memory_budget="1 GiB")
        assert 0 < plan.rates.generate < measured.generate
    assert opened == ["cuda:0"]


@pytest.mark.cuda(n=2)
def test_two_gpus_are_measured_at_once(measured):
    names = ("cuda:0", "cuda:1")
    grid = TileGrid(8192, 2048)
    assert stored_rates(grid, "array", "memory", names) == measured, "those of one stand for two that were not measured"
    two = measure_rates(2048, names, warm_seconds=1.0)
    stored = json.loads(rates_path().read_text())
    assert stored[machine_identity(names)]["2048"]["pulled_from"] == "cuda:1"
    assert stored_rates(grid, "array", "memory", names) == two
    assert stored_rates(grid, "array", "memory", "cuda:1") == measured
    assert 1e9 < two.residue.pull < TOO_MUCH


def test_quick_rates_are_near_those_under_load(measured, tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    began = time.perf_counter()
    quick = measure_rates(2048, "cuda:0", quick=True)
    assert time.perf_counter() - began < QUICK_SECONDS
    assert quick.origin == "quick" and quick.residue is not None and measured.residue is not None
    for name in ("gemm", "trsm", "potrf", "fetch", "write"):
        assert getattr(quick, name) == pytest.approx(getattr(measured, name), rel=QUICK_DIFFERENCE), name
    assert quick.residue.product == pytest.approx(measured.residue.product, rel=QUICK_DIFFERENCE)


def test_the_driver_says_what_nominal_rates_follow_from():
    facts = CUDA.gpu_facts("cuda:0")
    assert facts is not None and facts.model.startswith("NVIDIA") and facts.processors > 0
    assert 1e8 < facts.clock_hz < 1e10 and 1e10 < facts.memory_bytes_per_second < TOO_MUCH
    nominal = nominal_rates(("cuda:0",), 2048, "array", "memory")
    assert (nominal is None) == (facts.capability not in CAPABILITIES)


def test_nominal_rates_of_an_h200_are_near_its_own(measured):
    nominal = nominal_rates(("cuda:0",), 2048, "array", "memory")
    if nominal is None or nominal.model != "NVIDIA H200":
        return  # of other models nothing was measured that these could be near to
    for name in ("gemm", "fetch", "write"):
        assert getattr(nominal, name) == pytest.approx(getattr(measured, name), rel=NOMINAL_DIFFERENCE), name
    assert nominal.residue is not None and measured.residue is not None
    assert nominal.residue.product == pytest.approx(measured.residue.product, rel=NOMINAL_DIFFERENCE)


def test_without_measurements_a_plan_for_a_gpu_has_nominal_rates(tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    plan = oc.plan(32768, devices="cuda:0", memory_budget="16 GiB")
    assert plan.rates is not None and plan.to_dict()["rates"] == "nominal"
    assert plan.engine == "residue"
