"""``bench links``: what copies between host and GPUs, and between GPUs, can do on this machine."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ooc_chol.bench.results import RESULT_FILES, commit, machine, write_json
from ooc_chol.files.outputs import Output, check_outputs, output_folder
from ooc_chol.hardware.registry import resolve_devices


def run_links(name: str, devices: str | Sequence[str] | int | None, folder: Path) -> dict[str, Any]:
    """Measure all links of some GPUs and write a JSON file."""
    names = resolve_devices(devices)
    if not names[0].startswith("cuda:"):
        raise ValueError(f"{names[0]} has no links to measure: they lead to GPUs, and there is none here or none was named")
    from ooc_chol.bench.cuda import copy_rates

    output_folder(folder, option="--output")
    check_outputs([Output("--case", folder / f"{name}.json", RESULT_FILES)], ask="")
    result = {
        "case": name,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(True),
        "devices": list(names),
        "copy_bytes": copy_rates.COPY_BYTES,
        "copies": copy_rates.COPIES,
        "links": copy_rates.measure_links(names),
    }
    write_json(result, folder / f"{name}.json")
    return result


def describe(links: Sequence[Mapping[str, Any]]) -> str:
    """One line for each measurement: what, where, and GB/s."""
    width = max(len(link["what"]) for link in links)
    return "\n".join(_line(link, width) for link in links)


def _line(link: Mapping[str, Any], width: int) -> str:
    """One measurement; of many copies the least and the most."""
    rates = dict(link["gigabytes_per_second"])
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
    if len(rates) > 4:
        shown = f"{len(rates)} copies of {min(rates.values()):.1f} to {max(rates.values()):.1f}"
    return f"{link['what']:<{width}}  {', '.join(link['devices'])}: {sum(rates.values()):.1f} GB/s ({shown})"
