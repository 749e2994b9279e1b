"""The table of whole calls beside those of other libraries, from the files that ``benchmarks/whole_calls.py`` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.read_results import duration, read_result, result_named

#: What is measured, by case, in the order of the table.
CASES = {
    "cupy": "CuPy",
    "numpy": "NumPy",
    "function": "function",
    "host": "host, {threads} cores",
}

#: Orders that the files and the picture have, and the table leaves out.
LEFT_OUT = {30, 300, 2_000, 2_048}

NOTE = """\
Medians of whole calls on an exponential covariance, from the matrix as the caller has it until L is where the caller wants it.
*CuPy*: array in, L on the GPU. *NumPy*: array in, L in host memory. *function*: of tiles, L on the GPU; its peer makes the matrix
whole. *host*: NumPy in and out. *First call*: that of the order in its process; the first of a case loads libraries too.
The files have other orders, and slower peers."""


def call_lines(folder: Path) -> list[dict[str, Any]]:
    """Lines of the files in ``folder`` with the case and the machine of each: by what is measured, then by order."""
    order, lines = list(CASES), []
    for path in sorted(folder.glob("*.json")):
        content = read_result(path)
        with result_named(path):
            found = [{"case": content["case"], "machine": content["machine"]} | line for line in content["lines"]]
            for line in found:
                _check(line)
        lines += [line for line in found if line["n"] not in LEFT_OUT]
    return sorted(lines, key=lambda line: (order.index(line["measured"]), line["n"]))


def _check(line: dict[str, Any]) -> None:
    """Raise what writing the line into the table would raise."""
    if line["measured"] not in CASES or not isinstance(line["n"], int):
        raise ValueError(f"{line['measured']!r:.40} of order {line['n']!r:.40} is no line of the table")
    for _, cell in call_columns(""):
        cell(line)


def call_columns(link: str) -> list[tuple[str, Callable[[dict[str, Any]], str]]]:
    """Headings and cells; ``link`` is the folder of the files as the document sees it."""

    def what(line: Mapping[str, Any]) -> str:
        """What goes in and out, linked to the file."""
        return f"[{CASES[line['measured']].format(threads=line['machine']['threads'])}]({link}/{line['case']}.json)"

    return [
        ("what", what),
        ("n", lambda line: f"{line['n']:,}"),
        ("ours", lambda line: duration(line["medians"]["ours"])),
        ("fastest other", lambda line: _fastest_other(line, lambda name, _: name)),
        ("takes", lambda line: _fastest_other(line, lambda _, seconds: duration(seconds))),
        ("ours over it", lambda line: _fastest_other(line, lambda _, seconds: f"**{line['medians']['ours'] / seconds:.2f}**")),
        ("first call", lambda line: duration(line["first_call"])),
    ]


def _fastest_other(line: Mapping[str, Any], cell: Callable[[str, float], str]) -> str:
    """A cell of the other library with the least median; nothing where there is none."""
    others = [(name, float(seconds)) for name, seconds in line["medians"].items() if name != "ours"]
    return cell(*min(others, key=lambda other: other[1])) if others else ""
