"""Rates of float32 and complex numbers: measured with those of float64, else scaled from them, and said to be so."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.cli import main
from tests.inside.dense import (
    TYPED_KERNELS,
    RatesOrigin,
    generation,
    kernels_of_type,
    measuring,
    rates_problem,
    stored_rates,
    types,
)
from tests.inside.hardware import rates_path, read_rates
from tests.inside.kernels import machine_identity
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32, FP64
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

GRID = TileGrid(320, 64)
OTHERS = (FP32, COMPLEX128, COMPLEX64)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, and measurements that are short."""
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.002)


def change_figures(change):
    """Let ``change`` spoil or shorten what is stored of tiles of 64."""
    everything = read_rates()
    change(everything[machine_identity()]["64"])
    rates_path().write_text(json.dumps(everything))


@pytest.mark.parametrize("fmt", OTHERS)
def test_every_type_is_measured_beside_float64_and_found_again(fmt):
    of_float64 = oc.rates.measure_rates(64)
    found = stored_rates(GRID, "array", "memory", fmt=fmt)
    figures = kernels_of_type(read_rates()[machine_identity()]["64"], fmt.dtype.name)
    assert {name: getattr(found, name) for name in TYPED_KERNELS} == figures
    links = ("source", "fetch", "write", "launch", "tile_size", "origin")
    assert all(getattr(found, name) == getattr(of_float64, name) for name in links)
    assert found.residue is None and found.origin is RatesOrigin.MEASURED


@pytest.mark.parametrize("fmt", (FP64, *OTHERS))
def test_plans_of_every_type_predict_seconds(fmt):
    oc.rates.measure_rates(64)
    plan = oc.plan(320, tile_size=64, dtype=fmt.dtype, devices="host:0")
    assert plan.seconds > 0 and "scaled" not in str(plan)
    a = np.eye(320, dtype=fmt.dtype)
    with oc.cholesky(a, dtype=fmt.dtype, tile_size=64, devices="host:0") as factor:
        assert factor.report.plan.seconds == plan.seconds if a.dtype == np.float64 else factor.report.plan.seconds > 0


@pytest.mark.parametrize(("fmt", "speed"), [(FP32, 2.0), (COMPLEX128, 1.0), (COMPLEX64, 2.0)])
def test_rates_of_float64_alone_are_scaled_and_said_to_be(fmt, speed):
    of_float64 = oc.rates.measure_rates(64)
    change_figures(lambda figures: figures.pop("types"))
    found = stored_rates(GRID, "array", "memory", fmt=fmt)
    assert found.origin is RatesOrigin.SCALED
    assert all(getattr(found, name) == speed * getattr(of_float64, name) for name in ("potrf", "trsm", "syrk", "gemm"))
    assert found.generate == of_float64.generate * 8 / fmt.itemsize and found.source == of_float64.source
    plan = oc.plan(320, tile_size=64, dtype=fmt.dtype, devices="host:0")
    assert plan.seconds > 0 and "from rates of float64, scaled" in str(plan)
    assert "scaled" not in str(oc.plan(320, tile_size=64, devices="host:0"))


def test_scaled_rates_stay_so_between_two_tile_orders():
    for nb in (64, 128):
        oc.rates.measure_rates(nb)
    change_figures(lambda figures: figures.pop("types"))
    plan = oc.plan(960, tile_size=96, dtype="float32", devices="host:0")
    assert plan.rates.origin is RatesOrigin.SCALED
    assert oc.plan(960, tile_size=96, devices="host:0").rates.origin is RatesOrigin.NEARBY


def test_an_array_on_a_device_is_copied_at_its_share_in_every_type():
    oc.rates.measure_rates(64)
    for fmt in (FP64, *OTHERS):
        made, copied = (stored_rates(GRID, source, "memory", fmt=fmt).generate for source in ("function", "device-array"))
        assert copied == pytest.approx(made / 3)


DAMAGES = {
    "a list": lambda figures: figures.update(types=["float32"]),
    "a number": lambda figures: figures.update(types=3),
    "a type that is a number": lambda figures: figures["types"].update(float32=3),
    "a kernel missing": lambda figures: figures["types"]["float32"].pop("syrk"),
    "a rate of zero": lambda figures: figures["types"]["float32"].update(gemm=0),
    "a rate that is a word": lambda figures: figures["types"]["float32"].update(gemm="fast"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_figures_of_a_type_are_ignored_with_a_warning(damage):
    of_float64 = oc.rates.measure_rates(64)
    change_figures(DAMAGES[damage])
    with pytest.warns(oc.errors.RatesWarning, match=r"ignored.*`ooc-chol bench rates`"):
        assert oc.plan(320, tile_size=64, dtype="float32", devices="host:0").seconds is None
    assert "damaged" in rates_problem()
    assert stored_rates(GRID, "array", "memory") == of_float64, "what was measured in float64 still counts"


def test_a_tile_function_is_measured_in_the_type_in_which_it_is_computed(monkeypatch):
    oc.rates.measure_rates(64)
    asked = []

    def tile_fn(rows, cols, out, stream):
        asked.append(out.dtype.name)
        out[...] = np.equal.outer(rows, cols)

    source = oc.from_function(320, tile_fn, dtype="complex64")
    for dtype in ("complex64", "complex128"):
        plan = oc.plan(source, tile_size=64, dtype=dtype, devices="host:0")
        assert plan.seconds > 0 and set(asked) == {"complex64"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_measure", lambda tier, device: {"complex64": 2e6, "complex128": 1e6}[tier.fmt.dtype.name])
        generation._KNOWN.clear()
        rates = [generation.generation_rate(source, GRID, "host:0", fmt) for fmt in (COMPLEX64, COMPLEX128, COMPLEX64)]
    assert rates == [2e6, 1e6, 2e6]
    generation._KNOWN.clear()


def test_the_command_prints_every_type(capsys):
    assert main(["bench", "rates", "--device", "host:0", "--tile-size", "64", "--quick"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "other types" in line)
    assert all(fmt.dtype.name in line for fmt in OTHERS)
    assert main(["bench", "rates", "--device", "host:0", "--tile-size", "64", "--quick", "--json"]) == 0
    of_types = json.loads(capsys.readouterr().out)["types"]["64"]
    assert all(set(of_types[fmt.dtype.name]) == set(TYPED_KERNELS) for fmt in OTHERS)


def test_nominal_rates_stay_nominal_in_every_type():
    oc.rates.measure_rates(64)
    nominal = replace(stored_rates(GRID, "array", "memory"), origin=RatesOrigin.NOMINAL, model="a GPU")
    scaled = types.scaled_to(nominal, COMPLEX64, 3.0)
    assert (scaled.origin, scaled.model, scaled.gemm) == (RatesOrigin.NOMINAL, "a GPU", 3.0 * nominal.gemm)
