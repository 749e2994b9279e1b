"""Matrices that are one tile: factored at once, the same bits as through the executor, and told of when asked."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES, check_factor
from tests.inside.calls import Machine
from tests.inside.dense import request as requests
from tests.inside.hardware import CudaKind
from tests.inside.kernels import SCANNED_ROWS
from tests.inside.memory import as_source
from tests.products import thorough
from tests.python_calls import calls_of


@pytest.mark.parametrize("n", [1, 2, 17, 256, 1024, 1025, *thorough(512, 1300)])
def test_the_bits_are_those_of_a_run_of_one_tile(n):
    a = FAMILIES["matern15 nugget 1e-6"](n)
    direct, executed = oc.cholesky(a), oc.cholesky(a, tile_size=n, devices="host:0")
    assert direct.tile_size == n and np.array_equal(np.asarray(direct), np.asarray(executed))
    assert direct.arithmetic_key == executed.arithmetic_key
    check_factor(direct, a)
    assert np.array_equal(np.triu(np.asarray(direct), 1), np.zeros((n, n)))


@pytest.mark.parametrize("as_given", [np.asfortranarray, lambda a: a[::-1, ::-1], lambda a: a.astype(np.longdouble)])
def test_a_team_reads_every_layout_as_one_thread_does(as_given, tmp_path):
    a = as_given(FAMILIES["exponential"](1100))
    np.save(path := tmp_path / "a.npy", a)
    expected = np.asarray(oc.cholesky(np.ascontiguousarray(a, np.float64), tile_size=1100))
    for source in (a, path, a.astype(object)):
        assert np.array_equal(np.asarray(oc.cholesky(source)), expected)


#: Most calls of functions that a small call takes: seen 414.
CALLS = 450


def test_a_small_call_is_few_calls_of_functions():
    a = FAMILIES["exponential"](64)
    oc.cholesky(a, devices="host:0")
    _, calls = calls_of(lambda: oc.cholesky(a, devices="host:0"))
    assert calls < CALLS


def device_of(a, **options):
    """The device on which ``a`` is one tile, and whether L stays there."""
    asked = oc.FactorOptions(**options)
    request = requests.Request(a, as_source(a), asked, Machine(asked.devices, asked.memory_budget, must_exist=False))
    return request.whole_device, request.problem.keeps_on_device


def test_what_small_calls_share_goes_by_options_and_devices(monkeypatch):
    a = FAMILIES["exponential"](300)
    for _ in range(2):
        assert device_of(a) == ("host:0", False) != device_of(a, devices="host:1")
        assert device_of(a, devices=2) == device_of(a, tile_size=100) == device_of(a, host_budget="0.4 MB") == (None, False)
        assert device_of(a, devices="cuda:1") == ("cuda:1", True) != device_of(a, devices="cuda:1", memory_budget="200 MB")
    monkeypatch.setattr(CudaKind, "names", lambda self: ("cuda:0",))
    assert device_of(a) == ("cuda:0", True) and device_of(a[:200, :200]) == ("host:0", False)


def test_report_plan_and_trace_are_those_of_any_run():
    a = FAMILIES["exponential"](300)
    seen = []
    with oc.cholesky(a, trace=True, progress=lambda *told: seen.append(told)) as factor:
        report = factor.report
        assert report is factor.report and report.plan.to_dict() == oc.plan(a).to_dict()
        assert [record.kind for record in factor.trace.records] == ["fetch", "compute", "write"]
        assert 0 < report.inside_seconds < 60 and report.seconds.parts["setup"] >= 0
        assert seen[-1][0] == seen[-1][1] == report.plan.flops
        assert report.bytes.executed == report.bytes.planned
        factor.solve(np.ones(300))
        assert report.passes.totals["solve"].calls == 1 and "1 x 1 tiles of 300" in str(report.plan)


@pytest.mark.parametrize(
    ("options", "is_whole"),
    [
        ({}, True),
        ({"devices": "host:0"}, True),
        ({"devices": ["host:0", "host:1"]}, False),
        ({"tile_size": 100}, False),
        ({"memory_budget": "100 kB"}, False),
        ({"memory_budget": "10 MB"}, True),
        ({"host_budget": "0.4 MB"}, False),
        ({"policy": "v3"}, False),
        ({"fp64": "residue"}, False),
        ({"fp64": "native"}, True),
        ({"precision_threshold": 1e-6}, False),
    ],
)
def test_options_that_ask_for_tiles_get_them(options, is_whole):
    a = FAMILIES["exponential"](240)
    factor = oc.cholesky(a, **options)
    assert (factor.grid.nt == 1) == is_whole == (oc.plan(a, **options).grid.nt == 1)


def test_what_is_made_or_read_is_whole_up_to_a_smaller_order(tmp_path):
    assert oc.plan(8192).grid.nt == 1 and oc.plan(8193).grid.nt > 1
    source = oc.from_function(2049, lambda rows, cols, out, stream: None)
    assert oc.plan(source).grid.nt > 1 and oc.plan(oc.from_function(2048, lambda *_: None)).grid.nt == 1
    assert oc.plan(3000, store=tmp_path / "l.ooc").grid.nt > 1, "a file is written tile by tile"


def test_a_plan_of_one_tile_is_taken_again():
    a = FAMILIES["exponential"](240)
    plan = oc.plan(a)
    factor = oc.cholesky(a, plan=plan)
    assert factor.report.plan is plan and np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(a)))


@pytest.mark.parametrize("place", [(0, 0), (30, 7), (SCANNED_ROWS, 0), (239, 239), (239, 0)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_named(place, value):
    a = FAMILIES["exponential"](240)
    a[place] = value
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        oc.cholesky(a)
    assert (caught.value.row, caught.value.col) == place


@pytest.mark.parametrize("n", [60, 700])
def test_the_first_minor_that_fails_is_told(n):
    for row in (0, 1, 41, n - 1):
        a = FAMILIES["exponential"](n)
        a[row, row] = -1.0
        with pytest.raises(oc.NotPositiveDefiniteError) as caught:
            oc.cholesky(a)
        assert caught.value.minor == row + 1 and isinstance(caught.value, np.linalg.LinAlgError)


def test_memory_that_was_lent_is_used_and_given_back():
    a = FAMILIES["exponential"](300)
    with oc.HostMemory() as memory:
        for scale in (1.0, 4.0):
            with oc.cholesky(scale * a, store=memory) as factor:
                assert memory.nbytes >= 8 * 300**2 and np.allclose(np.asarray(factor), np.sqrt(scale) * np.linalg.cholesky(a))
        bad = a.copy()
        bad[5, 5] = -1.0
        with pytest.raises(oc.NotPositiveDefiniteError):
            oc.cholesky(bad, store=memory)
        oc.cholesky(a, store=memory).close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_an_error_of_the_tile_function_leaves_the_memory_free(error):
    a = FAMILIES["exponential"](300)

    def fail(rows, cols, out, stream):
        raise error("in the user's code")

    with oc.HostMemory() as memory:
        with pytest.raises((error, oc.BudgetError)):
            oc.cholesky(oc.from_function(300, fail), store=memory)
        with oc.cholesky(a, store=memory) as factor:
            assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(a)))


def test_a_tile_function_that_fills_nothing_is_found_out():
    with pytest.raises(oc.errors.NonFiniteError):
        oc.cholesky(oc.from_function(300, lambda rows, cols, out, stream: None))


def test_an_l_on_the_device_is_refused_by_the_host():
    for call in (oc.cholesky, oc.plan):
        with pytest.raises(ValueError, match="store='device' keeps L on GPUs, but host:0"):
            call(np.eye(3), store="device")


@pytest.mark.parametrize("options", [{}, {"tile_size": 16}, {"precision_threshold": 1e-4, "tile_size": 16}], ids=str)
def test_an_l_in_host_memory_is_what_the_host_makes_anyway(options, tmp_path, monkeypatch):
    a = FAMILIES["exponential"](60)
    monkeypatch.chdir(tmp_path)
    with oc.cholesky(a, store="host", **options) as factor, oc.cholesky(a, **options) as other:
        assert "memory" in repr(factor) and np.array_equal(np.asarray(factor), np.asarray(other))
        with factor.update(np.ones(60), store="host") as updated, factor.update(np.ones(60)) as beside:
            assert np.array_equal(np.asarray(updated), np.asarray(beside))
        with oc.cholesky(a, store="./host", **options) as filed:
            assert np.array_equal(np.asarray(filed), np.asarray(other))
    assert [path.name for path in tmp_path.iterdir()] == ["host"], "a file of that name has a folder"


def test_an_l_in_host_memory_is_nowhere_else():
    for refused in ({"overwrite": True}, {"checkpoint": True}, {"checkpoint": "l.ooc"}):
        with pytest.raises(ValueError, match="store"):
            oc.cholesky(np.eye(3), store="host", **refused)


def test_a_plan_of_one_tile_keeps_to_the_host_budget():
    a = FAMILIES["exponential"](240)
    with pytest.raises(oc.BudgetError, match="give a larger host_budget"):
        oc.cholesky(a, plan=oc.plan(a), host_budget="0.4 MB")


def test_a_factor_of_the_host_is_handed_over_by_dlpack():
    a = FAMILIES["exponential"](100)
    with oc.cholesky(a) as factor:
        assert np.array_equal(np.from_dlpack(factor), np.asarray(factor))
        assert not hasattr(factor, "__cuda_array_interface__")
