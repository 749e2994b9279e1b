"""The same temperatures by other packages: whole fits and predictions of MODIS beside those of `geostat_modis.py`.

`FOLDER` holds `modis.npz`. Peers: `pip install '.[peers]'`. Exponential covariance, constant mean, Vecchia's approximation with
as many neighbours as ours, each package's own optimizer and prediction; sites in degrees, values less their mean.
"""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.competition.trial import HeldOut, read_modis
from benchmarks.running import Options, Parser
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.kriging.predicted import Prediction

FOLDER = "geostat"
Array = NDArray[np.float64]


def gpboost(data: HeldOut, options: Options) -> dict[str, Any]:
    """GPBoost's Vecchia approximation, fit and prediction."""
    import gpboost as package

    began = time.perf_counter()
    gp = package.GPModel(
        gp_coords=data.sites,
        cov_function="exponential",
        gp_approx="vecchia",
        num_neighbors=options.neighbours,
        num_parallel_threads=options.threads,
    )
    values = data.values - data.values.mean()
    gp.fit(y=values, X=np.ones((len(values), 1)))
    fitted = time.perf_counter()
    design = np.ones((len(data.test_sites), 1))
    found = gp.predict(gp_coords_pred=data.test_sites, X_pred=design, predict_var=True, predict_response=True)
    ended = time.perf_counter()
    nugget, variance, length = (float(each) for each in np.ravel(gp.get_cov_pars(format_pandas=False))[:3])
    prediction = Prediction(np.asarray(found["mu"]) + data.values.mean(), np.asarray(found["var"]), "observation")
    return {
        "version": importlib.metadata.version("gpboost"),
        "settings": f'gp_approx="vecchia", {options.neighbours} neighbours, intercept, its default optimizer and prediction',
        "estimates": {"variance": variance, "range": length, "smoothness": 0.5, "nugget": nugget},
        "iterations": int(gp._get_num_optim_iter()),
        "scores": vars(geostat.score(prediction, data.test_values, data.values)),
        "seconds": {"fit": fitted - began, "predict": ended - fitted, "all": ended - began},
    }


PEERS: dict[str, Callable[[HeldOut, Options], dict[str, Any]]] = {"GPBoost": gpboost}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.set_defaults(name="modis-peers-host")
    parser.takes(data=Path, peers=tuple(PEERS), threads=2, neighbours=30)
    parser.add_argument("--n", type=int, help="values to fit, at random")
    parser.add_argument("--test", type=int, help="values to predict, at random")


def run(options: Options) -> None:
    """Run the peers that are asked for, and write the file after each."""
    data = read_modis(options.data / "modis.npz").thinned(options.n, options.test)
    content: dict[str, Any] = {
        "case": "modis-peers",
        "load_average": os.getloadavg()[0],
        "threads": options.threads,
        "data": data.name,
        "n": len(data.values),
        "held_out": len(data.test_values),
        "peers": {},
    }
    for name in options.peers:
        content["peers"][name] = PEERS[name](data, options)
        options.write(content)
        print(name, content["peers"][name]["scores"], content["peers"][name]["seconds"], flush=True)
