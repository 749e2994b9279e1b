"""Completion in a shell: bash completes commands, options and values; the scripts of all shells have every word."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.inside.cli import main, make_parser, places


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
    program = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _ooc_chol; printf "%s\\n" "${{COMPREPLY[@]}}"'
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
        (["completion", ""], ["bash", "zsh", "fish", "-h", "--help", "--json", "--quiet"]),
    ],
)
@pytest.mark.usefixtures("processes")
def test_bash_completes(script, words, offered):
    assert completed(script("bash"), *words) == offered


@pytest.mark.usefixtures("processes")
def test_bash_offers_every_command_and_option(script):
    made = script("bash")
    for place in places(make_parser()):
        path = place.path.split()
        options = {word for option in place.options for word in option.words}
        assert set(completed(made, *path, "-")) == options
        assert {word.text for word in place.commands} <= set(completed(made, *path, ""))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.usefixtures("processes")
def test_scripts_have_every_command_and_option(script, shell):
    made = script(shell)
    for place in places(make_parser()):
        for word in [word.text for word in place.commands] + [word for option in place.options for word in option.words]:
            text = word if shell == "zsh" or not word.startswith("-") else word.lstrip("-")
            assert text in made, (place.path, word)
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=made, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
