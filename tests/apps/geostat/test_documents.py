"""What the documents say is what happens."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.cli.commands import add_commands
from ooc_chol.apps.geostat.data.dataset import example_spec
from ooc_chol.cli import main

ROOT = Path(__file__).parents[3]
README = ROOT / "ooc_chol" / "apps" / "geostat" / "README.md"
REFERENCE = ROOT / "docs" / "geostat.md"
GUIDE = ROOT / "docs" / "geostat-guide.md"

#: Largest relative difference between a number that a document shows and the one that is printed.
SHOWN = 0.05

NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"


def read(path):
    return path.read_text(encoding="utf-8")


def run_blocks(text, path, capsys):
    """Run every command and program in order, and compare the outputs shown with those of all before."""
    printed, names = "", {}
    for language, content in re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL):
        if language == "sh":
            for line in content.splitlines():
                words = shlex.split(line, comments=True)
                assert words.pop(0) == "ooc-chol"
                assert main(words) == 0, capsys.readouterr().err
        elif language == "python":
            exec(compile(content, str(path), "exec"), names)
        else:
            assert language == "text", language
            for line in content.splitlines():
                assert is_shown(line, printed), f"{path.name} shows {line!r}, but what was printed is\n{printed}"
        printed += capsys.readouterr().out
    return printed


def is_shown(line, printed):
    """Whether a line of the output is this one, apart from small differences of its numbers."""
    numbers = [float(text) for text in re.findall(NUMBER, line)]
    words = re.sub(NUMBER, "#", line)
    return any(
        re.sub(NUMBER, "#", other) == words
        and np.allclose([float(text) for text in re.findall(NUMBER, other)], numbers, rtol=SHOWN, atol=0.0)
        for other in printed.splitlines()
    )


def parsers():
    """The parser of every command of the application."""
    top = argparse.ArgumentParser()
    add_commands(top.add_subparsers())
    (action,) = (a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    (inner,) = (a for a in action.choices["geostat"]._actions if isinstance(a, argparse._SubParsersAction))
    for parser in inner.choices.values():
        parser.complete()
    return inner.choices


def geostatistics(readme):
    """The section of the project's README."""
    return re.search(r"## Geostatistics\n(.*?)\n## ", readme, flags=re.DOTALL)[1]


def write_terrain(folder, data, header):
    """Heights in the place of a user's data: 100 rows of observations, 20 sites."""
    sites, heights = geostat.jacksboro().sample(120)
    rows = [f"{x},{y},{z},{x**2 + y**2}" for (x, y), z in zip(sites, heights, strict=True)]
    (folder / data).write_text("\n".join([header, *rows[:100]]) + "\n")
    (folder / "sites.csv").write_text("\n".join([header, *rows[100:]]) + "\n")


def test_the_readme_runs(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_terrain(tmp_path, "soil.csv", "easting,northing,zinc,other")
    printed = run_blocks(read(README).replace("jacksboro:2000", "jacksboro:150"), README, capsys)
    assert "Matern(variance=" in printed
    assert {"terrain.json", "terrain.png", "zinc.json", "predicted.csv", "variogram.png"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_the_section_of_the_main_readme_runs(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_terrain(tmp_path, "meuse.csv", "x,y,zinc,dist")
    main_readme = ROOT / "README.md"
    section = geostatistics(read(main_readme)).replace("jacksboro:2000", "jacksboro:150")
    printed = run_blocks(section, main_readme, capsys)
    assert "variance / range**(2 nu)" in printed
    assert "length_scale = " in printed


def test_the_guide_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks(read(GUIDE), GUIDE, capsys)
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"map.png", "variogram.png", "north-east.png", "residuals.png", "profile.png"}


def test_a_line_that_was_not_printed_is_found_out():
    printed = "  range        0.0510708; effective range 0.30\nnugget 1e-08"
    assert is_shown("  range        0.0509; effective range 0.301", printed)
    assert is_shown("nugget 1.01e-08", printed)
    assert not is_shown("  range        0.0409; effective range 0.301", printed)
    assert not is_shown("nugget 2e-08", printed)
    assert not is_shown("  range        0.0509", printed)


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


@pytest.mark.parametrize("path", [README, REFERENCE, GUIDE, ROOT / "CHANGELOG.md"], ids=lambda path: path.name)
def test_names_in_the_documents_exist(path):
    found = set(re.findall(r"\bgeostat\.([A-Za-z_]+)", read(path))) - {"md"}
    assert not {name for name in found if not hasattr(geostat, name)}


def test_every_command_and_option_is_documented_and_there_is_no_other():
    text = read(REFERENCE)
    commands = parsers()
    assert not {name for name in commands if f"`{name}`" not in text}
    options = {option for parser in commands.values() for action in parser._actions for option in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", text))
    assert not {name for name in named if name not in options and name.lower() not in options}
    spellings = {"-h", "--help", "--itheta", "--initial-theta", "--ttheta"}
    assert not options - spellings - named


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
