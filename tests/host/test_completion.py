"""Completion in a shell: bash completes commands, options, values and files; the scripts of all shells have every word."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.commands import commands
from tests.inside.cli import main, make_parser


@pytest.fixture
def script(capsys):
    """The script for a shell."""

    def made(shell):
        assert main(["completion", shell]) == 0
        return capsys.readouterr().out

    return made


def completed(script, *words):
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in ("ooc-chol", *words))
    program = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_ooc_chol; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pl"], ["plan"]),
        (["bench", "s"], ["suite"]),
        (["plan", "--fp64", ""], ["auto", "native", "residue"]),
        (["factor", "a.npy", "--poli"], ["--policy"]),
        (["geostat", "fit", "--nu"], ["--nugget"]),
        (["geostat", "fit", "--nugget", ""], ["free", "zero"]),
        (["geostat", "fit", "x.csv", "--lonlat", "--rem"], ["--reml"]),
        (["geostat", "plot", "v"], ["variogram"]),
        (["plan", "--n", ""], []),
        (["plan", "--devices", "plan", "--js"], ["--json"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["factor", "pypr"], ["pyproject.toml"]),
        (["geostat", "fit", "data.csv", "--output", "pypr"], ["pyproject.toml"]),
    ],
)
@pytest.mark.usefixtures("processes")
def test_bash_completes(script, words, offered):
    assert completed(script("bash"), *words) == offered


@pytest.mark.usefixtures("processes")
def test_bash_offers_every_command_and_option(script):
    made = script("bash")
    for path, below, options in commands(make_parser()):
        assert set(completed(made, *path, "-")) == options
        assert below <= set(completed(made, *path, ""))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.usefixtures("processes")
def test_scripts_have_every_command_and_option(script, shell):
    made = script(shell)
    for path, below, options in commands(make_parser()):
        for word in below | options:
            assert (word if shell == "zsh" else word.lstrip("-")) in made, (path, word)
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=made, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_without_shtab_the_command_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert "made by shtab, which is not installed" in capsys.readouterr().err
