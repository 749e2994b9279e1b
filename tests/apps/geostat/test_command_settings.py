"""Every geostat command that factors takes every option of a factorization, and factors accordingly."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from tests.inside.cli import main
from tests.inside.geostat import Search
from tests.option_words import FLOAT64_WORDS, SHELL_WORDS, WORDS

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Options of commands that factor in float64 alone.
IN_SHELL = [name for name in FLOAT64_WORDS if name in SHELL_WORDS]
#: What makes the commands of a folder with a fitted model reach their factorization, or its plan, with little work.
COMMANDS = {
    "fit": "fit --example jacksboro:40 --smoothness 0.5",
    "predict": "predict model.json --grid 3,3 --output p.csv",
    "simulate": "simulate model.json --grid 3,3 --box 0,0,1,1 --output d.csv",
    "simulate given data": "simulate model.json --grid 3,3 --conditional --output d.csv",
    "cv": "cv model.json",
    "loglik": "loglik data.csv --theta 1,0.1,0.5",
    "plot map": "plot map model.json --output m.png",
    "plot residuals": "plot residuals model.json --output m.png",
    "plot profile": "plot profile model.json --from 1 --to 20 --output m.png",
    "demo": "demo --n 80",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of data and a fitted model."""
    made = tmp_path_factory.mktemp("settings")
    words = ["fit", "--example", "jacksboro:40", "--smoothness", "0.5", "--max-evaluations", "6"]
    assert main(["geostat", *words, "--output", str(made / "model.json")]) == 0
    (made / "data.csv").write_text("x,y,value\n" + "".join(f"0.{k},0.{k * k % 7},{k}\n" for k in range(1, 9)))
    return made


#: What is patched in some tests.
FACTOR = oc.cholesky


class TakenError(Exception):
    """Says with which options a factorization was planned or asked for."""


def take(source, **given):
    if isinstance(source, np.ndarray):  # a fit tries out the settings first
        return FACTOR(source, **given)
    raise TakenError({option: given[option] for option in WORDS})


def taken(command, words):
    """The options that a command hands on first."""
    with pytest.raises(TakenError) as caught:
        main(["geostat", *COMMANDS[command].split(), *words])
    return caught.value.args[0]


def asked(command, name):
    """The options that are to be handed on where one is named."""
    options = {**oc.FactorOptions().keywords(), name: WORDS[name][1]}
    if command == "demo" and name != "memory_budget":
        options["memory_budget"] = int(0.45 * 8 * 72 * 73 // 2)
    return options


#: Commands that plan before they factor, and take the plan unless formats follow from the matrix.
PLANNED = ["fit", "predict", "demo"]
FACTORED = [
    (command, name)
    for command in COMMANDS
    for name in IN_SHELL
    if command not in PLANNED or (name == "precision_threshold" and command != "demo")
]


@pytest.mark.parametrize(("command", "name"), FACTORED)
def test_every_option_reaches_the_factorization(folder, monkeypatch, command, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(oc, "cholesky", take)
    # the start of a search is factored in settings of its own
    monkeypatch.setattr(Search, "_start", lambda _, space: space.starts(1.0)[0])
    assert taken(command, WORDS[name][0]) == asked(command, name)


@pytest.mark.parametrize("name", IN_SHELL)
@pytest.mark.parametrize("command", PLANNED)
def test_every_option_reaches_the_plan(folder, monkeypatch, command, name):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(oc, "plan", take)
    options = asked(command, name)
    options["precision_threshold"] = None  # planned in FP64: what is asked for would measure a matrix that is not the one
    assert taken(command, WORDS[name][0]) == options


def test_exageostats_word_is_the_order_of_a_tile(folder, monkeypatch):
    monkeypatch.setattr(oc, "cholesky", take)
    with pytest.raises(TakenError) as caught:
        main(["geostat", "loglik", str(folder / "data.csv"), "--THETA", "1:0.1:0.5", "--DTS", "16"])
    assert caught.value.args[0]["tile_size"] == 16


def test_settings_are_the_options_and_where_factors_go():
    settings = geostat.FactorSettings(tile_size=32, fp64="residue", moduli=8, precision_threshold=1e-4, replace=True)
    assert isinstance(settings, oc.FactorOptions) and settings.keywords().keys() == WORDS.keys()
    plain = settings.in_fp64()
    assert (plain.precision_threshold, plain.moduli, plain.tile_size, plain.replace) == (None, None, 32, True)
    assert plain.in_fp64() is plain


def test_a_store_may_be_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = geostat.FactorSettings(store="factor.ooc")
    assert settings == geostat.FactorSettings(store=Path("factor.ooc"))
    sites = np.random.default_rng(0).uniform(size=(20, 2))
    assert geostat.simulate(geostat.Matern(1.0, 0.1, 0.5), sites, settings=settings).shape == (1, 20)
    assert not any(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError, match=r"there is no folder no to write factor\.ooc into"):
        replace(settings, store="no/factor.ooc").check_store()
    with (
        oc.HostMemory() as memory,
        pytest.raises(TypeError, match="store is a HostMemory; give a path, or a HostMemory as memory"),
    ):
        geostat.FactorSettings(store=memory)


def test_settings_without_sense_are_refused_when_they_are_made():
    with pytest.raises(ValueError, match="fp64 is 'double'"):
        geostat.FactorSettings(fp64="double")


def test_doubts_of_mixed_precision_are_told_but_of_a_search(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    factor, doubted = oc.cholesky, []

    def doubtful(*given, **options):
        if options.get("precision_threshold") is not None and not isinstance(given[0], np.ndarray):  # as a fit tries out
            doubted.append(options["precision_threshold"])
            warnings.warn("a doubt", oc.errors.PrecisionWarning, stacklevel=2)
        return factor(*given, **options)

    monkeypatch.setattr(oc, "cholesky", doubtful)
    words = ["--precision-threshold", "1e-6", "--tile-size", "16"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["geostat", *COMMANDS["fit"].split(), "--method", "cobyqa", "--max-evaluations", "6", *words]) == 0
        assert len(doubted) >= 6 and "a doubt" not in capsys.readouterr().err
        assert main(["geostat", *COMMANDS["predict"].split(), "--force", *words]) == 0
    assert capsys.readouterr().err.count("ooc-chol: warning: a doubt\n") == 1


def test_covariances_are_of_float64():
    with pytest.raises(ValueError, match="dtype is float32, but covariances are made and factored in float64"):
        geostat.FactorSettings(dtype="float32")
    assert geostat.FactorSettings(dtype="float64").dtype == "float64"
