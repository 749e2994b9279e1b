"""Every command answers a program with one JSON object, is quiet when asked to be, and shows examples that can be typed."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.commands import commands
from tests.documents import parse
from tests.inside.cli import EXAMPLES, main, make_parser, plain
from tests.products import thorough

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: A small run of every command, and a word that its answer has.
RUNS = {
    "plan": ("plan --n 500", "flops"),
    "factor": ("factor a.npy --store L.ooc --check", "logdet"),
    "verify": ("verify kept.ooc", "files"),
    "devices": ("devices", "devices"),
    "report": ("report --n 500 --output machine.txt", "cuda_problem"),
    "sparse make": ("sparse make rmat --scale 6 --output made.oocsr", "nnz"),
    "sparse pack": ("sparse pack edges.txt --output packed.oocsr", "counts"),
    "sparse info": ("sparse info kept.oocsr --verify", "is_whole"),
    "sparse multiply": ("sparse multiply kept.oocsr --columns 2 --times 3 --devices host:0", "norm"),
    "eigsh": ("eigsh kept.oocsr -k 2 --devices host:0", "eigenvalues"),
    "svds": ("svds kept.oocsr -k 2 --devices host:0", "values"),
    "trace summary": ("trace summary run.pftrace", "streams"),
    "completion": ("completion fish", "script"),
    "bench rates": ("bench rates --quick --tile-size 32 --device host:0", "rates"),
    "bench fp64": (
        "bench fp64 --case c --n 128 --tile-size 32 --devices host:0 --repeats 1 --dgemm-seconds 0.01 --no-warm-up",
        "tflops",
    ),
    "bench suite": ("bench suite host --list", "cases"),
    "bench imputation": (
        "bench imputation --case c --size 12x3x3 --degree 3 --rank 1 --shares 0.8 --n-lambdas 2 --devices host:0 --no-peer",
        "runs",
    ),
    "geostat fit": ("geostat fit --example jacksboro:40 --smoothness 0.5 --max-evaluations 6 --standard-errors", "fit"),
    "geostat predict": ("geostat predict model.json --grid 3,3 --output p.csv", "target"),
    "geostat simulate": ("geostat simulate model.json --grid 3,3 --output d.csv", "draws"),
    "geostat cv": ("geostat cv model.json", "scores"),
    "geostat variogram": ("geostat variogram --example jacksboro:40", "semivariance"),
    "geostat loglik": ("geostat loglik --model model.json", "loglik"),
    "geostat convert": ("geostat convert model.json", "sklearn"),
    "geostat plot": ("geostat plot profile model.json --points 3 --from 1 --to 20 --output m.png", "loglik"),
    "geostat demo": ("geostat demo --n 150", "held_out"),
    "spectral bisect": ("spectral bisect edges.txt --output p.part --devices host:0", "cut"),
    "spectral partition": ("spectral partition edges.txt 3 --target-sizes 1,1,1 --devices host:0", "sizes"),
    "spectral segment": ("spectral segment image.npy --sigma-i 5 --output segments.png --devices host:0", "ncut"),
    "spectral demo": ("spectral demo --points 300 --parts 3 --devices host:0", "cuts"),
    "impute fit": (
        "impute fit tensor.npy --graph edges.txt --n-lambdas 3 --held-out 0 --output filled.npz --devices host:0",
        "history",
    ),
    "impute demo": ("impute demo --vertices 30 --size 5 --rank 1 --observed 0.8 --devices host:0", "runs"),
}
#: Commands that need a GPU to run at all, or somebody who looks at a page.
ELSEWHERE = {"bench links", "trace view", "help"}
#: Words that only have commands below them.
GROUPS = ("", "bench", "geostat", "impute", "sparse", "spectral", "trace")
#: Commands that take longest: whether they are quiet, as all others are by the same means, is looked at with ``--thorough``.
LONG = {"geostat demo", "spectral demo", "impute demo", "geostat fit"}
LONG |= {"bench rates", "geostat variogram", "geostat plot"}


def leaves():
    """Every command that does something."""
    return [name for path, _, _ in commands(make_parser()) if (name := " ".join(path)) not in GROUPS]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a matrix and a fitted model, which no test writes to."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(limits=1, user_api="blas"):
        patch.chdir(folder)
        np.save("a.npy", np.eye(60) + 0.5)
        with oc.cholesky("a.npy", tile_size=16, devices="host:0", trace=True) as factor:
            factor.trace.save("run.pftrace")
            factor.save("kept.ooc")
        oc.block_csr(oc.testing.urand(5), store="kept.oocsr").close()
        np.savetxt("edges.txt", [(0, 1), (1, 2)], fmt="%d")
        np.save("tensor.npy", np.stack([np.ones((4, 3)), np.full((4, 3), np.nan), np.eye(4, 3)]))
        np.save("image.npy", np.repeat([[10.0] * 6 + [90.0] * 6], 8, axis=0))
        words = ["fit", "--example", "jacksboro:40", "--smoothness", "0.5", "--max-evaluations", "6", "--output", "model.json"]
        assert main(["geostat", *words]) == 0
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch, capsys):
    """A copy of the folder, which the test works in."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()


def test_every_command_is_tried():
    assert set(leaves()) == {*RUNS, *ELSEWHERE}


@pytest.mark.parametrize("command", RUNS)
def test_a_command_answers_with_json_alone(folder, capsys, command):
    words, name = RUNS[command]
    assert main([*words.split(), "--json"]) == 0
    told = capsys.readouterr()
    answer = json.loads(told.out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert isinstance(answer, dict) and any(name in key.lower() for key in answer), answer.keys()
    assert told.err.strip(), "what a person reads goes to standard error"


@pytest.mark.parametrize("command", [*(name for name in RUNS if name not in LONG), *thorough(*sorted(LONG))])
def test_a_command_that_is_quiet_prints_nothing(folder, capsys, command):
    assert main([*RUNS[command][0].split(), "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.out == "" and [line for line in told.err.splitlines() if not line.startswith("note: ")] == []


def test_a_quiet_command_says_what_went_wrong(folder, capsys):
    np.save("bad.npy", -np.eye(3))
    assert main(["factor", "bad.npy", "--store", "B.ooc", "--quiet", "--json"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "minor of order 1 is not positive definite" in told.err


def test_answers_are_plain():
    given = {"a": np.float64("nan"), 1: (np.inf, np.arange(2)), "c": {"d": np.bool_(True), "e": complex(1, 2)}}
    assert plain(given) == {"a": None, "1": [None, [0, 1]], "c": {"d": True, "e": "(1+2j)"}}


def parsers(parser):
    """A parser and all below it, complete."""
    getattr(parser, "complete", lambda: None)()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


@pytest.mark.parametrize("parser", [*parsers(make_parser())], ids=lambda parser: parser.prog)
def test_no_refusal_of_a_word_names_a_function(parser):
    """Argparse tells the name of a converter that raises a ValueError: 'invalid _converter value'."""
    for action in parser._actions:
        if action.type not in (None, int, float, str, Path):
            for word in ("x", "", "x:y", "x=", "1,x", "-1", "nan"):
                with suppress(argparse.ArgumentTypeError):
                    action.type(word)


@pytest.mark.parametrize("parser", [*parsers(make_parser())], ids=lambda parser: parser.prog)
def test_the_examples_of_a_command_can_be_typed(parser, capsys):
    if parser.prog in ("ooc-chol bench", "ooc-chol geostat", "ooc-chol spectral"):
        return
    assert parser.epilog.startswith(f"{EXAMPLES}\n")
    shown = parser.epilog.splitlines()[1:]
    assert shown and all(f"{line}\n" in parser.format_help() for line in shown)
    for line in shown:
        words = shlex.split(line.partition(" > ")[0], comments=True)
        assert words[0] == "ooc-chol" and " ".join(words).startswith(parser.prog)
        if "COMMAND" not in words:
            assert parse(words[1:]) == 0, line
