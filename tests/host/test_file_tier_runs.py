"""Runs whose L goes to a file: files see the bytes that were planned, whatever host memory keeps, and the factor is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.rates import measure_rates
from tests.host.escalation_cases import CASES as ESCALATIONS
from tests.host.matrices import upper_poisoned
from tests.inside.dense import (
    DISKS,
    ROW_TILES,
    DiskRates,
    disk_figures,
    disk_rates,
    disk_rates_of,
    file_system_of,
    measure_folder,
    rate_by_rows,
    rates_problem,
)
from tests.inside.hardware import rates_path
from tests.inside.tasks import FileLink

pytestmark = pytest.mark.host

N, NB = 330, 32
TILE = 8 * NB * NB
#: Engines and devices, each with memory for about a fifth of L.
RUNS = {
    "native": {"memory_budget": 16 * TILE, "fp64": "native"},
    "two devices": {"memory_budget": 12 * TILE, "devices": ["host:0", "host:1"], "fp64": "native"},
    "residue": {"memory_budget": "900 kB", "fp64": "residue", "moduli": 8},
    "mixed": {"memory_budget": 16 * TILE, "precision_threshold": 1e-4, "fp64": "native"},
    "mixed residue": {"memory_budget": "900 kB", "precision_threshold": 1e-4, "fp64": "residue"},
    "sync": {"memory_budget": 16 * TILE, "policy": "sync"},
    "v2": {"memory_budget": 16 * TILE, "policy": "v2"},
    "float32": {"memory_budget": 16 * TILE, "dtype": "float32"},
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """An empty folder of rates."""
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))


@cache
def matrix() -> np.ndarray:
    """A covariance matrix; its upper triangle is poisoned."""
    places = np.arange(N)[:, None]
    return upper_poisoned(np.exp(-np.abs(places - places.T) / 20.0) + 0.1 * np.eye(N))


@cache
def in_memory(name: str) -> np.ndarray:
    """L of a run that keeps it in memory."""
    return np.asarray(oc.cholesky(matrix(), lower=True, tile_size=NB, **{"devices": "host:0"} | RUNS[name]))


@pytest.mark.parametrize("host_budget", [None, 12 * TILE, 30 * TILE, "8 MB"])
@pytest.mark.parametrize("name", RUNS)
def test_files_see_the_planned_bytes_and_the_factor_is_the_same(tmp_path, name, host_budget):
    np.save(tmp_path / "a.npy", matrix())
    options = {"tile_size": NB, "devices": "host:0", "host_budget": host_budget, **RUNS[name]}
    with oc.cholesky(tmp_path / "a.npy", lower=True, store=tmp_path / "L.ooc", **options) as factor:
        report, plan = factor.report, factor.report.plan
        assert np.array_equal(np.asarray(factor), in_memory(name))
    assert report.file_bytes.executed == report.file_bytes.planned
    assert report.bytes.executed == report.bytes.planned
    assert report.to_dict()["file_bytes"]["executed"] == report.file_bytes.executed
    assert plan.in_file and plan.host_bytes <= max(plan.host_budget_bytes, plan.staging_bytes)
    assert report.file_bytes.executed["source"] == report.bytes.executed["source"] > 0
    assert report.file_bytes.executed["write"] == report.bytes.executed["write"]
    if host_budget is None or name == "sync":
        assert report.file_bytes.executed["read"] == report.bytes.executed["fetch"]
    if host_budget == "8 MB" and name != "sync":
        assert report.file_bytes.executed["read"] == 0 and (report.bytes.executed["fetch"] == 0 or plan.host_tiles)


def test_host_memory_is_used_in_these_runs(tmp_path):
    read = {}
    for host_budget in (None, 12 * TILE, "8 MB"):
        options = {"tile_size": NB, "devices": "host:0", "host_budget": host_budget, **RUNS["native"]}
        with oc.cholesky(matrix(), lower=True, store=tmp_path / "L.ooc", **options) as factor:
            read[host_budget] = factor.report.file_bytes.executed["read"]
    assert read[None] > read[12 * TILE] > read["8 MB"] == 0


@pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning")  # of pivots that are near to failing
@pytest.mark.parametrize("name", ["in a panel", "two rows", "fp64"])
@pytest.mark.usefixtures("long")
def test_what_is_computed_again_moves_what_is_planned(tmp_path, name):
    case = ESCALATIONS[name]
    with case.factor(store=tmp_path / "L.ooc", host_budget="60 kB") as factor:
        report = factor.report
        assert report.escalations and report.plan.host_tiles
        assert report.file_bytes.executed == report.file_bytes.planned
        assert np.array_equal(np.asarray(factor), np.asarray(case.factor()))


@pytest.mark.parametrize("in_file", [True, False])
def test_a_plan_serves_an_l_that_goes_elsewhere(tmp_path, in_file):
    options = {"tile_size": NB, "devices": "host:0", **RUNS["native"]}
    elsewhere = {"store": tmp_path / "L.ooc", "host_budget": "8 MB"}
    plan = oc.plan(matrix(), lower=True, **options, **({} if in_file else elsewhere))
    with oc.cholesky(matrix(), lower=True, plan=plan, **({"store": tmp_path / "L.ooc"} if in_file else {})) as factor:
        assert factor.report.plan.in_file == in_file
        assert factor.report.file_bytes.executed == factor.report.file_bytes.planned
        assert np.array_equal(np.asarray(factor), in_memory("native"))


def test_a_plan_of_tiers_decides_on_host_memory(tmp_path):
    options = {"tile_size": NB, "devices": "host:0", **RUNS["native"]}
    plan = oc.plan(matrix(), lower=True, store=tmp_path / "L.ooc", host_budget=12 * TILE, **options)
    with oc.cholesky(matrix(), lower=True, plan=plan, store=tmp_path / "L.ooc") as factor:
        assert factor.report.plan is plan and factor.report.file_bytes.executed == factor.report.file_bytes.planned
    with pytest.raises(ValueError, match="host_budget"):
        oc.cholesky(matrix(), lower=True, plan=plan, store=tmp_path / "L.ooc", host_budget="8 MB")


def test_traces_and_reports_tell_files_from_memory(tmp_path):
    options = {"tile_size": NB, "devices": "host:0", "host_budget": 12 * TILE, **RUNS["native"]}
    with oc.cholesky(matrix(), lower=True, store=tmp_path / "L.ooc", trace=True, **options) as factor:
        report, records = factor.report, factor.trace.records
    moved = {link: sum(record.nbytes for record in records if record.link == link) for link in {one.link for one in records}}
    read, fetched = report.file_bytes.planned["read"], report.bytes.planned["fetch"]
    assert moved["file->host:0"] == read > 0 and moved["memory->host:0"] == fetched - read > 0
    assert moved["host:0->file"] + moved["host:0->memory"] == report.bytes.planned["write"]
    page = str(report)
    assert "L read " in page and "are kept in host memory" in page and "host_budget 98.3 kB" in page


# rates of folders


@pytest.mark.usefixtures("long")
def test_a_folder_is_measured_for_all_stores_on_its_disk(tmp_path):
    assert disk_rates(tmp_path / "L.ooc") is None and rates_problem() is None
    found = measure_folder(tmp_path, 64, quick=True)
    assert found.read > 0 < found.write and found.tile_bytes == 8 * 64 * 64 and found.nbytes % found.tile_bytes == 0
    assert [path.name for path in tmp_path.iterdir()] == ["cache"], "nothing is left in the folder"
    stored = disk_rates(tmp_path / "elsewhere" / "L.ooc")
    assert stored == DiskRates(found.read, found.write, folder=str(tmp_path), together=found.together)
    assert rates_problem() is None
    measure_rates(NB, quick=True)  # beside rates of devices
    assert disk_rates(tmp_path) == stored


@pytest.mark.usefixtures("long")
def test_a_plan_predicts_by_the_disk_where_the_cache_has_no_part(tmp_path):
    measure_rates(NB, quick=True)
    measure_folder(tmp_path, 64, quick=True)
    options = {"tile_size": NB, "devices": "host:0", "store": tmp_path / "L.ooc", "lower": True, **RUNS["native"]}
    bounded, cached = oc.plan(matrix(), host_budget=12 * TILE, **options), oc.plan(matrix(), **options)
    assert bounded.rates.disk == disk_rates(tmp_path) and cached.rates.disk is None
    assert f"measured in {tmp_path}" in str(bounded) and "not measured" in str(cached)
    assert bounded.seconds >= bounded.file_bytes(FileLink.READ) / bounded.rates.disk.read > 0
    np.save(tmp_path / "a.npy", matrix())
    from_file = oc.plan(tmp_path / "a.npy", host_budget=12 * TILE, **options)
    assert from_file.rates.disk == disk_rates_of(tmp_path / "L.ooc", [str(tmp_path / "a.npy")], row_bytes=8 * NB)
    of_a = from_file.rates.disk
    assert of_a.is_one and of_a.row_bytes == 8 * NB and of_a.source == rate_by_rows(rows_known(tmp_path), 8 * NB, of_a.read)
    assert f"; A {of_a.source / 1e9:.3g} GB/s by rows of {8 * NB} B" in str(from_file)
    assert oc.plan(matrix(), **{**options, "store": None}).rates.disk is None


def rows_known(folder):
    """What is stored of reading A by rows."""
    return disk_figures(file_system_of(folder))["rows"]


def change_rates(folder, change):
    """Change what is stored of a folder's file system."""
    everything = json.loads(rates_path().read_text())
    change(everything[DISKS][file_system_of(folder)])
    rates_path().write_text(json.dumps(everything))


def test_tiles_of_a_are_measured_by_rows(tmp_path):
    found = measure_folder(tmp_path, 64, quick=True)
    assert found.rows and [piece for piece, _ in found.rows] == [8 * order for order in ROW_TILES[: len(found.rows)]]
    assert rows_known(tmp_path) == found.rows and "by rows of 4 KiB" in str(found)


@pytest.mark.usefixtures("long")
def test_slow_rows_make_a_prediction_longer_by_their_own_rate(tmp_path):
    measure_rates(NB, quick=True)
    measure_folder(tmp_path, 64, quick=True)
    np.save(tmp_path / "a.npy", matrix().astype(np.float32))
    options = {"tile_size": NB, "devices": "host:0", "dtype": "float64", "store": tmp_path / "L.ooc", **RUNS["native"]}
    plans = []
    for share in (1.0, 1e-4):
        change_rates(tmp_path, lambda figures, share=share: figures.update(rows=[[4 * NB, share * figures["read"]]]))
        plans.append(oc.plan(tmp_path / "a.npy", host_budget=12 * TILE, **options))
    fast, slow = plans
    assert slow.rates.disk == replace(fast.rates.disk, source=slow.rates.disk.source)
    assert slow.rates.disk.source == pytest.approx(1e-4 * fast.rates.disk.source)
    assert slow.file_bytes(FileLink.SOURCE) == fast.file_bytes(FileLink.SOURCE)
    assert slow.seconds > slow.file_bytes(FileLink.SOURCE) / slow.rates.disk.source > fast.seconds


@pytest.mark.usefixtures("long")
def test_rates_of_a_disk_from_before_rows_are_read_on(tmp_path):
    measure_rates(NB, quick=True)
    measure_folder(tmp_path, 64, quick=True)
    change_rates(tmp_path, lambda figures: figures.pop("rows"))
    np.save(tmp_path / "a.npy", matrix())
    options = {"tile_size": NB, "devices": "host:0", "store": tmp_path / "L.ooc", **RUNS["native"]}
    plan = oc.plan(tmp_path / "a.npy", host_budget=12 * TILE, **options)
    disk = plan.rates.disk
    assert rates_problem() is None and disk.source == disk.read and disk.row_bytes is None and not disk.is_by_rows
    assert "that of whole tiles: by rows it was not measured" in str(plan)


def test_file_systems_have_names_of_their_own(tmp_path):
    assert file_system_of(tmp_path) == file_system_of(tmp_path / "nowhere" / "L.ooc")
    assert file_system_of("/proc") != file_system_of(tmp_path)


@pytest.mark.parametrize(
    "figures",
    [
        {"read": 0, "write": 1e9, "folder": "x"},
        {"read": 1e9},
        {"read": "fast", "write": 1, "folder": ""},
        {"read": 1e9, "write": 1e9, "together": 1, "folder": "x", "rows": [[4096, 0]]},
        {"read": 1e9, "write": 1e9, "together": 1, "folder": "x", "rows": [[4096]]},
        {"read": 1e9, "write": 1e9, "together": 1, "folder": "x", "rows": [[4096, 1e8], [4096, 1e9]]},
    ],
)
def test_damaged_rates_of_a_disk_are_ignored_and_said(tmp_path, figures):
    measure_folder(tmp_path, 64, quick=True)
    everything = json.loads(rates_path().read_text())
    everything[DISKS] = {file_system_of(tmp_path): figures}
    rates_path().write_text(json.dumps(everything))
    assert "is damaged" in rates_problem()
    with pytest.warns(oc.errors.RatesWarning, match="is damaged"):
        assert disk_rates(tmp_path / "L.ooc") is None


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(oc.errors.MissingFolderError, match="there is no folder"):
        measure_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="tile_size is 0"):
        measure_folder(tmp_path, 0)


def test_the_command_measures_a_folder(tmp_path, capsys):
    from tests.inside.cli import main

    assert main(["bench", "rates", "--folder", str(tmp_path), "--quick", "--tile-size", "64"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}: " in said and "GB/s read" in said and file_system_of(tmp_path) in said
    assert main(["bench", "rates", "--folder", str(tmp_path), "--moduli", "8"]) != 0
    assert "--folder measures a disk" in capsys.readouterr().err
