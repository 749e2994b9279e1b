"""Rates of passes: measured on the host, kept in the file of rates, and what plans make of them."""

from __future__ import annotations

import json

import pytest
import scipy.sparse

import ooc_chol as oc
from ooc_chol import block_csr
from tests.inside.cli import main
from tests.inside.dense import rates_problem
from tests.inside.hardware import rates_path
from tests.inside.sparse import pass_rates_problem

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def no_rates_yet():
    rates_path().unlink(missing_ok=True)


@pytest.fixture(scope="module")
def packed():
    with block_csr(scipy.sparse.random_array((3000, 3000), density=0.01, rng=0)) as found:
        yield found


def test_measured_rates_predict_seconds(packed):
    assert oc.plan_multiply(packed, 1, devices="host:0").seconds is None
    (rates,) = oc.rates.measure_pass_rates("host:0", quick=True).values()
    plan = oc.plan_multiply(packed, 1, devices="host:0")
    assert plan.rates == rates
    assert plan.seconds == plan.later_seconds > packed.nnz / rates.gathers / 1000
    assert "by measured rates" in str(plan)
    assert oc.plan_multiply(packed, 1, devices=["host:0", "host:1"]).seconds is None


def test_rates_of_tiles_and_of_passes_share_a_file():
    oc.rates.measure_pass_rates("host:0", quick=True)
    oc.rates.measure_rates(64, quick=True)
    oc.rates.measure_pass_rates("host:0", quick=True)
    everything = json.loads(rates_path().read_text())
    assert len(everything) == len(everything["passes"]) + 1 == 2
    assert rates_problem() is None
    assert pass_rates_problem() is None


@pytest.mark.parametrize("figure", [0, -1, "fast", None, float("inf")])
def test_damaged_rates_of_passes_are_ignored_and_told(packed, figure):
    oc.rates.measure_pass_rates("host:0", quick=True)
    everything = json.loads(rates_path().read_text())
    next(iter(everything["passes"].values()))["gathers"] = figure
    rates_path().write_text(json.dumps(everything))
    problem = pass_rates_problem()
    assert problem is not None
    assert str(rates_path()) in problem


def test_several_host_devices_are_not_measured():
    with pytest.raises(ValueError, match="share the host's cores"):
        oc.rates.measure_pass_rates(["host:0", "host:1"])


def test_the_command_measures_and_refuses_what_is_about_tiles(capsys):
    assert main(["bench", "rates", "--passes", "--quick", "--device", "host:0"]) == 0
    assert "rows of 32 bytes" in capsys.readouterr().out
    assert main(["bench", "rates", "--passes", "--tile-size", "64"]) != 0
    assert "leave --tile-size out" in capsys.readouterr().err
