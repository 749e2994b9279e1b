"""The table of passes over packed sparse matrices, from the files that ``benchmarks/sparse_passes.py`` writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.read_results import duration, read_result, result_named
from ooc_chol.config import format_bytes

NOTE = """\
- *pass*: median, by events on the devices. *streamed*: bytes of blocks that a pass brings to devices; the others stay there.
- *beside*: share of the rate of page-locked copies. From a file: of what disk or cache and the product in core allow. In core:
  times the fastest rate of another library, with as many columns at once or fewer."""

#: In the names of graphs that are numbered by degree, and not as drawn.
_BY_DEGREE = ", order='degree'"


def pass_lines(folder: Path) -> list[dict[str, Any]]:
    """Passes of the files in ``folder`` with what each says of matrix and machine: by file, in the order measured.

    What nothing stands beside is left out, and a graph as drawn where it was measured as numbered by degree, too.
    """
    lines: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.json")):
        content = read_result(path)
        if "passes" not in content:
            continue
        with result_named(path):
            about = {name: content[name] for name in ("case", "matrix", "kinds", "entries", "peers")}
            found = [about | line for line in content["passes"]]
            for line in found:
                for _, cell in pass_columns(""):
                    cell(line)
        lines += found
    by_degree = {
        (_brief(line["matrix"]).replace(_BY_DEGREE, ""), *line["kinds"]) for line in lines if _BY_DEGREE in line["matrix"]
    }
    return [line for line in lines if (_brief(line["matrix"]), *line["kinds"]) not in by_degree and _beside(line)]


def pass_columns(link: str) -> list[tuple[str, Callable[[dict[str, Any]], str]]]:
    """Headings and cells; ``link`` is the folder of the files as the document sees it."""
    return [
        ("matrix", lambda line: f"[{_brief(line['matrix'])}, {', '.join(line['kinds'])}]({link}/{line['case']}.json)"),
        ("devices", lambda line: ", ".join(line["devices"])),
        ("budget of each", _budget),
        ("columns", lambda line: f"{line['columns']}, {line['precision']}"),
        ("pass", lambda line: duration(line["pass_seconds"])),
        ("streamed", lambda line: format_bytes(line["bytes_a_pass"]) + ("" if _is_planned(line) else " (not as planned)")),
        ("beside", _beside),
    ]


def _brief(matrix: str) -> str:
    """A graph's name without GAP's parameters and the seed, which all have, and the kind of values, which stands beside."""
    return re.sub(r", 16, 0\.57, 0\.19, 0\.19|, seed=1| of float\d+", "", matrix)


def _is_planned(line: dict[str, Any]) -> bool:
    return bool(line["bytes_planned"] == line["bytes_executed"])


def _budget(line: dict[str, Any]) -> str:
    """What the devices may take; where nothing is streamed from memory, what they take."""
    if line.get("tier") == "file":
        return f"{format_bytes(line['budget_bytes'])}, from a file, {'cold' if line['is_cold'] else 'warm'}"
    return format_bytes(line["budget_bytes"]) if line["bytes_a_pass"] else f"in core, {format_bytes(line['peak_bytes'])}"


def _beside(line: dict[str, Any]) -> str:
    """What the pass is compared with, where there is something."""
    if "share_of_bound" in line:
        return f"**{line['share_of_bound']:.2f}** of {'disk' if line['is_cold'] else 'cache'} and product"
    if line["bytes_a_pass"]:
        return f"**{line['share_of_link']:.3f}** of the link" if "share_of_link" in line else ""
    compute = "float32" if line["precision"] == "FFF" else "float64"
    others = [peer for peer in line["peers"] if "seconds" in peer and peer["columns"] <= line["columns"]]
    a_vector = {
        peer["peer"]: min(peer["seconds"]) / peer["columns"]
        for peer in sorted(others, key=lambda peer: -min(peer["seconds"]) / peer["columns"])
        if peer.get("dtype", "float64") == compute
    }  # the fastest of each name last
    return ", ".join(f"**{each * line['columns'] / line['pass_seconds']:.2f}** x {name}" for name, each in a_vector.items())
