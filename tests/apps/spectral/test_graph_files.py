"""Files of parts, and components."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol.apps.spectral import read_partition, write_partition
from tests.apps.spectral.spectral_graphs import clique_matrix, graph_of, grid_matrix, joined, path_matrix
from tests.inside.cli import main
from tests.inside.spectral import components

pytestmark = pytest.mark.host


@pytest.mark.parametrize("name", ["a.graph.part.3", "a.part.gz"])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint64])
def test_parts_there_and_back(tmp_path: Path, name: str, dtype: type) -> None:
    labels = np.array([0, 2, 1, 1, 0, 100], dtype)
    write_partition(tmp_path / name, labels)
    found = read_partition(tmp_path / name)
    assert found.dtype == np.int32
    assert np.array_equal(found, labels)
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data) == b"0\n2\n1\n1\n0\n100\n"


def test_a_file_that_is_there_is_kept_unless_asked(tmp_path: Path) -> None:
    write_partition(tmp_path / "a", [0, 1])
    with pytest.raises(oc.errors.OutputError, match="exists already"):
        write_partition(tmp_path / "a", [1, 1])
    assert read_partition(tmp_path / "a").tolist() == [0, 1]
    write_partition(tmp_path / "a", [1, 1], replace=True)
    assert read_partition(tmp_path / "a").tolist() == [1, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("labels", "error", "said"),
    [
        ([0, -1], ValueError, r"labels\[1\] is -1"),
        ([[0, 1]], ValueError, r"shape \(1, 2\)"),
        ([0.0, 1.0], TypeError, "whole numbers"),
        ([0, 2**31], ValueError, r"labels\[1\] is 2147483648"),
    ],
)
def test_labels_that_are_none(tmp_path: Path, labels: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        write_partition(tmp_path / "a", labels)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"0\n1\nx\n", "line 3: 'x' is no part"),
        (b"0\n-1\n", "line 2: '-1' is no part"),
        (b"0\n1 2\n", "line 2: '1 2' is no part"),
        (b"0\n1.0\n", r"line 2: '1\.0' is no part"),
        (b"0\n\n1\n", "line 2: an empty line among others"),
        (b"0\n99999999999\n", "line 2: '99999999999' is no part"),
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        pytest.param(gzip.compress(b"0\n1\n" * 1000, mtime=0)[:-12], "no complete file", id="cut off"),
        (b"\x00\x01", "line 1: .* is no part"),
    ],
)
def test_files_that_hold_no_parts(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(oc.errors.SparseInputError, match=said):
        read_partition(tmp_path / "a")


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.npy", "a.ooc", "a.graph", "a.csv.gz"])
def test_parts_are_not_written_where_a_name_promises_something_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "g.txt").write_text("0 1\n1 2\n")
    with pytest.raises(ValueError, match="a partition is not written as"):
        write_partition(tmp_path / name, [0, 1], replace=True)
    assert main(["spectral", "bisect", str(tmp_path / "g.txt"), "--output", str(tmp_path / name)]) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["g.txt"]


def test_files_of_other_systems(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n 0 \r\n2\r\n\r\n")
    assert read_partition(tmp_path / "a").tolist() == [1, 0, 2]


def test_components_are_numbered_by_their_first_vertices() -> None:
    matrix = joined(grid_matrix(4, 5), csr_array((1, 1)), clique_matrix(3), path_matrix(7), csr_array((2, 2)))
    expected = np.repeat(np.arange(6), [20, 1, 3, 7, 1, 1])
    assert np.array_equal(components(graph_of(matrix)), expected)
    order = np.random.default_rng(1).permutation(33)
    found = components(graph_of(matrix[order][:, order]))
    _, firsts = np.unique(found, return_index=True)
    assert np.array_equal(firsts, np.sort(firsts))
    assert np.array_equal(found[:, None] == found, expected[order][:, None] == expected[order])
    assert components(graph_of(csr_array((3, 3)))).tolist() == [0, 1, 2]
