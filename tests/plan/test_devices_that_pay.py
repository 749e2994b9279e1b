"""How many GPUs a factorization takes where none are named: as many as its call is over soonest with, as predicted."""

import pytest

from ooc_chol import FactorOptions
from tests.inside.calls import Machine
from tests.inside.dense import KEPT_PLANS, Problem, make_plan
from tests.inside.hardware import CUDA
from tests.plan.rates import H200_RATES

pytestmark = pytest.mark.plan

BUDGET = 64 << 30


@pytest.fixture(autouse=True)
def four_gpus(monkeypatch):
    monkeypatch.setattr(type(CUDA), "names", lambda self: tuple(f"cuda:{number}" for number in range(4)))
    monkeypatch.setattr(type(CUDA), "gpu_facts", lambda self, name: None)  # the rates are given
    KEPT_PLANS.clear()
    yield
    KEPT_PLANS.clear()


def planned(n, devices=None, rates=H200_RATES, **problem):
    options = FactorOptions(devices=devices, memory_budget=BUDGET, tile_size=2048)
    return make_plan(Problem(n, 0, "function", **problem), options, lambda grid: rates, Machine(devices, BUDGET))


def test_a_small_matrix_takes_one_a_large_one_all():
    counts = [len(planned(n).devices) for n in (8192, 16384, 32768, 65536)]
    assert counts[0] == 1 and counts[-1] == 4
    assert counts == sorted(counts)


@pytest.mark.parametrize("n", [8192, 16384, 32768])
def test_none_that_is_offered_is_predicted_to_be_faster(n):
    chosen, both = planned(n), planned(n, devices=["cuda:0", "cuda:1"])
    assert len(both.devices) == 2
    assert chosen.seconds + 0.02 * len(chosen.devices) <= both.seconds + 0.02 * 2


def test_those_that_are_named_are_taken():
    named = planned(8192, devices=["cuda:0", "cuda:1", "cuda:2", "cuda:3"])
    assert len(named.devices) == 4
    assert len(planned(8192).devices) == 1  # the other plan that is kept


def test_a_matrix_on_a_gpu_is_factored_there():
    assert planned(8192, home="cuda:2").devices == ("cuda:2",)


def test_without_rates_all_are_taken():
    assert len(planned(8192, rates=None).devices) == 4
