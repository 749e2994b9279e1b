"""The same temperatures by other packages: whole fits and predictions of MODIS beside those of `geostat_modis.py`.

    python benchmarks/geostat_modis_peers.py --data FOLDER [--peers GPBoost] [--threads 2] [--neighbours 30]
        [--n N] [--test N] [--output DIR]

`FOLDER` holds `modis.npz`. Peers: `pip install '.[peers]'`. Exponential covariance, constant mean, Vecchia's approximation with
as many neighbours as ours, each package's own optimizer and prediction; sites in degrees, values less their mean.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from benchmarks.competition.trial import HeldOut, read_modis
from ooc_chol.bench.results import commit, machine, write_json

RESULTS = Path(__file__).resolve().parent / "results/geostat"
Array = NDArray[np.float64]


def gpboost(data: HeldOut, options: argparse.Namespace) -> dict[str, Any]:
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


PEERS: dict[str, Callable[[HeldOut, argparse.Namespace], dict[str, Any]]] = {"GPBoost": gpboost}


def main() -> None:
    """Run the peers that are asked for, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--neighbours", type=int, default=30)
    parser.add_argument("--n", type=int, help="values to fit, at random")
    parser.add_argument("--test", type=int, help="values to predict, at random")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = read_modis(options.data / "modis.npz").thinned(options.n, options.test)
    content: dict[str, Any] = {
        "case": "modis-peers",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(with_gpus=False),
        "load_average": os.getloadavg()[0],
        "threads": options.threads,
        "data": data.name,
        "n": len(data.values),
        "held_out": len(data.test_values),
        "peers": {},
    }
    for name in options.peers:
        content["peers"][name] = PEERS[name](data, options)
        write_json(content, options.output / "modis-peers-host.json")
        print(name, content["peers"][name]["scores"], content["peers"][name]["seconds"], flush=True)


if __name__ == "__main__":
    main()
