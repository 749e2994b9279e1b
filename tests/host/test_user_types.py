"""What a user's type checker is told: a small program of his passes ``mypy --strict``, and its mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

PROGRAM = """
import numpy as np

import ooc_chol as oc

a, b = np.eye(3), np.ones(3)
with oc.cholesky(a, policy="v3", fp64="native", objective="bytes", half_products=True) as L:
    reveal_type(L.report)
    reveal_type(L.trace)
    reveal_type(L.plan)
    reveal_type(L.solve(b, overwrite_b=True))
    reveal_type(L.T)
    reveal_type(L @ b)
    reveal_type(b @ L)
    reveal_type(L.T @ b)
    reveal_type(L.sample(3, 1))
    reveal_type(L.cond())
    reveal_type(L.slogdet().logabsdet)
    reveal_type(L.update(b))
    reveal_type(L.closed)
    seconds: float = L.report.inside_seconds
    L.trace.save("run.pftrace")
    if L.report is None:
        print("loaded")
reveal_type(oc.logdet(a, tile_size=2))
reveal_type(oc.solve(a, b))
"""

REVEALED = [
    *("FactorReport | Any", "Trace | Any", "Plan | Any"),
    *("array", "TransposedFactor", "array", "array", "array", "array"),
    *("float", "float", "CholeskyFactor", "bool"),
    *("float", "array"),
]

MISTAKES = """
import ooc_chol as oc

L = oc.cholesky([[1.0]], policy="v4")
L.report.secnds
L.solve_triangular([1.0], "H")
oc.plan(10, fp64="double")
"""


def checked(program: str, folder: Path) -> list[str]:
    """What mypy says of a program, line by line; of the package it knows what ``make check`` has left in the cache."""
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    run = subprocess.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert run.stderr == ""
    return [line for line in run.stdout.splitlines() if line.startswith(str(file))]  # of the package all else is told, too


@pytest.mark.package("mypy")
@pytest.mark.usefixtures("processes")
def test_a_users_program_passes_a_strict_type_checker(tmp_path: Path) -> None:
    said = checked(PROGRAM, tmp_path)
    assert [line for line in said if ": error:" in line] == []
    revealed = [match[1] for line in said if (match := re.search(r'Revealed type is "(.*)"', line))]
    plain = [re.sub(r"\b(?:\w+\.)+(?=\w)", "", text) for text in revealed]
    plain = [re.sub(r"ndarray\[.*dtype\[(?:float|Any).*\]", "array", text) for text in plain]
    assert plain == REVEALED
    errors = [line for line in checked(MISTAKES, tmp_path) if ": error:" in line]
    assert len(errors) == 4
    for line, words in zip(errors, ("policy", "secnds", "solve_triangular", "fp64"), strict=True):
        assert words in line
