"""Checkpoints of imputations: runs that were ended anyhow are gone on from to the same bits; other problems are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.impute_kills import PLACES, ROUTES, digest, solved
from tests.tensor_runs import problem, random_graph

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("step", [1, pytest.param(3, marks=pytest.mark.commit)])
def test_a_run_that_is_killed_anywhere_is_gone_on_from_to_the_same_bits(step, tmp_path):
    """At every place, and at every third one."""
    right = {svt: digest(solved(None, svt)) for svt in ROUTES}
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.host.impute_kills", str(tmp_path), str(step)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(PLACES[::step]) * len(ROUTES) and len(PLACES) == 13
    for each in found:
        assert each["status"] == -signal.SIGKILL, each
        assert each["bits"] == right[each["svt"]], each
        assert (each["resumed"] > 0) == each["was_there"], each
        assert each["left"] == [f"{each['svt']}-{each['what']}{each['number']}.oocimp"], each
        if each["what"] == "lambda":
            assert each["resumed"] == each["number"], each
    assert right["gram64"] != right["subspace"]


def test_a_complete_checkpoint_gives_the_result_without_a_step(tmp_path):
    path = tmp_path / "c.oocimp"
    first = solved(path)
    told = []
    again = solved(path, progress=lambda *figures: told.append(figures))
    assert not told and digest(again) == digest(first)
    assert first.report.checkpoints == 9 and again.report.resumed == 9 and not again.report.checkpoints
    assert "went on from one after 9 values of lambda" in str(again.report)
    assert dict(first.report.key) == dict(again.report.key)


def test_masks_by_entry_and_warm_starts_are_gone_on_from(tmp_path):
    given = problem(30, 10, 1, 0.7, by="entry")
    begun = oc.impute(given.x, given.mask, given.fourier, n_lambdas=3)

    def run(path, **options):
        return oc.impute(given.x, given.mask, given.fourier, n_lambdas=6, start=begun, momentum=0.3, checkpoint=path, **options)

    expected, counted = digest(run(None)), []
    run(tmp_path / "c", callback=lambda row, _: len(counted.append(row) or counted) == 2)
    resumed = run(tmp_path / "c")
    assert resumed.report.resumed == 2 and digest(resumed) == expected


@pytest.mark.parametrize("svt", ROUTES)
def test_a_run_is_gone_on_from_on_other_devices_with_another_budget(tmp_path, svt):
    expected, counted, path = digest(solved(None, svt, devices="host:0")), [], tmp_path / "c.oocimp"
    peak = oc.plan_impute((40, 20, 20), None, None, svt=svt, devices="host:0", memory_budget="1 GiB").peak_bytes
    places = [{"devices": "host:0"}, {"devices": ["host:0", "host:1"], "memory_budget": peak}, {"devices": "host:0"}]
    for number, place in enumerate(places, 1):
        counted.clear()
        result = solved(path, svt, **place, callback=lambda *_: len(counted.append(1) or counted) == 2)
        assert result.report.resumed == 2 * (number - 1)
    assert digest(solved(path, svt, devices="host:0", memory_budget=peak)) == expected


def other(**changes):
    """The call of ``solved``, changed."""
    given = problem(40, 20, 2, 0.7)
    call = {"X": given.x, "mask": given.mask, "graph": given.fourier, "svt": "gram64", "n_lambdas": 9} | changes
    return lambda path: oc.impute(call["X"], call["mask"], call["graph"], checkpoint=path, **{k: call[k] for k in list(call)[3:]})


def test_a_checkpoint_of_another_problem_is_refused_and_stays(tmp_path):
    path, given = tmp_path / "c.oocimp", problem(40, 20, 2, 0.7)
    solved(path)
    saved = path.read_bytes()
    moved, mask = given.x.copy(), given.mask.copy()
    moved[np.flatnonzero(mask)[0], 0, 0] += 1
    mask[np.flatnonzero(~mask)[0]] = True
    cases = {
        "tensor: observed": other(X=moved),
        "mask: checksum": other(mask=mask),
        "graph: checksum": other(graph=oc.GraphFourier(random_graph(40, seed=9))),
        "schedule: decay": other(decay=0.4),
        "schedule: momentum": other(momentum=0.1),
        "schedule: shrinkage": other(shrinkage="soft"),
        "first_lambda": other(first_lambda=3.0),
        "svt": other(svt="svd"),
        "precision": other(precision="FFF"),
        "start": other(start=np.ones_like(given.x), first_lambda=3.0),
    }
    for name, run in cases.items():
        with pytest.raises(oc.errors.CheckpointError, match="start afresh with another name") as told:
            run(path)
        assert name in told.value.differences
    changed = given.x.copy()
    changed[~given.mask] = np.nan  # what is missing does not count
    assert other(X=changed)(path).report.resumed == 9
    assert path.read_bytes() == saved


def test_damage_is_found_wherever_it_is(tmp_path):
    path = tmp_path / "c.oocimp"
    solved(path)
    saved = path.read_bytes()
    for at in np.linspace(9, len(saved) - 1, 12).astype(int):
        changed = bytearray(saved)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(oc.errors.DamagedFileError, match="remove it and begin anew"):
            solved(path)
    path.write_bytes(saved[:-100])
    with pytest.raises(oc.errors.DamagedFileError):
        solved(path)


def test_a_file_of_another_kind_is_not_replaced(tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(oc.errors.OutputError, match="notes"):
        solved(path)
    assert path.read_text() == "mine"
