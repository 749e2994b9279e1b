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

import numpy as np

import ooc_chol as oc
from benchmarks.competition.trial import TRIALS, HeldOut, Trial, read_modis, run_trial
from benchmarks.running import Options, Parser, seconds_of, versions
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.estimation.progress import progress_for
from ooc_chol.apps.geostat.kriging.predicted import Prediction

FOLDER = "geostat"
#: Models of a run on the host unless told otherwise.
HOST_MODELS = "half-constant"


def _data(options: Options) -> tuple[HeldOut, dict[str, Any]]:
    """The data as far as they are asked for, and what a result says of them."""
    data = read_modis(options.data / "modis.npz").thinned(options.n, options.test)
    about = {"load_average": os.getloadavg()[0], "data": data.name, "n": len(data.values), "held_out": len(data.test_values)}
    return data, about


def trial_of(name: str, options: Options) -> Trial:
    """The model of a name, as the options want it."""
    names = ("devices", "memory_budget", "precision_threshold")
    settings = geostat.FactorSettings(**{each: getattr(options, each) for each in names})
    return Trial.named(name, method="exact" if options.exact else "vecchia", shared=options.shared, settings=settings)


def options_of_data(parser: Parser) -> None:
    """Add what says which data are taken."""
    parser.takes(data=Path)
    parser.add_argument("--n", type=int, help="values to fit, at random")
    parser.add_argument("--test", type=int, help="values to predict, at random")


def options(parser: Parser) -> None:
    """Add what the case takes."""
    options_of_data(parser)
    parser.takes(devices=None, memory_budget=None, precision_threshold=float, exact=False)
    parser.add_argument("--models", help=f"some of {','.join(TRIALS)} (default: all exact, {HOST_MODELS} otherwise)")
    parser.add_argument("--shared", type=int, default=400, help="data from which a group of sites is predicted")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds after which no model is begun")


def usual_name(options: Options) -> str:
    """By what is fitted where."""
    return f"modis-{'h200' if options.on_gpu else 'exact-host' if options.exact else 'vecchia-host'}"


def run(options: Options) -> int:
    """Every model that is begun in time; the file is written after each."""
    models = (options.models or (",".join(TRIALS) if options.exact else HOST_MODELS)).split(",")
    if unknown := set(models) - set(TRIALS):
        raise ValueError(f"there is no model {', '.join(sorted(unknown))}; there are {', '.join(TRIALS)}")
    data, about = _data(options)
    began = time.perf_counter()
    content: dict[str, Any] = {"case": "modis", **about, "memory_budget": options.memory_budget, "models": [], "skipped": []}
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


NAME_peers = "modis-peers-host"


def options_peers(parser: Parser) -> None:
    """Add what the case takes."""
    options_of_data(parser)
    parser.takes(threads=2, neighbours=30)


def run_peers(options: Options) -> dict[str, Any]:
    """The same temperatures by GPBoost: a whole fit and predictions beside those of `geostat_modis`.

    `FOLDER` holds `modis.npz`. GPBoost: `pip install '.[peers]'`. Exponential covariance, constant mean, Vecchia's approximation
    with as many neighbours as ours, its own optimizer and prediction; sites in degrees, values less their mean.
    """
    import gpboost

    data, about = _data(options)
    how = {"cov_function": "exponential", "gp_approx": "vecchia", "num_neighbors": options.neighbours}
    gp = gpboost.GPModel(gp_coords=data.sites, num_parallel_threads=options.threads, **how)
    ones, new = np.ones((len(data.values), 1)), np.ones((len(data.test_sites), 1))
    fit, _ = seconds_of(lambda: gp.fit(y=data.values - data.values.mean(), X=ones))
    asked = {"predict_var": True, "predict_response": True}
    predict, found = seconds_of(lambda: gp.predict(gp_coords_pred=data.test_sites, X_pred=new, **asked))
    nugget, variance, length = (float(each) for each in np.ravel(gp.get_cov_pars(format_pandas=False))[:3])
    prediction = Prediction(np.asarray(found["mu"]) + data.values.mean(), np.asarray(found["var"]), "observation")
    told = {
        "version": versions("gpboost")["gpboost"],
        "settings": f'gp_approx="vecchia", {options.neighbours} neighbours, intercept, its default optimizer and prediction',
        "estimates": {"variance": variance, "range": length, "smoothness": 0.5, "nugget": nugget},
        "iterations": int(gp._get_num_optim_iter()),
        "scores": vars(geostat.score(prediction, data.test_values, data.values)),
        "seconds": {"fit": fit, "predict": predict, "all": fit + predict},
    }
    print(told["scores"], told["seconds"])
    return {"case": "modis-peers", **about, "threads": options.threads, "peers": {"GPBoost": told}}
