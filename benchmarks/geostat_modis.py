"""MODIS land-surface temperatures of Heaton et al. (2019): 105,569 values fitted, 42,740 predicted and scored.

    python -m benchmarks geostat_modis --data FOLDER --exact --devices cuda:0 --memory-budget "16 GiB"

On the host by Vecchia's approximation. `FOLDER` holds `modis.npz`. `modis-vecchia-host.json` or `modis-h200.json` has every
model: the fit from automatic starts, predictions of all held-out sites with scores, and wall and processor seconds of each
part. A model is not begun after `--limit` seconds, and a file is written after each.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import ooc_chol as oc
from benchmarks.competition.trial import TRIALS, Trial, read_modis, run_trial
from benchmarks.running import Options, Parser
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.estimation.progress import progress_for

FOLDER = "geostat"
#: Models of a run on the host unless told otherwise.
HOST_MODELS = "half-constant"


def trial_of(name: str, options: Options) -> Trial:
    """The model of a name, as the options want it."""
    return Trial.named(
        name,
        method="exact" if options.exact else "vecchia",
        shared=options.shared,
        settings=geostat.FactorSettings(
            devices=options.devices, memory_budget=options.memory_budget, precision_threshold=options.precision_threshold
        ),
    )


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(data=Path, devices=None, memory_budget=None, precision_threshold=float, exact=False)
    parser.add_argument("--models", help=f"some of {','.join(TRIALS)} (default: all exact, {HOST_MODELS} otherwise)")
    parser.add_argument("--shared", type=int, default=400, help="data from which a group of sites is predicted")
    parser.add_argument("--n", type=int, help="values to fit, at random")
    parser.add_argument("--test", type=int, help="values to predict, at random")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds after which no model is begun")


def run(options: Options) -> int:
    """Every model that is begun in time; the file is written after each."""
    models = (options.models or (",".join(TRIALS) if options.exact else HOST_MODELS)).split(",")
    if unknown := set(models) - set(TRIALS):
        raise ValueError(f"there is no model {', '.join(sorted(unknown))}; there are {', '.join(TRIALS)}")
    data = read_modis(options.data / "modis.npz").thinned(options.n, options.test)
    began = time.perf_counter()
    how = "h200" if options.on_gpu else "exact-host" if options.exact else "vecchia-host"
    options.name = options.name or f"modis-{how}"
    content: dict[str, Any] = {
        "case": "modis",
        "load_average": os.getloadavg()[0],
        "memory_budget": options.memory_budget,
        "data": data.name,
        "n": len(data.values),
        "held_out": len(data.test_values),
        "models": [],
        "skipped": [],
    }
    for model in models:
        if time.perf_counter() - began > options.limit:
            content["skipped"].append(model)
            continue
        try:
            with closing(progress_for(sys.stderr, "degrees")) as progress:
                found = run_trial(data, trial_of(model, options), progress=progress)
        except oc.OocCholError as error:  # one model's failure must not lose the others
            content["models"].append({"model": model, "error": f"{type(error).__name__}: {error}"})
            print(content["models"][-1]["error"], file=sys.stderr)
            continue
        content["models"].append(found)
        content["seconds"] = time.perf_counter() - began
        content["peak_resident_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        options.write(content)
        print(json.dumps({key: found[key] for key in ("model", "scores", "seconds")}), flush=True)
    return int(any("error" in model for model in content["models"]))
