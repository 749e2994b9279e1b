"""What a partition says of itself: a line, a page, and plain data."""

from __future__ import annotations

import json

import pytest

from ooc_chol.apps import spectral
from tests.apps.spectral.graphs_made import grid, path

pytestmark = pytest.mark.host


def test_a_line_and_a_page():
    found = spectral.bisect(grid(8, 8))
    assert repr(found).startswith("Partition(n=64, n_parts=2, cut=8, imbalance=0, seconds=")
    page = str(found).splitlines()
    assert page[0] == "2 parts of a graph of 64 vertices and 112 edges: the cut is 8"
    starts = (
        "imbalance  0 %",
        "part 1     weighs 32; 32 was wanted",
        "lambda_2   0.15224",
        "candidates ",
        "eigenpairs ",
    )
    for start in starts:
        assert any(line.startswith(f"  {start}") for line in page)
    assert any(line.startswith("  note       lambda_2 = 0.152241 is double;") for line in page)
    assert str(found.report).splitlines()[0] == "A partition of a graph of 64 vertices and 112 edges"
    assert repr(found.report).startswith("PartitionReport(n=64, n_edges=112, components=1, method=")


def test_a_page_of_many_parts():
    page = str(spectral.partition(path(40), 20))
    assert "  part 11    weighs 2; 2 was wanted\n" in page and "part 12" not in page and "... and 8 more" in page


def test_plain_data():
    content = json.loads(json.dumps(spectral.bisect(path(6)).to_dict()))
    assert content["cut"] == 1 and content["n_parts"] == 2 and len(content["labels"]) == 6 and content["sizes"] == [3, 3]
    assert content["report"]["n"] == 6 and content["report"]["notes"] == []
