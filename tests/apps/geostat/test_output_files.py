"""No command writes over what it reads, over a second output, or unasked over a stranger's file."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import DataSpec, Predicted, Prediction, grid_over, save_figure, write_predictions
from tests.apps.geostat.empty_pictures import draw_nothing
from tests.apps.geostat.shell import shell
from tests.inside.geostat import new_figure, write_json, write_table

pytestmark = pytest.mark.usefixtures("one_blas_thread")

STRANGER = "the only copy of a thesis\n"
COLUMNS = ["--x", "x", "--y", "y", "--value", "value"]
FIT = ["fit", "data.csv", *COLUMNS, "--smoothness", "0.5", "--max-evaluations", "9"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with what commands read: data, sites, a result, a log and the values of a profile."""
    folder = tmp_path_factory.mktemp("made")
    sites = np.random.default_rng(1).uniform(size=(50, 2))
    values = np.sin(5 * sites[:, 0]) + sites[:, 1]
    write_table(folder / "data.csv", {"x": sites[:40, 0], "y": sites[:40, 1], "value": values[:40]})
    write_table(folder / "sites.csv", {"x": sites[40:, 0], "y": sites[40:, 1]})
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert shell(*FIT, "--output", "model.json", "--checkpoint", "fit.jsonl") == 0
        profile = ["--parameter", "range", "--points", "3", "--from", "0.1", "--to", "2"]
        assert shell("plot", "profile", "model.json", *profile, "--values", "values.csv", "--output", "profile.png") == 0
    finally:
        os.chdir(before)
    (folder / "profile.png").unlink()
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, which has a link to itself for a neighbour."""
    here = tmp_path / "here"
    shutil.copytree(made, here)
    (tmp_path / "also").symlink_to(here)
    monkeypatch.chdir(here)
    draw_nothing(monkeypatch)
    return here


@contextmanager
def unharmed(folder: Path) -> Iterator[None]:
    """Fail unless all files of the folder are as they were."""
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir() if path.is_file()}
    yield
    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir() if path.is_file()} == before


WAYS = {
    "same path": str,
    "relative path": lambda name: f"../here/./{name}",
    "symlink": lambda name: Path("link").symlink_to(name) or "link",
    "hard link": lambda name: Path("link").hardlink_to(name) or "link",
    "linked folder": lambda name: f"../also/{name}",
}

#: Commands by name: their words, the options that name outputs, and the files that they read.
COMMANDS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "fit": (FIT, ["--output", "--plot", "--checkpoint", "--store"], ["data.csv"]),
    "predict": (
        ["predict", "model.json", "data.csv", "sites.csv"],
        ["--output", "--store"],
        ["model.json", "data.csv", "sites.csv"],
    ),
    "simulate": (
        ["simulate", "model.json", "--sites", "sites.csv", "--conditional", "data.csv"],
        ["--output", "--store"],
        ["model.json", "data.csv", "sites.csv"],
    ),
    "cv": (["cv", "model.json", "data.csv"], ["--output", "--store"], ["model.json", "data.csv"]),
    "loglik": (["loglik", "data.csv", "--model", "model.json"], ["--store"], ["model.json", "data.csv"]),
    "map": (["plot", "map", "model.json"], ["--output"], ["model.json", "data.csv"]),
    "profile": (["plot", "profile", "model.json"], ["--output"], ["model.json", "data.csv"]),
    "kept profile": (["plot", "profile", "model.json", "--values", "values.csv"], ["--output"], ["values.csv"]),
}

EVERY = [(name, option, file) for name, (_, options, files) in COMMANDS.items() for option in options for file in files]

#: Each of these with one way in turn; every command and every option meets more of them.
CASES = [(*case, list(WAYS)[k % len(WAYS)]) for k, case in enumerate(EVERY)]


def needed(words: list[str], option: str) -> list[str]:
    """An ``--output`` for commands that demand one, where another option is tried."""
    return [] if option == "--output" or words[0] in ("fit", "loglik", "cv") else ["--output", "other"]


@pytest.mark.parametrize(("command", "option", "file", "way"), CASES)
def test_no_output_is_an_input(folder, capsys, command, option, file, way):
    words = COMMANDS[command][0]
    target = WAYS[way](file)
    with unharmed(folder):
        assert shell(*words, *needed(words, option), option, target, "--force") == 2
    err = capsys.readouterr().err
    is_same = err.startswith(f"ooc-chol: {option}: ") and "is the same file as " in err
    # Data that only the model names are known after their own ending has refused a picture, or a factor.
    is_by_name = (words[0] == "plot" and "pictures are written as" in err) or "factor of ooc_chol is not written as .csv" in err
    assert (is_same or is_by_name) and err.count("\n") == 1


@pytest.mark.parametrize("way", WAYS)
def test_values_of_a_profile_are_not_written_over_its_data(folder, capsys, way):
    """A file that is there is read as values, so that data of another kind are refused by their columns."""
    values = WAYS[way]("data.csv")
    with unharmed(folder):
        assert shell("plot", "profile", "model.json", "--values", values, "--output", "p.png", "--force") == 2


def test_the_layer_of_a_geopackage_is_in_its_file(folder, capsys):
    shutil.copy("data.csv", "data.gpkg")
    words = ["fit", "data.gpkg:layer", *COLUMNS]
    with unharmed(folder):
        assert shell(*words, "--output", "data.gpkg", "--force") == 2
    assert "same file as DATA" in capsys.readouterr().err


#: Names of one file, two in turn for each pair of outputs.
NAMES = ("out", "./out", "link", "../also/out")
PAIRS = [
    (command, *pair, NAMES[(k + more) % len(NAMES)])
    for command, (_, options, _) in COMMANDS.items()
    for k, pair in enumerate(combinations(options, 2))
    for more in (0, 2)
]


@pytest.mark.parametrize(("command", "first", "second", "name"), PAIRS)
def test_two_outputs_are_two_files(folder, capsys, command, first, second, name):
    Path("link").symlink_to("out")
    with unharmed(folder):
        assert shell(*COMMANDS[command][0], first, "out", second, name, "--force") == 2
    err = capsys.readouterr().err
    assert first in err and second in err and "same file as" in err


# what is there already

DRAWS = ["simulate", "model.json", "--sites", "sites.csv"]
FEW = ["--parameter", "range", "--points", "3", "--from", "0.1", "--to", "2"]

#: Words before the name of the output, and whether a file of its own kind is replaced unasked.
WRITERS: dict[str, tuple[list[str], str, bool]] = {
    "result": ([*FIT, "--output"], "out.json", True),
    "checkpoint": ([*FIT, "--checkpoint"], "out.jsonl", True),
    "map of a fit": ([*FIT, "--plot"], "out.png", True),
    "store": ([*DRAWS, "--output", "made.csv", "--store"], "L", False),
    "predictions": (["predict", "model.json", "data.csv", "sites.csv", "--output"], "out.csv", False),
    "predictions in NetCDF": (["predict", "model.json", "data.csv", "sites.csv", "--output"], "out.nc", False),
    "draws": ([*DRAWS, "--output"], "out.csv", False),
    "cross-validation": (["cv", "model.json", "data.csv", "--output"], "out.csv", False),
    "variogram": (["plot", "variogram", "model.json", "--simulations", "0", "--output"], "out.svg", True),
    "residuals": (["plot", "residuals", "model.json", "--output"], "out.pdf", True),
    "map": (["plot", "map", "model.json", "--output"], "out.eps", True),
    "profile": (["plot", "profile", "model.json", "--values", "values.csv", *FEW, "--output"], "out.PNG", True),
    "picture without a mark": (["plot", "residuals", "model.json", "--output"], "out.jpg", False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_stranger_is_replaced_by_force_only(folder, capsys, name):
    words, out, is_marked = WRITERS[name]
    Path(out).write_text(STRANGER)
    os.chmod(out, 0o600)
    with unharmed(folder):
        assert shell(*words, out) == 2
    err = capsys.readouterr().err
    assert f"{out} exists already" in err and "--force" in err and err.count("\n") == 1
    assert shell(*words, out, "--force") == 0
    capsys.readouterr()
    Path("made.csv").unlink(missing_ok=True)
    if name == "store":
        assert not Path(out).exists()  # removed afterwards, as ever
        return
    assert Path(out).read_bytes() != STRANGER.encode()
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
    assert shell(*words, out) == (0 if is_marked else 2)
    assert sorted(set(os.listdir()) - {out}) == sorted(["data.csv", "sites.csv", "model.json", "fit.jsonl", "values.csv"])


def test_a_result_is_not_replaced_by_a_picture(folder, capsys):
    shutil.copy("model.json", "other.json")
    with unharmed(folder):
        assert shell("plot", "residuals", "model.json", "--output", "other.json") == 2
    assert "no picture" in capsys.readouterr().err


def test_a_store_that_exists_is_never_taken_for_our_own(folder, capsys):
    """A factor is removed after use, so that one which is there already may not become it unasked."""
    oc.cholesky(np.eye(5), store="L").close()
    with unharmed(folder):
        assert shell(*DRAWS, "--output", "made.csv", "--store", "L") == 2
    err = capsys.readouterr().err
    assert "L exists already and what is kept there is removed at the end; " in err and "--force" in err
    with unharmed(folder), pytest.raises(oc.errors.OutputError, match=r"removed at the end.*replace=True"):
        geostat.simulate(geostat.Matern(1, 0.1, 0.5, 0), np.eye(9), settings=geostat.FactorSettings(store="L"))


def test_a_file_that_appears_before_the_factor_is_left_alone(folder, monkeypatch):
    real = oc.cholesky

    def cholesky(*words, **options):
        Path("L").write_text(STRANGER)  # another program's, between the check and the factorization
        return real(*words, **options)

    monkeypatch.setattr(oc, "cholesky", cholesky)
    with pytest.raises(oc.errors.OutputError, match="exists already"):
        geostat.simulate(geostat.Matern(1, 0.1, 0.5, 0), np.eye(9), settings=geostat.FactorSettings(store=Path("L")))
    assert Path("L").read_text() == STRANGER


def test_the_file_behind_a_link_is_removed_after_use_and_not_the_link(folder):
    Path("link").symlink_to("disk")
    geostat.simulate(geostat.Matern(1, 0.1, 0.5, 0), np.eye(9), settings=geostat.FactorSettings(store=Path("link")))
    assert Path("link").is_symlink() and not Path("disk").exists()


# logs


def test_going_on_from_a_file_that_is_no_log_leaves_it_whole(folder, capsys):
    """The end of a log is cut off where a line is not complete; of nothing else."""
    Path("thesis.txt").write_text(STRANGER + "its last line, without an end")
    with unharmed(folder):
        assert shell(*FIT, "--checkpoint", "thesis.txt") == 2
        assert shell(*FIT, "--checkpoint", "data.csv") == 2


def test_a_log_that_a_kill_cut_off_is_mended_beside_it(folder, capsys):
    log = Path("fit.jsonl")
    whole = log.read_bytes()
    os.chmod(log, 0o640)
    log.write_bytes(whole + b'{"kind": "eval')
    assert shell(*FIT, "--checkpoint", log) == 0
    assert log.read_bytes().startswith(whole) and b'"eval' not in log.read_bytes()[len(whole) :].split(b"\n")[0]
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


# the demonstration


def test_the_demonstration_runs_twice_and_spares_strangers(folder, capsys):
    words = ["demo", "--n", "40", "--memory-budget", "1 MB", "--output", "demo"]
    picture = Path("demo/maps.png")
    picture.parent.mkdir()
    picture.write_text(STRANGER)
    assert shell(*words, "--force") == 0 and picture.read_bytes() != STRANGER.encode()
    assert shell(*words) == 0
    before = {path.name: path.read_bytes() for path in Path("demo").iterdir()}
    capsys.readouterr()
    for name in before:
        path = Path("demo") / name
        path.write_text(STRANGER)
        assert shell(*words) == 2
        assert f"{path} exists already" in capsys.readouterr().err
        assert path.read_text() == STRANGER
        path.write_bytes(before[name])


# from Python


def test_functions_replace_only_when_asked(folder):
    observations = geostat.make_observations(np.random.default_rng(0).uniform(size=(30, 2)), np.arange(30.0))
    grid = grid_over([0.0, 0.0], [1.0, 1.0], (3, 3))
    with geostat.kriging(observations, geostat.Matern(1.0, 0.3, 0.5, 0.1)) as kriged:
        spec = DataSpec("csv", "data.csv", ("x", "y"), "value")
        predicted = Predicted(spec, np.zeros((1, 2)), Prediction(np.zeros(1), np.ones(1), "field"))
        writers = {
            "out": lambda path, **how: write_table(path, {"a": np.ones(2)}, **how),
            "out.json": lambda path, **how: write_json(path, {"a": 1}, **how),
            "out.txt": lambda path, **how: geostat.write_grid_prediction(path, kriged, grid, names=("x", "y"), **how),
            "out.csv": lambda path, **how: write_predictions(path, predicted, **how),
            "out.nc": lambda path, **how: write_predictions(path, predicted, **how),
            "out.png": lambda path, **how: save_figure(new_figure((1, 1)), path, **how),
        }
        for name, write in writers.items():
            path = Path(name)
            path.write_text(STRANGER)
            with unharmed(folder), pytest.raises(oc.errors.OutputError, match="replace=True"):
                write(name)
            write(name, replace=True)
            assert path.read_bytes() != STRANGER.encode()
            with pytest.raises(oc.errors.MissingFolderError, match=f"there is no folder no to write {name} into"):
                write(f"no/{name}", replace=True)
    Path("out").write_text(STRANGER)
    with unharmed(folder), pytest.raises(FileExistsError, match="exists already"):
        geostat.fit(observations, checkpoint="out", smoothness=0.5, max_evaluations=5)
    geostat.fit(observations, checkpoint="out", replace=True, smoothness=0.5, max_evaluations=5)
    assert "ooc-chol geostat evaluations" in Path("out").read_text()


@pytest.mark.parametrize("way", WAYS)
def test_a_fit_from_python_keeps_no_factors_in_its_checkpoint(folder, way):
    observations = geostat.make_observations(np.random.default_rng(0).uniform(size=(30, 2)), np.arange(30.0))
    store = geostat.FactorSettings(store=Path(WAYS[way]("fit.jsonl")), replace=True)
    for replaces in (False, True):
        files = {"checkpoint": "fit.jsonl", "replace": replaces}
        with unharmed(folder), pytest.raises(oc.errors.OutputError, match="is the same file as "):
            geostat.fit(observations, settings=store, smoothness=0.5, max_evaluations=5, **files)


@pytest.mark.parametrize("way", WAYS)
def test_predictions_from_python_never_replace_the_observations(folder, way):
    predicted = Predicted(
        DataSpec("csv", "data.csv", ("x", "y"), "value"), np.zeros((1, 2)), Prediction(np.zeros(1), np.ones(1), "field")
    )
    path = WAYS[way]("data.csv")
    with unharmed(folder), pytest.raises(oc.errors.OutputError, match="is the same file as the observations"):
        write_predictions(path, predicted, replace=True)


def test_names_of_other_formats_are_refused_from_python_too(folder):
    observations = geostat.make_observations(np.random.default_rng(0).uniform(size=(30, 2)), np.arange(30.0))
    with unharmed(folder), pytest.raises(ValueError, match=r"not written as \.npy.*\.jsonl"):
        geostat.fit(observations, checkpoint="out.npy", smoothness=0.5, max_evaluations=5)
    with unharmed(folder), pytest.raises(ValueError, match=r"a factor of ooc_chol is not written as \.npy"):
        geostat.fit(observations, settings=geostat.FactorSettings(store="out.npy"), smoothness=0.5, max_evaluations=5)


def test_a_folder_for_files_is_no_file(folder, capsys):
    with unharmed(folder):
        assert shell("demo", "--n", "60", "--output", "data.csv") == 2
        assert shell("demo", "--n", "60", "--output", "data.csv/demo") == 2
    err = capsys.readouterr().err
    assert "data.csv is no folder" in err and "data.csv/demo is no folder, or lies in a file" in err
