"""A file holds what its name promises: every writer says at the start which endings it writes, and refuses the others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ooc_chol.apps.geostat import FactorSettings, Grid, Matern, kriging, make_observations, save_figure, write_grid_prediction
from tests.inside.cli import main
from tests.inside.geostat import endings, io

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: Names that promise something else than text in columns.
OTHERS = ["map.tif", "map.TIFF", "map.gpkg", "map.gpkg:layer", "map.parquet", "map.pq", "map.csv.gz", "map.xlsx", "map.tsv"]
OTHERS += ["map.shp", "map.json", "map.npy", "map.zarr", "map.nc4", "map.asc"]
#: Of these, names of what places that are no grid are written to, besides text.
WRITTEN = ("map.gpkg", "map.parquet", "map.pq")
#: Commands that write columns, with words that name files which are not there: the ending must be looked at first.
TABLES = {
    "predict": ["predict", "no.json", "no.csv", "no-sites.csv"],
    "simulate": ["simulate", "no.json", "--sites", "no.csv"],
    "cv": ["cv", "no.json", "no.csv"],
}
FIT = ["fit", "no.csv", "--x", "x", "--y", "y", "--value", "v"]
PLOT = ["plot", "profile", "no.json", "no.csv"]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """A function that runs a command and gives its error line; nothing may be written."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        try:
            status = main(["geostat", *words])
        except SystemExit as ended:  # argparse's way of refusing
            status = ended.code
        assert status == 2 and list(tmp_path.iterdir()) == []
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize("name", sorted(set(OTHERS) - set(WRITTEN)))
@pytest.mark.parametrize("command", TABLES)
def test_tables_are_not_written_under_names_of_other_formats(refused, command, name):
    told = refused(*TABLES[command], "--output", name)
    assert re.search(rf"{re.escape(name)}.*\.csv", told), told
    listed = told.split("written as")[1].split("not as")[0]
    assert ".gpkg" in listed and ".parquet" in listed and ".tif" not in listed, "what can be written is listed"


@pytest.mark.parametrize("command", ["predict", "simulate"])
def test_a_grid_may_be_a_raster(refused, command):
    words = [word for word in TABLES[command] if word not in ("--sites", "no.csv", "no-sites.csv")]
    assert ".tif" in refused(*words, "--grid", "3,3", "--output", "map.png").split("written as")[1]


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ([*FIT, "--output", "fit.nc"], ".json"),
        ([*FIT, "--output", "fit.csv"], ".json"),
        ([*FIT, "--plot", "map.csv"], ".png"),
        ([*FIT, "--plot", "map"], ".png"),
        ([*FIT, "--checkpoint", "log.parquet"], ".jsonl"),
        ([*PLOT, "--output", "map.nc"], ".png"),
        ([*PLOT, "--output", "p.png", "--values", "values.nc"], ".csv"),
    ],
)
def test_every_other_output_has_its_endings(refused, words, listed):
    assert listed in refused(*words)


@pytest.mark.parametrize("command", [*TABLES, "fit", "plot"])
def test_a_folder_that_is_not_there_is_said_first(refused, command):
    words = {**TABLES, "fit": FIT, "plot": PLOT}[command]
    ending = {"fit": "json", "plot": "png"}.get(command, "csv")
    assert "there is no folder no" in refused(*words, "--output", f"no/where.{ending}")


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.txt", "a.dat", "a"])
def test_text_has_the_endings_of_text(tmp_path, name):
    io.write_table(tmp_path / name, {"x": np.arange(3.0)})
    assert (tmp_path / name).read_text() == "x\n0.0\n1.0\n2.0\n"


@pytest.mark.parametrize("name", OTHERS)
def test_writers_called_from_python_refuse_them_too(tmp_path, name, monkeypatch):
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"\.csv"):
        io.write_table(path, {"x": np.arange(3.0)})
    if not name.endswith(".json"):
        with pytest.raises(ValueError, match=r"\.json"):
            io.write_json(path, {})
    observations = make_observations(np.random.default_rng(0).uniform(size=(20, 2)), np.arange(20.0))
    grid = Grid((np.arange(3.0), np.arange(2.0)))
    with kriging(observations, Matern(1.0, 0.2, 0.5, 0.1), settings=FactorSettings()) as kriged:
        monkeypatch.setattr(type(kriged), "predict", lambda *_, **__: pytest.fail("predicted for nothing"))
        with pytest.raises(ValueError, match=r"\.csv"):
            write_grid_prediction(path, kriged, grid, names=("x", "y"))
    assert list(tmp_path.iterdir()) == []


def test_pictures_appear_complete_or_not_at_all(tmp_path):
    class Figure:
        def savefig(self, path, **options):
            path.write(b"half")
            raise OSError(28, "No space left on device")

    (tmp_path / "map.png").write_bytes(b"older")
    with pytest.raises(OSError, match="No space"):
        save_figure(Figure(), tmp_path / "map.png", replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["map.png"] and (tmp_path / "map.png").read_bytes() == b"older"


def test_a_list_of_endings_reads_as_words():
    with pytest.raises(
        ValueError, match=r"x\.tif: tables are written as \.csv, \.txt or \.dat, or without an ending, not as \.tif"
    ):
        endings.check_ending("x.tif", endings.TABLE, "tables")
