"""Nominal rates: of which GPUs there are any, how they scale, and that plans use them and say so."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, replace
from pathlib import Path

import pytest

import ooc_chol as oc
from ooc_chol import FactorOptions, Plan
from tests.inside.dense import (
    DATA_SHEETS,
    Problem,
    Rates,
    RatesOrigin,
    ceilings_of,
    lookup,
    make_plan,
    nominal_rates,
    nominal_rates_of,
)
from tests.inside.hardware import CUDA, GpuFacts, rates_path
from tests.inside.kernels import CUDA as CUDA_KERNELS
from tests.inside.kernels import identity
from tests.inside.precision import FP32, FP64
from tests.inside.tasks import TileGrid
from tests.products import thorough

H200 = GpuFacts("NVIDIA H200", (9, 0), 132, 1.98e9, 4.8e12)
RTX_4090 = GpuFacts("NVIDIA GeForce RTX 4090", (8, 9), 128, 2.52e9, 1.008e12)
#: How far a prediction from nominal rates may be off what an H200 was measured to take.
PREDICTION_ERROR = 0.12
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: Fields of rates that are no numbers, and those that only the host has.
NO_RATES = {"residue", "precision", "origin", "model", "disk"}
HOST_ALONE = {"trsm_float32", "gemm_float32"}


def nominal(facts: GpuFacts = H200, devices: int = 1, nb: int = 2048, source: str = "array", store: str = "memory") -> Rates:
    """Nominal rates of a GPU of which there are some."""
    found = nominal_rates_of(facts, devices, nb, source, store)
    assert found is not None
    return found


@pytest.fixture
def gpus_here(monkeypatch, tmp_path):
    """Two H200s of which nothing was measured, as far as a plan can see; the notice was not given yet."""
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    monkeypatch.setattr(type(CUDA), "names", lambda self: ("cuda:0", "cuda:1"))
    monkeypatch.setattr(type(CUDA), "gpu_facts", lambda self, name: H200)
    monkeypatch.setattr(identity, "machine_identity", lambda devices: f"a machine with {len(devices)}")
    lookup.say_nominal.cache_clear()
    yield
    lookup.say_nominal.cache_clear()


@pytest.mark.parametrize("model", DATA_SHEETS)
@pytest.mark.parametrize("nb", sorted({*CUDA_KERNELS.tile_sizes, *CUDA_KERNELS.residue_tile_sizes}))
def test_every_gpu_of_the_table_has_rates_at_every_tile_order_of_plans(model, nb):
    facts = replace(H200, model=model)
    for store in ("memory", "file"):
        rates = nominal(facts, nb=nb, store=store)
        assert {field.name for field in fields(Rates) if getattr(rates, field.name) is None} == {*HOST_ALONE, "precision", "disk"}
        assert rates.potrf < rates.gemm and rates.trsm < rates.gemm
        assert (rates.origin, rates.model, rates.tile_size) == (RatesOrigin.NOMINAL, model, nb)
        assert rates.residue is not None and rates.residue.moduli == 13


def test_rates_of_an_h200_are_those_that_were_measured():
    rates, ceilings = nominal(), ceilings_of(H200)
    assert rates.residue is not None and ceilings is not None
    assert rates.gemm == pytest.approx(52e12) and rates.residue.product == pytest.approx(107e12)
    assert 2048**3 / 3 / rates.potrf == pytest.approx(2.05e-3, rel=0.03)
    assert 2048**3 / rates.trsm == pytest.approx(1.2e-3, rel=0.03)
    assert rates.fetch == rates.write == 51e9


@pytest.mark.parametrize(
    "case", ["h200-native-65536-8g", *thorough("h200-native-131072-24g", "h200-residue-131072-32g", "h200-residue-163840-48g")]
)
def test_nominal_rates_predict_what_an_h200_was_measured_to_take(case):
    measured = json.loads((RESULTS / f"{case}.json").read_text(encoding="utf-8"))
    options = FactorOptions(
        tile_size=measured["tile_size"], devices="cuda:0", memory_budget=measured["budget_bytes"], fp64=measured["engine"]
    )
    plan = make_plan(Problem(measured["n"], 0, "function"), options, lambda grid: nominal(nb=grid.nb, source="function"))
    assert plan.seconds == pytest.approx(min(measured["seconds"]), rel=PREDICTION_ERROR)


def test_a_gpu_without_a_data_sheet_is_known_by_what_its_driver_says():
    rates, h200 = nominal(RTX_4090), nominal()
    assert rates.residue is not None and h200.residue is not None
    assert rates.gemm == pytest.approx(52e12 / 67e12 * 128 * 2.52e9 * 4)
    assert rates.residue.product == pytest.approx(107e12 / 1979e12 * 128 * 2.52e9 * 2048)
    assert rates.residue.accumulate == pytest.approx(1.008 / 4.8 / 24e-12)
    assert h200.residue.accumulate == pytest.approx(1 / 14e-12), "which Hopper does in registers"
    assert rates.fetch == rates.residue.pull == h200.fetch / 2, "PCIe 4, by which other GPUs are reached, too"


@pytest.mark.parametrize(
    "facts",
    [
        replace(RTX_4090, capability=(7, 5)),
        replace(RTX_4090, capability=(99, 0)),
        replace(RTX_4090, clock_hz=0.0),
        replace(RTX_4090, memory_bytes_per_second=0.0),
    ],
)
def test_of_a_gpu_that_nobody_knows_there_are_none(facts):
    assert nominal_rates_of(facts, 1, 2048, "array", "memory") is None


@pytest.mark.parametrize(("dtype", "flops"), [("float32", 1), ("complex128", 4), ("complex64", 4)])
def test_plans_of_other_types_predict_seconds_from_nominal_rates(gpus_here, dtype, flops):
    plan = oc.plan(65536, dtype=dtype, devices="cuda:0", memory_budget="8 GiB", fp64="native")
    of_float64 = oc.plan(65536, devices="cuda:0", memory_budget="8 GiB", fp64="native")
    assert "nominal rates of NVIDIA H200" in str(plan)
    # An H200 has as many flops in FP32 as in FP64; a complex product is four real ones.
    assert flops * of_float64.seconds / 1.25 < plan.seconds < 1.25 * flops * of_float64.seconds


@pytest.mark.parametrize(("dtype", "planes"), [("float32", 7), ("complex128", 28), ("complex64", 14)])
def test_by_nominal_rates_auto_takes_residues_for_other_types(gpus_here, dtype, planes):
    options = {"dtype": dtype, "devices": "cuda:0", "memory_budget": "48 GiB"}
    auto, native = oc.plan(65536, **options), oc.plan(65536, fp64="native", **options)
    assert (auto.engine, auto.layout.planes) == ("residue", planes) and auto.seconds < native.seconds
    assert auto.rates.residue.moduli == planes


def test_single_precision_is_scaled_by_the_ceilings_of_the_model(gpus_here, monkeypatch):
    for facts, speed in ((H200, 1.0), (replace(H200, model="NVIDIA B200"), 75 / 37), (RTX_4090, 64.0)):
        monkeypatch.setattr(type(CUDA), "gpu_facts", lambda self, name, facts=facts: facts)
        double, single = (lookup.known_rates(TileGrid(8192, 2048), "array", "memory", "cuda:0", fmt) for fmt in (FP64, FP32))
        assert single.gemm == pytest.approx(speed * double.gemm) and single.source == double.source


def test_several_gpus_share_the_memory_of_their_host():
    assert [nominal(devices=count).fetch for count in (1, 2, 4)] == [51e9, 48e9, 24e9]
    assert nominal(devices=4).gemm == nominal().gemm


def test_sources_and_stores_have_rates_of_their_own():
    assert nominal(source="file").source < nominal(source="array").source
    assert nominal(store="file").fetch < nominal(store="memory").fetch
    assert nominal(source="device-array").generate > nominal(source="function").generate


def test_the_host_and_what_is_behind_slices_have_none(gpus_here):
    assert nominal_rates(("host:0",), 256, "array", "memory") is None
    assert nominal_rates(("cuda:0",), 2048, "slices", "memory") is None
    assert nominal_rates(("cuda:0",), 2048, "array", "memory") == nominal()


def test_gpus_of_two_models_have_none(gpus_here, monkeypatch):
    monkeypatch.setattr(type(CUDA), "gpu_facts", lambda self, name: H200 if name == "cuda:0" else RTX_4090)
    assert nominal_rates(("cuda:0", "cuda:1"), 2048, "array", "memory") is None


def planned_on_a_gpu(**options: object) -> Plan:
    """A plan for a GPU that seems to be here."""
    return oc.plan(32768, devices="cuda:0", memory_budget="64 GiB", **options)


def test_without_measurements_residues_are_taken_where_nominal_rates_favour_them(gpus_here, caplog):
    plan = planned_on_a_gpu()
    assert plan.engine == "residue" and plan.seconds is not None
    assert plan.seconds < planned_on_a_gpu(fp64="native").seconds
    assert plan.to_dict()["rates"] == "nominal"
    assert "predicted" in str(plan) and "from nominal rates of NVIDIA H200; `ooc-chol bench rates` measures" in str(plan)


def test_nominal_rates_are_told_once_by_a_logger_and_not_as_a_warning(gpus_here, caplog, recwarn):
    for _ in range(2):
        planned_on_a_gpu(fp64="native")
    (record,) = caplog.records
    assert record.name == "ooc_chol" and record.levelno == logging.WARNING
    assert "nominal rates of NVIDIA H200" in record.getMessage() and "ooc-chol bench rates" in record.getMessage()
    assert not recwarn.list


def test_the_notice_can_be_silenced(gpus_here, caplog):
    logging.getLogger("ooc_chol").setLevel(logging.ERROR)
    try:
        planned_on_a_gpu(fp64="native")
    finally:
        logging.getLogger("ooc_chol").setLevel(logging.NOTSET)
    assert not caplog.records


@pytest.mark.parametrize("origin", ["measured", "quick"])
def test_what_was_measured_goes_before_nominal_rates(gpus_here, caplog, origin):
    links = {"array": 1e9, "file": 1e9, "memory-read": 1e9, "memory-write": 1e9, "file-read": 1e9, "file-write": 1e9}
    kernels = {"potrf": 1e12, "trsm": 2e12, "syrk": 3e12, "gemm": 4e12, "launch": 1e-6, "generate": 3e9}
    figures = {**kernels, "links": links} | ({"quick": True} if origin == "quick" else {})
    rates_path().parent.mkdir(parents=True, exist_ok=True)
    rates_path().write_text(json.dumps({"a machine with 1": {"4096": figures}}))
    found = lookup.known_rates(TileGrid(32768, 4096), "array", "memory", "cuda:0")
    assert found is not None and (found.gemm, found.origin, found.model) == (4e12, origin, None)
    assert not caplog.records
    on_device = lookup.known_rates(TileGrid(32768, 4096), "device-array", "memory", "cuda:0")
    assert on_device is not None and on_device.generate == 1e9
    other = lookup.known_rates(TileGrid(32768, 2048), "array", "memory", "cuda:0")
    assert other is not None and other.origin is RatesOrigin.NOMINAL
    plan = planned_on_a_gpu(fp64="native", tile_size=4096)
    assert ("measured quickly" in str(plan)) == (origin == "quick")


def test_a_gpu_that_is_elsewhere_has_no_rates(monkeypatch, tmp_path):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    monkeypatch.setattr(type(CUDA), "names", lambda self: ())
    assert planned_on_a_gpu().seconds is None
