"""Which of cuBLASLt's kernels multiplies int8 planes: the fastest measured where it is offered, else the library's favourite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.inside.kernels import Kernel, choose, planes_in_a_call, wished

pytestmark = pytest.mark.plan

MEASURED = Path(__file__).resolve().parents[2] / "benchmarks/results/residue_rates/h200-narrow-shapes.json"


def measured(search: str) -> dict[Kernel, float]:
    """Kernels that cuBLASLt offered on an H200, in its order, and their rates."""
    lines = json.loads(MEASURED.read_text(encoding="utf-8"))["lines"]
    return {
        Kernel(line["kernel"]["tile"], line["kernel"]["cluster_shape"]): line["tflops"]
        for line in lines
        if line.get("search", "").startswith(search)
    }


@pytest.mark.parametrize(("search", "planes"), [("planes", 1), ("batch", 13)])
def test_of_the_kernels_offered_on_an_h200_the_fastest_is_chosen(search, planes):
    rates = measured(search)
    offered = list(rates)
    assert len(offered) == 8
    assert rates[offered[choose(offered, wished(planes, 2048, 32768))]] == max(rates.values())


def test_without_the_fastest_kernel_the_next_one_is_taken_and_then_the_library_s_favourite():
    rates = measured("planes")
    wishes = wished(1, 2048, 32768)
    offered = [kernel for kernel in rates if kernel != wishes[0]][::-1]
    assert rates[offered[choose(offered, wishes)]] == sorted(rates.values())[-2]
    others = [Kernel(18, 0), Kernel(20, 0), Kernel(23, 0)]  # as a GPU without clusters offers
    assert choose(others, wishes) == 0
    assert choose(others, wished(13, 2048, 8192)) == 2
    assert choose(others, wished(13, 2048, 4096)) == 1
    assert choose(others, wished(13, 2048, 2048)) == 0


def test_few_rows_are_left_to_the_library():
    assert wished(1, 512, 32768) == wished(13, 512, 8192) == ()


def test_planes_are_multiplied_one_by_one_where_columns_are_many_and_k_is_long():
    assert planes_in_a_call(13, 8192, 16384) == 1
    assert planes_in_a_call(13, 8176, 32768) == planes_in_a_call(13, 8192, 16368) == 13
