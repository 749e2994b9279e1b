"""What the benchmarks measure on GPUs, at small orders: every part runs, and its figures are of the right size."""

from __future__ import annotations

import json
import threading

import pytest

from tests.inside.bench import MG_BLOCKS, CovarianceProblem, Fp64Case, Peer, Session, measure_peer, run_case
from tests.plan.result_fields import ENGINE_FIELDS, FIELDS, GPU_FIELDS
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.cuda

#: More than any GPU of today has, in TFLOP/s and GB/s: a figure above it has the wrong unit.
TOO_MUCH = 10_000


def test_a_native_case_has_every_field(tmp_path):
    case = Fp64Case("small", 16384, 1024, "512 MiB", repeats=1, peers=(Peer("cusolver", 4096),), dgemm_seconds=0.1)
    result = run_case(case, Session(tmp_path, measures_rates=False), tmp_path / "small.pftrace")
    assert json.loads((tmp_path / "small.json").read_text(encoding="utf-8")) == result
    assert FIELDS | GPU_FIELDS | ENGINE_FIELDS["native"] <= set(result)
    assert result["out_of_core"] and result["bytes"]["planned"] == result["bytes"]["executed"]
    assert result["residual"]["max_scaled_over_sqrt_n"] <= FACTOR_ENTRY_C
    assert result["joules"][0] > 0 and result["device_bytes"][0] > 0
    assert 0 < result["peers"][0]["tflops"] < TOO_MUCH


def test_products_and_dgemm_have_rates():
    import numpy as np

    from tests.inside.bench import product_rates

    tile = np.random.default_rng(0).standard_normal((1024, 1024))
    assert 0 < product_rates.dgemm_tflops(tile, tile, 0.1, ["cuda:0"])[0] < TOO_MUCH
    assert 0 < product_rates.product_tflops(1024, 2048, 13, seconds=0.1, devices=["cuda:0"])[0] < TOO_MUCH


def test_an_error_on_one_device_is_raised_and_nobody_waits():
    from tests.inside.bench import devices

    turns = iter([True, False])

    def body(barrier: threading.Barrier) -> float:
        if next(turns):
            raise ZeroDivisionError
        barrier.wait()
        return 1.0

    with pytest.raises(ZeroDivisionError):
        devices.at_once(["cuda:0", "cuda:0"], body)


def test_links_of_one_device():
    from tests.inside.bench import measure_links

    found = measure_links(["cuda:0"])
    assert [link["what"] for link in found] == ["in", "out", "in and out"]
    for link in found:
        assert link["devices"] == ["cuda:0"]
        assert all(1 < rate < TOO_MUCH for rate in link["gigabytes_per_second"].values())


def test_a_peer_that_is_there_or_says_why_not():
    for name in ("torch", "magma"):
        found = measure_peer(Peer(name, 4096), CovarianceProblem(4096), ["cuda:0"])
        assert ("tflops" in found) != ("error" in found)


@pytest.mark.cuda(n=2)
@pytest.mark.alone
def test_cusolver_mg_factors_an_order_that_its_blocks_do_not_divide():
    found = measure_peer(Peer("cusolvermg", 9000), CovarianceProblem(9000), ["cuda:0", "cuda:1"])
    assert "error" not in found, found
    assert set(found["seconds_by_block"]) == {str(block) for block in MG_BLOCKS} and 0 < found["tflops"] < TOO_MUCH


@pytest.mark.cuda(n=2)
def test_links_of_two_devices_include_both_directions_between_them():
    from tests.inside.bench import measure_links

    found = measure_links(["cuda:0", "cuda:1"])
    assert [link["what"] for link in found][-3:] == ["peer", "peer", "peer all"]
    assert set(found[-1]["gigabytes_per_second"]) == {"cuda:0->cuda:1", "cuda:1->cuda:0"}
    assert [link["devices"] for link in found[:9]].count(["cuda:0", "cuda:1"]) == 3
