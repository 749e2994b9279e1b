"""Products on GPUs: streamed and in core, from memory and from a file, on one and on two, beside the host's."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import block_csr
from tests.sparse_matrices import many_chunks, product_bound

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def a():
    return many_chunks()


@pytest.fixture(scope="module")
def packed(a):
    with block_csr(a, block_bytes="512 KiB") as found:
        yield found


def least_budget(matrix, columns, precision):
    """Bytes of the smallest budget that does."""
    with pytest.raises(oc.BudgetError) as told:
        oc.plan_multiply(matrix, columns, precision=precision, devices="cuda:0", memory_budget=1)
    return told.value.needed_bytes


@pytest.mark.parametrize(("precision", "columns"), [("DDD", 13), ("FDF", 1), ("FDF", 8), ("FFF", 3)])
def test_products_are_within_the_bound(a, packed, precision, columns):
    precision = oc.Precision(precision)
    x = np.random.default_rng(columns).standard_normal((packed.shape[1], columns)).astype(precision.storage)
    y = oc.multiply(packed, x, precision=precision, devices="cuda:0")
    assert (np.abs(y - a @ x.astype(np.float64)) <= product_bound(a, x, precision)).all()


@pytest.mark.parametrize("columns", [1, 8, 20])
def test_bits_and_bytes_from_three_blocks_to_all(packed, columns):
    x = np.random.default_rng(2).standard_normal((packed.shape[1], columns))
    wanted = oc.multiply(packed, x, devices="cuda:0")
    least = least_budget(packed, columns, "DDD")
    for budget in (least, least + 2_000_000, least + 5_000_000, 1 << 30):
        with oc.multiplier(packed, columns, devices="cuda:0", memory_budget=budget) as m:
            assert m.plan.peak_bytes <= budget
            for _ in range(3):
                assert (m(x) == wanted).all()
            assert m.report.bytes.executed == m.report.bytes.planned


def test_a_file_gives_the_bits_of_memory(packed, tmp_path):
    x = np.random.default_rng(3).standard_normal((packed.shape[1], 4))
    wanted = oc.multiply(packed, x, devices="cuda:0")
    with block_csr(packed, store=tmp_path / "a.oocsr", block_bytes="1 MiB") as stored:
        least = least_budget(stored, 4, "DDD")
        for budget in (least, 1 << 30):
            assert (oc.multiply(stored, x, devices="cuda:0", memory_budget=budget) == wanted).all()


def test_powers_of_a_laplacian_stay_on_the_device(a, packed):
    operator = oc.laplacian(block_csr(abs(a)), normalized=True)
    x = np.random.default_rng(4).standard_normal((packed.shape[1], 4))
    with oc.multiplier(operator, 4, devices="cuda:0") as m:
        once_more = m(m(x))
        assert (m.apply(x, times=2) == once_more).all()
    on_host = oc.multiply(operator, oc.multiply(operator, x, devices="host:0"), devices="host:0")
    assert np.allclose(once_more, on_host, rtol=1e-12, atol=1e-12)
    operator.matrix.close()


def test_a_trace_of_a_streamed_product(packed):
    x = np.ones((packed.shape[1], 8), np.float32)
    least = least_budget(packed, 8, "FDF")
    with oc.multiplier(packed, 8, precision="FDF", devices="cuda:0", memory_budget=least, trace=True) as m:
        m.apply(x, times=3)
        summary = m.trace.summary()
    assert "memory->cuda:0" in summary


@pytest.mark.multigpu
@pytest.mark.parametrize("columns", [1, 8])
def test_two_gpus_give_the_bits_of_one(packed, columns):
    x = np.random.default_rng(5).standard_normal((packed.shape[1], columns))
    with oc.multiplier(packed, columns, devices="cuda:0") as m:
        wanted, power = m(x), m.apply(x, times=5)
    with pytest.raises(oc.BudgetError) as told:
        oc.plan_multiply(packed, columns, devices=["cuda:0", "cuda:1"], memory_budget=1)
    for budget in (told.value.needed_bytes, 1 << 30):
        with oc.multiplier(packed, columns, devices=["cuda:0", "cuda:1"], memory_budget=budget) as m:
            assert (m(x) == wanted).all()
            assert (m.apply(x, times=5) == power).all()
            assert m.report.bytes.executed == m.report.bytes.planned


def test_captured_products_follow_what_lies_in_the_vectors(packed):
    """Blocks that are kept are multiplied by graphs from the second scan on; these must read the X of each call."""
    with oc.multiplier(packed, 8, devices="cuda:0") as m:
        for seed, columns in ((1, 8), (2, 8), (3, 1), (4, 1), (5, 8), (6, 1)):
            x = np.random.default_rng(seed).standard_normal((packed.shape[1], columns))
            assert (m(x) == oc.multiply(packed, x, devices="cuda:0")).all()


def test_rates_of_passes_are_measured_and_predict(packed, tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    (rates,) = oc.rates.measure_pass_rates("cuda:0", quick=True).values()
    assert 1e9 < rates.link < 1e12
    assert rates.launch < 1e-3
    assert oc.plan_multiply(packed, 1, devices="cuda:0").seconds > 0
