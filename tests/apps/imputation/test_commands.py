"""``ooc-chol impute``: files in and out, masks, checkpoints, cross-validation, plans, traces, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.imputation import read_tensor, relative_error
from tests.apps.imputation.tensors_made import N, edges, fourier, tensor
from tests.inside.cli import main

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

MASK = oc.testing.random_mask((N, 12, 12), 0.8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A tensor with gaps, the same whole, and the graph."""
    monkeypatch.chdir(tmp_path)
    np.save("whole.npy", tensor())
    np.save("gaps.npy", np.where(MASK[:, None, None], tensor(), np.nan).astype(np.float32))
    np.savetxt("mask.txt", MASK, fmt="%d")
    edges("graph.txt")
    return tmp_path


def told(capsys, *words):
    """The answer of a command that ends well."""
    assert main(["impute", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    """What a command says that a user can mend."""
    assert main(["impute", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_gaps_are_filled(folder, capsys):
    answer = told(capsys, "fit", "gaps.npy", "--graph", "graph.txt", "--output", "out.npz", "--picture", "out.png")
    found = read_tensor("out.npz")
    assert relative_error(found.tensor, tensor(), ~MASK) < 0.05 and np.array_equal(found.mask, MASK)
    assert np.array_equal(found.tensor, oc.impute(tensor(), MASK, fourier(), devices="host:0").tensor)
    assert answer["observed"] == 0.8 and answer["output"] == "out.npz" and len(answer["history"]) > 10
    assert (folder / "out.png").read_bytes().startswith(b"\x89PNG")
    with np.load("out.npz") as content:
        assert np.array_equal(content["lam"], [row["lam"] for row in answer["history"]])


def test_a_mask_of_a_file_and_options_of_the_schedule(folder, capsys):
    words = ("fit", "whole.npy", "--graph", "graph.txt", "--mask", "mask.txt", "--n-lambdas", 4, "--decay", 0.3)
    words += ("--svt", "svd", "--held-out", 0)
    answer = told(capsys, *words, "--output", "out.nc", "--precision", "DDD", "--n-components", 40, "--unnormalized")
    assert len(answer["history"]) == 4 and answer["svt"] == "svd" and answer["precision"] == "DDD"
    assert answer["shape"]["components"] == 40
    assert answer["history"][1]["lam"] == pytest.approx(0.3 * answer["history"][0]["lam"])
    assert np.allclose(read_tensor("out.nc", variable="tensor").tensor[MASK], tensor()[MASK])


def test_a_budget_gives_the_same_bits_and_a_trace(folder, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt", "--n-lambdas", 3, "--svt", "gram64")
    told(capsys, *words, "--output", "a.npy")
    answer = told(
        capsys, *words, "--output", "b.npy", "--devices", "host:0,host:1", "--memory-budget", "400 KiB", "--trace", "run.pftrace"
    )
    assert np.array_equal(np.load("a.npy"), np.load("b.npy"))
    assert answer["bytes"]["planned"] == answer["bytes"]["executed"] and answer["devices"] == ["host:0", "host:1"]
    assert answer["trace"] == "run.pftrace" and oc.Trace.load("run.pftrace").summary()


def test_a_plan_runs_nothing(folder, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt", "--devices", "host:0", "--memory-budget", "400 KiB", "--plan")
    assert told(capsys, *words)["plan"]
    more = ("--output", "out.npy", "--cross-validate", 2, "--checkpoint", "run.oocimp")
    assert "leave out --output, --cross-validate, --checkpoint" in refused(capsys, *words, *more)
    assert "no file" in refused(capsys, *words[:3], "nowhere.txt", *words[4:])
    for count in (0, 500):
        assert f"n_components is {count}, but a graph of" in refused(capsys, *words, "--n-components", count)


@pytest.mark.parametrize("more", [(), ("--plan",)])
def test_a_seed_of_no_folds_is_refused(folder, more, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt", "--seed", 3, *more)
    assert "--seed deals slices into folds, of which there are none" in refused(capsys, *words)


def test_a_checkpoint_is_gone_on_from(folder, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt", "--checkpoint", "run.oocimp", "--n-lambdas", 4)
    assert told(capsys, *words)["resumed"] == 0
    assert told(capsys, *words)["resumed"] == 4


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_signal_ends_a_step_and_says_where_it_goes_on(folder):
    words = ["fit", "gaps.npy", "--graph", "graph.txt", "--checkpoint", "run.oocimp", "--tol", "0", "--max-inner", "1000"]
    program = [sys.executable, "-m", "ooc_chol", "impute", *words, "--output", "out.npz", "--quiet"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as run:
        began = time.monotonic()
        while not (folder / "run.oocimp").exists() and run.poll() is None and time.monotonic() - began < 60:
            time.sleep(0.02)
        run.send_signal(signal.SIGTERM)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM and "run.oocimp holds what the last value of lambda left" in error
    assert len(error.splitlines()) == 1 and not (folder / "out.npz").exists()


def test_held_out_errors_are_told(folder, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt", "--cross-validate", 2, "--n-lambdas", 9)
    answer = told(capsys, *words)["cross_validation"]
    assert answer["folds"] == 2 and len(answer["errors"]) == 9 and answer["error"] < answer["neighbours"]


def test_a_validation_that_fails_leaves_the_fit(folder, capsys):
    np.save("ones.npy", np.where(MASK[:, None, None], np.ones_like(tensor()), np.nan))
    words = ("fit", "ones.npy", "--graph", "graph.txt", "--cross-validate", 2, "--output", "out.npz", "--quiet")
    assert "all that is observed is 1, so that" in refused(capsys, *words)
    assert np.array_equal(read_tensor("out.npz").tensor, np.ones_like(tensor()))


def test_what_is_chosen_by_what_is_held_out(folder, capsys):
    words = ("fit", "gaps.npy", "--graph", "graph.txt")
    answer = told(capsys, *words, "--either-laplacian", "--n-lambdas", "auto", "--output", "out.npy")
    held = answer["held_out"]
    assert held["error"] == held["least"] < held["other"] and len(held["errors"]) == len(answer["history"]) == held["best"]
    found = oc.impute(tensor(), MASK, fourier(), n_lambdas=held["best"], devices="host:0").tensor
    assert np.array_equal(np.load("out.npy"), found)
    assert told(capsys, *words, "--held-out", 0.3, "--n-lambdas", 9)["held_out"]["share"] == pytest.approx(0.3, abs=0.01)
    assert told(capsys, *words, "--n-lambdas", "auto", "--plan")["plan"]
    assert "auto holds out a part, which the demo does not" in refused(capsys, "demo", "--n-lambdas", "auto")


def test_a_mean_is_taken_off_or_not(folder, capsys):
    np.save("high.npy", np.load("gaps.npy") + 300)
    for words, center in (((), 300.0), (("--center", "yes"), 300.0), (("--center", "no"), 0.0)):
        answer = told(capsys, "fit", "high.npy", "--graph", "graph.txt", "--n-lambdas", 3, "--held-out", 0, *words)
        assert answer["held_out"] is None and answer["center"] == pytest.approx(center, abs=0.2)


def test_whole_numbers_with_a_mask_are_taken_as_float64(folder, capsys):
    counts = np.rint(20 * tensor()).astype(np.int32)
    np.save("counts.npy", counts)
    words = ("fit", "counts.npy", "--graph", "graph.txt", "--mask", "mask.txt", "--n-lambdas", 3)
    answer = told(capsys, *words, "--output", "out.npy", "--picture", "out.png", "--cross-validate", 2)
    assert np.array_equal(np.load("out.npy"), oc.impute(counts, MASK, fourier(), n_lambdas=3, devices="host:0").tensor)
    assert answer["precision"] == "DDD"
    np.savez("counts.npz", x=counts.astype(np.float64), mask=MASK)
    same = told(capsys, "fit", "counts.npz", *words[2:4], *words[6:], "--cross-validate", 2)["cross_validation"]
    assert answer["cross_validation"] == same  # means of neighbours are not rounded


def test_what_is_wrong_is_said_on_one_line(folder, capsys):
    fitted = ("fit", "gaps.npy", "--graph", "graph.txt")
    infinite = np.load("gaps.npy")
    infinite[np.flatnonzero(MASK)[3], 2, 5] = -np.inf
    np.save("infinite.npy", infinite)
    np.save("ints.npy", np.zeros((N, 2, 2), int))
    np.save("few.npy", np.zeros((5, 2, 2)))
    np.savez("named.npz", **{"a/b": np.load("gaps.npy")})
    (folder / "neg.txt").write_text("0 1 -2\n")
    for words, said in (
        (("fit", "ints.npy", "--graph", "graph.txt"), "float32 or float64"),
        (("fit", "infinite.npy", "--graph", "graph.txt"), f"X[{np.flatnonzero(MASK)[3]}, 2, 5] is -inf"),
        (("fit", "few.npy", "--graph", "graph.txt"), "graph.txt"),
        (("fit", "gaps.npy", "--graph", "neg.txt"), "-2"),
        ((*fitted, "--decay", 2), "decay is 2"),
        ((*fitted, "--output", "gaps.npy", "--force"), "same file"),
        ((*fitted, "--output", "out.csv"), "tensors are written as"),
        ((*fitted, "--output", "whole.npy"), "--force"),
        ((*fitted, "--picture", "a.doc"), "pictures end in"),
        ((*fitted, "--output", "run.npz", "--checkpoint", "run.npz"), "same file"),
        ((*fitted, "--mask", "graph.txt"), "the mask has shape"),
        ((*fitted, "--cross-validate", 99, "--output", "out.npz"), "folds is 99"),
        (("fit", "gaps.npy", "--graph", "graph.npy", "--base", 1), "base is for lists of edges"),
        (("fit", "named.npz", "--graph", "graph.txt", "--output", "out.nc"), "no name such as 'a/b'"),
        (("fit", "nowhere.npy", "--graph", "graph.txt"), "nowhere.npy"),
    ):
        error = refused(capsys, *words)
        assert said in error and len(error.strip().splitlines()) == 1, (words, error)


@pytest.mark.filterwarnings("default")
def test_a_slice_that_no_path_reaches_is_warned_of(folder, capsys):
    lines = (folder / "graph.txt").read_text().splitlines()
    alone = int(np.flatnonzero(~MASK)[0])
    kept = [line for line in lines if str(alone) not in line.split()[:2]]
    (folder / "apart.txt").write_text("\n".join(kept) + "\n")
    assert main(["impute", "fit", "gaps.npy", "--graph", "apart.txt", "--n-lambdas", "2", "--quiet"]) == 0
    error = capsys.readouterr().err
    assert error.startswith(f"ooc-chol: warning: slice {alone}: no path") and len(error.splitlines()) == 1


@pytest.mark.filterwarnings("default")
def test_a_column_that_is_never_observed_is_warned_of(folder, capsys):
    gaps = tensor()
    gaps[:, :, 3] = np.nan
    np.save("column.npy", gaps)
    assert main(["impute", "fit", "column.npy", "--graph", "graph.txt", "--n-lambdas", "2", "--quiet"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("ooc-chol: warning: column 3 of every slice: no chain") and len(error.splitlines()) == 1


def test_the_demonstration_leaves_its_files(folder, capsys):
    for _ in range(2):
        answer = told(capsys, "demo", "--vertices", 60, "--size", 10, "--rank", 1, "--observed", "0.7,0.9", "--output", "shown")
    assert {path.name for path in (folder / "shown").iterdir()} == {"slices.png", "result.json"}
    first, second = answer["runs"]
    assert second["error"] < first["error"] and second["error_at_gaps"] < 0.1 * second["error_of_neighbours"]
    assert json.loads((folder / "shown/result.json").read_text())["runs"] == answer["runs"]
    assert "--vertices 3" in refused(capsys, "demo", "--vertices", 3, "--output", "few")
