"""MODIS land-surface temperatures of Heaton et al. (2019): 105,569 values fitted, 42,740 predicted and scored.

    python benchmarks/geostat_modis.py --data FOLDER                       on the host, by Vecchia's approximation
    python benchmarks/geostat_modis.py --data FOLDER --exact --devices cuda:0 --memory-budget "16 GiB"
        [--models half-constant,nested-constant,...] [--limit SECONDS] [--n N] [--test N] [--output DIR]

`FOLDER` holds `modis.npz`. `modis-vecchia-host.json` or `modis-h200.json` (`--name`) has every model: the fit from automatic
starts, predictions of all held-out sites with scores, and wall and processor seconds of each part. A model is not begun after
`--limit` seconds, and a file is written after each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.estimation.progress import progress_for
from benchmarks.competition.trial import TRIALS, HeldOut, Trial, read_modis, run_trial
from ooc_chol.bench.results import commit, machine, write_json

RESULTS = Path(__file__).resolve().parent / "results/geostat"
#: Models of a run on the host unless told otherwise.
HOST_MODELS = "half-constant"


def trial_of(name: str, options: argparse.Namespace) -> Trial:
    """The model of a name, as the options want it."""
    return Trial.named(
        name,
        method="exact" if options.exact else "vecchia",
        shared=options.shared,
        settings=geostat.FactorSettings(devices=options.devices, memory_budget=options.memory_budget),
    )


def run(options: argparse.Namespace, data: HeldOut) -> dict[str, Any]:
    """Every model that is begun in time; the file is written after each."""
    began, on_gpu = time.perf_counter(), bool(options.devices) and options.devices.startswith("cuda")
    name = options.name or ("modis-h200" if on_gpu else "modis-exact-host" if options.exact else "modis-vecchia-host")
    content: dict[str, Any] = {
        "case": "modis",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(on_gpu),
        "load_average": os.getloadavg()[0],
        "memory_budget": options.memory_budget,
        "data": data.name,
        "n": len(data.values),
        "held_out": len(data.test_values),
        "models": [],
        "skipped": [],
    }
    for model in options.models.split(","):
        if time.perf_counter() - began > options.limit:
            content["skipped"].append(model)
            continue
        try:
            with closing(progress_for(sys.stderr, "degrees")) as progress:
                found = run_trial(data, trial_of(model, options), progress=progress)
        except oc.OocCholError as error:  # one model's failure must not lose the others
            content["models"].append({"model": model, "error": f"{type(error).__name__}: {error}"})
            continue
        content["models"].append(found)
        content["seconds"] = time.perf_counter() - began
        content["peak_resident_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path = write_json(content, options.output / f"{name}.json")
        print(json.dumps({"file": str(path), **{key: found[key] for key in ("model", "scores", "seconds")}}), flush=True)
    return content


def main() -> None:
    """Read the data and run the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--exact", action="store_true", help="exact fits and kriging, in place of Vecchia's approximation")
    parser.add_argument("--models", help=f"some of {','.join(TRIALS)} (default: all exact, {HOST_MODELS} otherwise)")
    parser.add_argument("--shared", type=int, default=400, help="data from which a group of sites is predicted")
    parser.add_argument("--devices")
    parser.add_argument("--memory-budget")
    parser.add_argument("--n", type=int, help="values to fit, at random")
    parser.add_argument("--test", type=int, help="values to predict, at random")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds after which no model is begun")
    parser.add_argument("--name", help="of the result file")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.models = options.models or (",".join(TRIALS) if options.exact else HOST_MODELS)
    unknown = set(options.models.split(",")) - set(TRIALS)
    if unknown:
        parser.error(f"there is no model {', '.join(sorted(unknown))}; there are {', '.join(TRIALS)}")
    content = run(options, read_modis(options.data / "modis.npz").thinned(options.n, options.test))
    if any("error" in model for model in content["models"]):
        raise SystemExit("\n".join(model["error"] for model in content["models"] if "error" in model))


if __name__ == "__main__":
    main()
