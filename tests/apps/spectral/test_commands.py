"""``ooc-chol spectral``: what its commands read, write, draw and refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import spectral
from tests.apps.spectral.graphs_made import grid
from tests.inside.cli import main

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

N = 96


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a grid of 8 x 12 as a list of edges, and an image of two halves."""
    monkeypatch.chdir(tmp_path)
    upper = grid(8, 12).tocoo()
    once = upper.row < upper.col
    np.savetxt("grid.txt", np.column_stack([upper.row[once], upper.col[once]]), fmt="%d")
    np.savetxt("grid.xy", np.column_stack(np.unravel_index(np.arange(N), (8, 12))))
    image = np.full((10, 14), 40, np.uint8)
    image[:, 8:] = 200
    np.save("image.npy", image)
    return tmp_path


def told(capsys, *words):
    """What a command answers as JSON; it succeeds."""
    assert main(["spectral", *map(str, words), "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    """What a command says that fails for what a user can mend."""
    assert main(["spectral", *map(str, words)]) == 2
    return capsys.readouterr().err


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 2000


def test_bisect_writes_what_the_call_finds(folder, capsys):
    answer = told(capsys, "bisect", "grid.txt", "--output", "grid.part.2", "--seed", 3)
    labels = spectral.read_partition("grid.part.2")
    assert np.array_equal(labels, spectral.bisect(spectral.read_graph("grid.txt"), seed=3).labels)
    assert (answer["cut"], answer["sizes"], answer["n_edges"]) == (8.0, [48.0, 48.0], 7 * 12 + 8 * 11)
    assert len(answer["eigenvalues"]) == 3 and answer["report"]["method"]


@pytest.mark.filterwarnings("always::ooc_chol.errors.InputWarning")
def test_edges_that_count_from_one_are_told_so(folder, capsys):
    np.savetxt("one.txt", np.loadtxt("grid.txt", dtype=int) + 1, fmt="%d")
    zero, one = (told(capsys, "bisect", *words) for words in (["grid.txt"], ["one.txt", "--one-based"]))
    assert (one["n"], one["cut"], one["sizes"]) == (zero["n"], zero["cut"], zero["sizes"])
    assert len(told(capsys, "partition", "one.txt", 3, "--one-based")["sizes"]) == 3
    assert main(["spectral", "bisect", "one.txt", "--quiet"]) == 0
    assert "warning: one.txt: vertices begin with 1, so that vertex 0 has no edges" in capsys.readouterr().err
    with pytest.warns(oc.errors.InputWarning, match="give base=1"):
        assert spectral.read_graph("one.txt").n == N + 1
    assert "is no list of edges" in refused(capsys, "bisect", "image.npy", "--one-based")


@pytest.mark.filterwarnings("always::ooc_chol.errors.InputWarning")
def test_a_scale_of_other_units_is_a_line(folder, capsys):
    np.save("floats.npy", np.load("image.npy") / 255)
    assert main(["spectral", "segment", "floats.npy", "--sigma-i", "20", "--quiet"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("ooc-chol: warning: ") and "image * 255" in said


def test_options_of_the_search_reach_the_call(folder, capsys):
    answer = told(capsys, "bisect", "grid.txt", "--vectors", 1, "--search", 0, "--no-refine", "--balance", 0.2)
    assert len(answer["eigenvalues"]) == 1 and answer["report"]["seconds"]["parts"]["refinement"] == 0
    assert answer["cut"] == 8.0 and max(answer["sizes"]) <= 1.2 * 48


def test_partition_has_the_parts_that_are_wanted(folder, capsys):
    answer = told(capsys, "partition", "grid.txt", 3, "--target-sizes", "0.5,0.25,0.25", "--output", "grid.part.3")
    assert answer["sizes"] == [48.0, 24.0, 24.0]
    assert np.bincount(spectral.read_partition("grid.part.3")).tolist() == [48, 24, 24]


def test_weights_of_vertices_come_from_a_file(folder, capsys):
    weights = np.where(np.arange(N) < 12, 8.0, 1.0)  # a row weighs as much as the eight others and a bit
    np.savetxt("loads.txt", weights)
    answer = told(capsys, "bisect", "grid.txt", "--vertex-weights", "loads.txt", "--output", "parts")
    labels = spectral.read_partition("parts")
    assert answer["sizes"] == np.bincount(labels, weights).tolist() and abs(answer["sizes"][0] - answer["sizes"][1]) <= 8


def test_pictures_are_drawn_again(folder, capsys):
    for _ in range(2):
        told(capsys, "bisect", "grid.txt", "--picture", "eigenvectors.png")
        told(capsys, "partition", "grid.txt", 3, "--picture", "places.png", "--coordinates", "grid.xy")
    assert is_picture(folder / "eigenvectors.png") and is_picture(folder / "places.png")


@pytest.mark.parametrize("cut", [("bisect", "grid.txt"), ("partition", "grid.txt", 3)], ids=lambda cut: cut[0])
def test_a_partition_file_is_not_replaced_unasked(folder, capsys, cut):
    (folder / "parts").write_text("the only copy of a thesis\n")
    assert "parts" in refused(capsys, *cut, "--output", "parts")
    assert "--force" in refused(capsys, *cut, "--output", "parts")
    assert (folder / "parts").read_text().startswith("the only copy")
    told(capsys, *cut, "--output", "parts", "--force")
    assert len(spectral.read_partition("parts")) == N
    graph = (folder / "grid.txt").read_bytes()
    assert "same file" in refused(capsys, *cut, "--output", "grid.txt", "--force")
    assert (folder / "grid.txt").read_bytes() == graph


@pytest.mark.parametrize(
    ("written", "words", "said"),
    [
        ("0 0\n1 1\n", "--picture p.png --coordinates places", "96 vertices, but places of vertices are given for 2"),
        ("0 0 0 0\n" * N, "--picture p.png --coordinates places", "in 4 columns"),
        ("0 0\n" * (N - 1) + "0 nan\n", "--picture p.png --coordinates places", "row 96"),
        ("left right\n" * N, "--picture p.png --coordinates places", "are no places of vertices"),
        ("1 2\n" * N, "--vertex-weights places", "one number a line"),
        ("", "--coordinates grid.xy", "add --picture"),
        ("", "--picture p.doc", "pictures end in"),
        ("", "--picture p.png --coordinates nowhere.xy", "nowhere.xy"),
    ],
)
def test_files_of_vertices_that_are_wrong(folder, capsys, written, words, said):
    (folder / "places").write_text(written)
    assert said in refused(capsys, "bisect", "grid.txt", *words.split())
    assert not (folder / "p.png").exists()


def test_segments_are_written_as_a_picture_and_as_an_array(folder, capsys):
    from skimage.io import imread

    mask = np.ones((10, 14), bool)
    mask[:3, :3] = False
    np.save("mask.npy", mask)
    for _ in range(2):  # a picture of ours is replaced
        answer = told(
            capsys, "segment", "image.npy", "--sigma-i", 20, "--output", "s.png", "--picture", "drawn.png", "--mask", "mask.npy"
        )
    told(capsys, "segment", "image.npy", "--sigma-i", 20, "--output", "s.npy", "--mask", "mask.npy")
    labels, greys = np.load("s.npy"), imread("s.png")
    assert answer["n_segments"] == 2 and answer["tree"][0]["is_split"] and answer["shape"] == [10, 14]
    assert np.array_equal(greys, labels + 1) and np.array_equal(labels == -1, ~mask)
    assert len(np.unique(labels[:, 8:])) == 1 and len(np.unique(labels[:, :8][mask[:, :8]])) == 1
    assert is_picture(folder / "drawn.png")


def test_an_image_file_is_read(folder, capsys):
    from skimage.io import imsave

    imsave("image.png", np.load("image.npy"))
    assert told(capsys, "segment", "image.png", "--sigma-i", 20, "--radius", 3)["n_segments"] == 2
    assert told(capsys, "segment", "image.png", "--n-segments", 1)["n_segments"] == 1


def test_files_of_segments_that_cannot_be(folder, capsys):
    imaged = ("segment", "image.npy", "--sigma-i", 20)
    assert ".png or .npy" in refused(capsys, *imaged, "--output", "s.tif")
    assert "same file" in refused(capsys, *imaged, "--output", "image.npy")
    np.save("s.npy", np.zeros(3))
    assert "--force" in refused(capsys, *imaged, "--output", "s.npy")
    assert np.load("s.npy").shape == (3,)
    assert "nowhere.png" in refused(capsys, "segment", "nowhere.png", "--sigma-i", 20)


def test_a_trace_is_written_where_a_device_ran(folder, capsys):
    upper = grid(40, 50).tocoo()
    once = upper.row < upper.col
    np.savetxt("large.txt", np.column_stack([upper.row[once], upper.col[once]]), fmt="%d")
    answer = told(capsys, "bisect", "large.txt", "--trace", "run.pftrace", "--devices", "host:0")
    assert answer["trace"] == "run.pftrace" and oc.Trace.load("run.pftrace").summary()
    assert main(["spectral", "bisect", "grid.txt", "--trace", "none.pftrace"]) == 0
    assert "no trace is written" in capsys.readouterr().err and not (folder / "none.pftrace").exists()


def test_the_demonstration_leaves_its_files(folder, capsys):
    for _ in range(2):
        answer = told(capsys, "demo", "--points", 400, "--parts", 3, "--output", "shown", "--devices", "host:0")
    assert {path.name for path in (folder / "shown").iterdir()} == {"mesh-2.png", "mesh-3.png", "segments.png", "result.json"}
    assert json.loads((folder / "shown/result.json").read_text())["cuts"] == answer["cuts"]
    assert {row["parts"] for row in answer["cuts"]} == {2, 3} and answer["n_segments"] > 1
    own = {row["parts"]: row for row in answer["cuts"] if row["name"] == "ooc_chol"}
    assert all(row["imbalance"] < 0.01 for row in own.values())
    assert "--points 7" in refused(capsys, "demo", "--points", 7, "--output", "few")
