"""What the documents say is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ooc_chol.apps import geostat
from ooc_chol.cli import main

ROOT = Path(__file__).parents[3]
README = ROOT / "ooc_chol" / "apps" / "geostat" / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_python_of_the_readme_runs(one_blas_thread, capsys):
    (program,) = blocks("python")
    exec(compile(program, str(README), "exec"), {})
    assert "Matern(variance=" in capsys.readouterr().out


def test_the_commands_of_the_readme_run(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sites, heights = geostat.jacksboro().sample(120)
    rows = [f"{x},{y},{z}" for (x, y), z in zip(sites, heights, strict=True)]
    (tmp_path / "soil.csv").write_text("\n".join(["easting,northing,zinc", *rows[:100]]) + "\n")
    (tmp_path / "sites.csv").write_text("\n".join(["easting,northing,zinc", *rows[100:]]) + "\n")
    for line in "".join(blocks("sh")).splitlines():
        words = line.replace("jacksboro:2000", "jacksboro:150").split()
        assert words.pop(0) == "ooc-chol"
        assert main(words) == 0, capsys.readouterr().err
    assert {"terrain.json", "terrain.png", "zinc.json", "predicted.csv"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
def test_effective_ranges_are_as_documented(nu):
    text = (ROOT / "docs" / "geostat.md").read_text(encoding="utf-8")
    assert f"{geostat.Matern(1.0, 1.0, nu).effective_range:.3f}" in text


def test_every_key_of_a_result_is_documented(one_blas_thread):
    text = (ROOT / "docs" / "geostat.md").read_text(encoding="utf-8")
    sites, heights = geostat.jacksboro().sample(60)
    content = geostat.fit(geostat.make_observations(sites, heights), smoothness=0.5).to_dict()
    keys = (
        set(content) | set(content["model"]) | set(content["mean"]) | set(content["trials"][0]) | set(content["evaluations"][0])
    )
    assert not {key for key in keys if not re.search(rf"[`.]{key}`", text)}
