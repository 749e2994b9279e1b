"""What the documents say is what happens."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from ooc_chol.apps import geostat
from tests.documents import ROOT, read, run_document
from tests.inside.geostat import add_commands, example_spec

README = ROOT / "ooc_chol" / "apps" / "geostat" / "README.md"
REFERENCE = ROOT / "docs" / "geostat.md"
GUIDE = ROOT / "docs" / "geostat-guide.md"


def parsers():
    """The parser of every command of the application."""
    top = argparse.ArgumentParser()
    add_commands(top)
    (inner,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    for parser in inner.choices.values():
        parser.complete()
    return inner.choices


def write_terrain(folder, data, header):
    """Heights in the place of a user's data: 100 rows of observations, 20 sites."""
    sites, heights = geostat.jacksboro().sample(120)
    rows = [f"{x},{y},{z},{x**2 + y**2}" for (x, y), z in zip(sites, heights, strict=True)]
    (folder / data).write_text("\n".join([header, *rows[:100]]) + "\n")
    (folder / "sites.csv").write_text("\n".join([header, *rows[100:]]) + "\n")


def test_the_readme_runs(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_terrain(tmp_path, "soil.csv", "easting,northing,zinc,other")
    printed = run_document(read(README).replace("jacksboro:2000", "jacksboro:150"), README, capsys)
    assert "Matern(variance=" in printed
    assert {"terrain.json", "terrain.png", "zinc.json", "predicted.csv", "variogram.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


@pytest.mark.usefixtures("foreign")
def test_the_guide_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_document(read(GUIDE), GUIDE, capsys)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    first = {"before.png", "directions.png", "lags.png", "copper.png"}
    assert pictures == {"map.png", "variogram.png", "north-east.png", "ellipse.png", "residuals.png", "profile.png"} | first


def test_the_sizes_of_the_guide_follow_from_the_results():
    rates = []
    for name in ("host-fp64-file", "h200-native-131072-24g", "h200-residue-131072-32g"):
        assert f"{name}.json" in read(GUIDE)
        rates.append(1e12 * json.loads(read(ROOT / "benchmarks" / "results" / f"{name}.json"))["tflops"])
    table = re.search(r"<!-- sizes -->\n(.*?)<!-- /sizes -->", read(GUIDE), flags=re.DOTALL)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) == 6
    for first, factor, *times in rows:
        n = int(first.replace(",", ""))
        assert float(factor.removesuffix(" GB")) == pytest.approx(4e-9 * n**2, rel=0.03)
        for text, rate in zip(times, rates, strict=True):
            if text:
                number, unit = text.split()
                assert float(number) * {"s": 1, "min": 60}[unit] == pytest.approx(n**3 / 3 / rate, rel=0.03)


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_effective_ranges_are_as_documented(nu):
    assert f"{geostat.Matern(1.0, 1.0, nu).effective_range:.3f}" in read(REFERENCE)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    "path", [README, REFERENCE, GUIDE, ROOT / "CHANGELOG.md", *(ROOT / "changes").glob("*.md")], ids=lambda path: path.name
)
def test_names_in_the_documents_exist(path):
    found = set(re.findall(r"\bgeostat\.([A-Za-z_]+)", read(path))) - {"md", "rst"}
    assert not {name for name in found if not hasattr(geostat, name)}


def test_every_option_has_its_help_and_documents_name_no_other():
    actions = [action for parser in parsers().values() for action in parser._actions]
    assert not {action.dest for action in actions if action.help is None}
    options = {option for action in actions for option in action.option_strings}
    for path in (README, REFERENCE, GUIDE):
        named = set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", read(path)))
        assert named and not {name for name in named if name not in options and name.lower() not in options}


def test_every_key_of_a_result_is_documented(one_blas_thread):
    sites, heights = geostat.jacksboro().sample(60)
    observations = geostat.make_observations(sites, heights)
    settings = geostat.FactorSettings(precision_threshold=1e-6)
    result = geostat.fit(observations, smoothness=0.5, nugget="zero", settings=settings)
    content = result.to_dict()
    inference = geostat.infer(observations, result.model, estimated=result.estimated).to_dict()
    parts = [content, content["model"], content["mean"], content["trials"][0], content["evaluations"][0], content["precision"]]
    parts += [example_spec("jacksboro:60").to_dict(), inference, inference["estimates"], inference["estimates"]["range"]]
    keys = {key for part in parts for key in part}
    assert not {key for key in keys if not re.search(rf"[`.]{key}`", read(REFERENCE))}
