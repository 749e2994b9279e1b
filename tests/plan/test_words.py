"""What a user of the shell is told to do can be done in the shell: no message names an argument of Python."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.cli import main

pytestmark = pytest.mark.plan

#: What arguments of Python look like.
PYTHON = re.compile(r"\b(?:store=|overwrite=|replace=|memory_budget|host_budget|tile_size|precision_threshold)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "keep L in a file (store=) or over A (overwrite=True), or give a larger host_budget",
            "keep L in a file (--store PATH), or give a larger --host-budget",
        ),
        (
            "give a smaller memory_budget, larger tiles (tile_size), or store=",
            "give a smaller --memory-budget, larger tiles (--tile-size), or --store PATH",
        ),
        ("memory_budget of host:0: 3 bytes are too few", "--memory-budget of host:0: 3 bytes are too few"),
        ("a.csv exists already; replace it by replace=True", "a.csv exists already; replace it by --force"),
        ("none (precision_threshold=None), or strict=False", "none (no --precision-threshold), or --no-strict"),
        ("run with fp64='native' and tile_size=64", "run with --fp64 'native' and --tile-size 64"),
        ("no column 'tile_size' in memory_budget.csv", "no column 'tile_size' in memory_budget.csv"),
        ("1 of 3; give a larger tol; they are in the error's eigenvalues and residuals", "1 of 3; give a larger tol"),
        ("give covariance=template", "give covariance=template"),
    ],
)
def test_arguments_become_options(text, words):
    assert tb.shell_words(text) == words


def test_a_command_without_a_store_is_not_told_to_use_it():
    text = "keep L in a file (store=) or over A (overwrite=True), or give a larger host_budget"
    assert tb.shell_words(text, ["host_budget"]) == "give a larger --host-budget"
    assert tb.shell_words("tile_size=64", ["store"]) == "tile_size=64", "an option that the command has not"


@pytest.mark.filterwarnings("always::ooc_chol.errors.AsymmetryWarning")
def test_the_triangle_that_counts_is_named_by_its_option(tmp_path, capsys):
    np.save(tmp_path / "U.npy", np.triu(np.ones((3, 3)) + 3 * np.eye(3)))
    assert main(["factor", str(tmp_path / "U.npy"), "--store", str(tmp_path / "L"), "--devices", "host:0"]) == 0
    said = capsys.readouterr().err
    assert "Give --triangle lower if" in said and "--triangle upper if" in said and "lower=" not in said
    assert tb.shell_words("give lower=False", ["store"]) == "give lower=False"


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.eye(300))
    sites = np.random.default_rng(0).uniform(size=(900, 3))
    np.savetxt("d.csv", sites, delimiter=",", header="x,y,value", comments="")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["plan", "--n", "30000", "--host-budget", "1 MB"], "--host-budget"),
        (["plan", "--n", "9000", "--memory-budget", "1 kB"], "--memory-budget"),
        (["factor", "a.npy", "--store", "L", "--memory-budget", "100"], "--memory-budget"),
        (["factor", "a.npy", "--store", "L", "--tile-size", "-3"], "--tile-size"),
        (["factor", "a.npy", "--store", "a.npy"], "--store"),
        (
            ["geostat", "loglik", "d.csv", "--theta", "1,0.1,0.5", "--host-budget", "9 kB"],
            "--store PATH",
        ),
    ],
)
def test_messages_of_commands_name_options(matrix, capsys, words, advice):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert advice in told and not PYTHON.search(told), told


def test_from_python_the_arguments_are_named(matrix):
    with pytest.raises(oc.BudgetError, match="host_budget"):
        oc.plan(30000, host_budget="1 MB")
