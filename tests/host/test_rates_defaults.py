"""After ``bench rates`` every default plan of the host predicts seconds, from order 10 to a million."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.cli import main
from tests.inside.dense import together
from tests.inside.precision import TYPES


@pytest.fixture(scope="module", autouse=True)
def measured(tmp_path_factory, long: None):
    """Rates as the command leaves them at the orders that it chooses, measured quickly, of float64 and one other type."""
    with pytest.MonkeyPatch.context() as patch:
        # Plans here are of float64. That every type is measured, at one order, is seen in test_rates_types.
        patch.setattr(together, "TYPES", {name: fmt for name, fmt in TYPES.items() if name in ("float64", "float32")})
        patch.setenv("OOC_CHOL_CACHE", str(tmp_path_factory.mktemp("cache")))
        assert main(["bench", "rates", "--quick", "--device", "host:0"]) == 0
        yield


ORDERS = [*(round(10 ** (each / 5)) for each in range(5, 26)), 200_000]


@pytest.mark.usefixtures("long")
def test_after_measuring_every_default_plan_predicts_seconds():
    seconds = []
    for n in ORDERS:
        plan = oc.plan(n, devices="host:0", memory_budget="16 GB")
        assert plan.seconds is not None, f"order {n}, tiles of {plan.grid.nb}"
        assert "predicted" in str(plan) and "unknown" not in str(plan)
        seconds.append(plan.seconds)
    assert all(later > 0.1 * earlier for earlier, later in pairwise(seconds))
    assert seconds[-1] > 1e6 * seconds[0]


#: Plans by the command, in limited time of a processor; says how much memory that took.
MILLION = """
import pathlib, re, resource
resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
from tests.inside.cli import cli
assert cli.main(["plan", "--n", "1000000", "--devices", "host:0", "--memory-budget", "16 GB"]) == 0
# Not ru_maxrss, which begins with that of the process that started this one.
print(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.usefixtures("processes")
def test_order_a_million_is_planned_in_seconds_and_less_than_a_gigabyte():
    ran = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *page, kibibytes = ran.stdout.splitlines()
    assert "predicted" in page[-1] and int(kibibytes) < 1_000_000


@pytest.mark.parametrize("n", [10, 100, 1000, 10_000, 100_000])
def test_so_do_plans_of_small_budgets_of_files_and_of_functions(n):
    budget = max(30_000, n * n // 2)
    assert oc.plan(n, devices="host:0", memory_budget=budget).seconds > 0
    assert oc.plan(n, devices="host:0", memory_budget=budget, store="l.ooc").seconds > 0
    source = oc.from_function(n, lambda rows, cols, out, stream: out.fill(0.0))
    assert oc.plan(source, devices="host:0", memory_budget=budget).seconds > 0


def test_reports_of_one_tile_stand_beside_a_prediction():
    with oc.cholesky(np.eye(300), devices="host:0") as factor:
        predicted, taken = factor.report.plan.seconds, factor.report.inside_seconds
    assert f"{predicted:.3g} predicted" in str(factor.report)
    assert 0.01 < predicted / taken < 100
