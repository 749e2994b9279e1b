"""How fast covariance matrices are made on a device, and which share of a likelihood that is.

Rates are of tiles of 4096 beside the diagonal and far from it, sites in Morton order, the device otherwise idle. The share is
that of all generated tiles, alone, in the seconds of a log-likelihood whose plan is there: factorization, solves, determinant.
"""

from __future__ import annotations

import time
from contextlib import closing
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.running import Options
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat.covariances.covariance import covariance_source, derivative_source
from ooc_chol.apps.geostat.data.ordering import morton_order
from ooc_chol.apps.geostat.estimation.likelihood import evaluated
from ooc_chol.bench.ceilings import dgemm_tflops
from ooc_chol.dense.rates.timing import elapsed
from ooc_chol.kernels.registry import open_tile_device

FOLDER = "geostat"
_TILE = 4096
#: Sites of the tiles whose rate is measured.
_SITES = 40_960
_SMOOTHNESS = (0.3, 0.5, 1.0, 1.3, 1.5, 2.5, 4.2)


def sites(n: int) -> NDArray[np.float64]:
    """Uniform in the unit square, in Morton order."""
    found = np.random.default_rng(0).uniform(size=(n, 2))
    return found[morton_order(found)]


def sources() -> dict[str, Any]:
    """Matrices by name: Matérn of several smoothnesses, its derivatives, and other families."""
    places = sites(_SITES)
    found = {f"Matern nu={nu:g}": covariance_source(geostat.Matern(1.0, 0.1, nu, 0.01), places) for nu in _SMOOTHNESS}
    model = geostat.Matern(1.0, 0.1, 1.3, 0.01)
    for name in ("range", "smoothness"):
        found[f"Matern nu=1.3, derivative by {name}"] = derivative_source(model, places, name)
    found["PowerExponential power=1.5"] = covariance_source(geostat.PowerExponential(1.0, 0.1, 1.5, 0.01), places)
    found["GeometricAnisotropy of Matern nu=1.3"] = covariance_source(geostat.GeometricAnisotropy(model, 0.5, 0.3), places)
    degrees = places * np.array([360.0, 180.0]) - np.array([180.0, 90.0])
    found["GreatCircle of Matern nu=0.4"] = covariance_source(geostat.GreatCircle(geostat.Matern(1.0, 500.0, 0.4, 0.01)), degrees)
    timed = np.column_stack([places, np.random.default_rng(1).uniform(size=_SITES)])
    space_time = geostat.SeparableSpaceTime(geostat.Matern(1.0, 0.1, 1.3), geostat.Matern(1.0, 0.2, 0.5))
    found["SeparableSpaceTime of Matern nu=1.3 and nu=0.5"] = covariance_source(space_time, timed)
    return found


def rates(name: str, repeats: int) -> dict[str, Any]:
    """Entries per second of each matrix on the device, every repeat."""
    found: dict[str, Any] = {}
    near, far = range(_SITES - _TILE, _SITES), range(_TILE)
    with closing(open_tile_device(name)) as device, device.current():
        stream = device.create_stream("generation")
        tile = device.allocate(1, 8 * _TILE**2, _TILE).tile(0, (_TILE, _TILE))
        for label, source in sources().items():
            device.prepare(source.prepare)
            seconds = {}
            for place, cols in {"diagonal": near, "far": far}.items():
                device.generate(stream, source.function, near, cols, tile)
                seconds[place] = [
                    elapsed(stream, lambda cols=cols, source=source: device.generate(stream, source.function, near, cols, tile))
                    for _ in range(repeats)
                ]
            each = {place: _TILE**2 / median(values) for place, values in seconds.items()}
            found[label] = {"entries_per_second": each, "seconds": seconds}
            print(f"{label}: " + ", ".join(f"{place} {rate:.3g}/s" for place, rate in each.items()), flush=True)
    return found


def share(options: Options, rate: float) -> dict[str, Any]:
    """What generation is of a likelihood of order ``n``, Matérn of general smoothness."""
    model = geostat.Matern(1.0, 0.1, 1.3, 0.01)
    places = sites(options.n)
    observations = geostat.make_observations(places, np.sin(9 * places[:, 0]) + np.cos(7 * places[:, 1]))
    seconds: list[float] = []
    report: dict[str, Any] = {}
    ceiling: list[float] = []
    with oc.HostMemory() as memory:
        settings = geostat.FactorSettings(devices=options.devices, memory_budget=options.memory_budget, memory=memory)
        for repeat in range(options.repeats + 1):  # the first one plans, allocates and compiles
            began = time.perf_counter()
            with evaluated(observations, model, variance=None, settings=settings) as found:
                took = time.perf_counter() - began
                settings, report = settings.reusing(found.factor.report.plan), found.factor.report.to_dict()
                if repeat:
                    seconds.append(took)
                print(f"likelihood {repeat}: {took:.2f} s, factorization {found.factor.report.inside_seconds:.2f} s", flush=True)
                if repeat == options.repeats:
                    ceiling = dgemm_tflops(found.factor, found.factor.report.plan.devices, 1.0)
    made = options.n * (options.n + 1) / 2
    return {
        "n": options.n,
        "likelihood_seconds": seconds,
        "generation_seconds": made / rate,
        "share": made / rate / median(seconds),
        "factorization": report,
        "dgemm_tflops": ceiling,
    }


TAKES = {"devices": "host:0", "n": 100_000, "memory_budget": None, "repeats": 5}


def run(options: Options) -> dict[str, Any]:
    """Measure rates, and the share of a likelihood."""
    found = rates(options.device, options.repeats)
    of_likelihood = share(options, min(found["Matern nu=1.3"]["entries_per_second"].values()))
    print(f"generation is {100 * of_likelihood['share']:.2f} % of a log-likelihood of order {options.n}")
    about = {"case": "generation", "tile_size": _TILE, "memory_budget": options.memory_budget}
    return about | {"rates": found, "likelihood": of_likelihood}
