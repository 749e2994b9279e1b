"""Fits of the same data by this package, GPBoost, GPyTorch and scikit-learn: seconds, likelihoods, predictions.

``DIR`` holds ``meuse.csv`` and the KAUST competition's ``XYZ_10K_15_0017526_23_1.csv``; the terrain comes with Matplotlib.
Peers: ``pip install '.[peers]'``. A tenth of the data is held out. All fit sites in a box of side 1 and values of mean 0 and
deviation 1; estimates, likelihoods (ours, exact, at everybody's estimates) and scores are in the units of the data. Every
package runs in a process of its own with the same number of threads; repeats go round, one fit of each in turn.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.geostat_peers_fits import PEERS, Array, Fitted
from benchmarks.running import Options, Parser, environment_apart, markdown, versions, words_apart
from ooc_chol.apps import geostat
from ooc_chol.bench.results import commit

FOLDER = "geostat"
KAUST = "XYZ_10K_15_0017526_23_1.csv"
#: Values in the fit before the first that is timed, which loads what is loaded lazily.
WARM_UP = 40
PACKAGES = ("numpy", "scipy", "scikit-learn", "gpboost", "gpytorch", "torch")
#: Use of the processor below which the machine is taken for quiet.
QUIET_CORES = 0.1
#: What is known of every repeat; the last is how many cores others used meanwhile.
REPEATED = ("seconds", "cpu_seconds", "others_cores")
#: Peers that a document shows; the file has others.
SHOWN = ("ooc_chol", "GPBoost", "GPyTorch-exact", "scikit-learn")
#: How far below the best a log-likelihood is said to be.
_FAR = 0.1


def meuse(folder: Path) -> tuple[Array, Array]:
    """Logarithm of zinc."""
    table = geostat.read_table(folder / "meuse.csv", ("x", "y", "zinc"))
    return table.stack(("x", "y")), np.log(table.columns["zinc"])


def kaust(folder: Path, n: int) -> tuple[Array, Array]:
    """The corner of the KAUST field with ``n`` values: at random, its correlation would be shorter than the distances."""
    table = geostat.read_table(folder / KAUST, ("x", "y", "Measure"))
    sites = table.stack(("x", "y"))
    corner = np.argsort(np.max(sites, axis=1), kind="stable")[:n]
    return sites[corner], table.columns["Measure"][corner]


def terrain(folder: Path, n: int) -> tuple[Array, Array]:
    """``n`` heights of the built-in terrain."""
    return geostat.jacksboro().sample(n)


@dataclass(frozen=True)
class Case:
    """One data set and what is known of the smoothness."""

    data: str
    load: Callable[[Path], tuple[Array, Array]]
    smoothness: float | None


CASES: Mapping[str, Case] = {
    "meuse": Case("log zinc, Meuse", meuse, 1.5),
    "kaust-1000": Case("KAUST field", partial(kaust, n=1000), 1.5),
    "kaust-2000": Case("KAUST field", partial(kaust, n=2000), 1.5),
    "terrain-2000": Case("terrain heights", partial(terrain, n=2000), 1.5),
    "meuse-free": Case("log zinc, Meuse", meuse, None),
    "kaust-1000-free": Case("KAUST field", partial(kaust, n=1000), None),
    "terrain-4000": Case("terrain heights", partial(terrain, n=4000), 1.5),
}


@dataclass(frozen=True, eq=False)
class Task:
    """What all packages fit: the standardized nine tenths, and the way back."""

    case: Case
    sites: Array
    values: Array
    new: Array
    held_out: Array
    side: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, case: Case, folder: Path) -> Task:
        """Read, split by a fixed seed, standardize."""
        sites, values = case.load(folder)
        held = np.zeros(len(values), dtype=bool)
        held[np.random.default_rng(0).permutation(len(values))[: len(values) // 10]] = True
        low, side = sites.min(axis=0), float(np.ptp(sites, axis=0).max())
        mean, deviation = float(values[~held].mean()), float(values[~held].std())
        box = (sites - low) / side
        return cls(case, box[~held], (values[~held] - mean) / deviation, box[held], values[held], side, mean, deviation)

    def in_units(self, found: Mapping[str, float]) -> dict[str, float]:
        """Estimates in the units of the data."""
        units = {"variance": self.deviation**2, "range": self.side, "smoothness": 1.0, "nugget": self.deviation**2}
        return {name: found[name] * unit for name, unit in units.items()}

    def judged(self, fitted: Fitted) -> dict[str, Any]:
        """Estimates, their exact likelihood, and scores of the predictions."""
        estimates, observed = self.in_units(fitted.estimates), self.values * self.deviation + self.mean
        judged: dict[str, Any] = {"estimates": estimates, fitted.counted: fitted.evaluations, "warnings": fitted.warnings}
        observations = geostat.make_observations(self.sites * self.side, observed)
        try:
            judged["loglik"] = geostat.log_likelihood(observations, geostat.Matern(**estimates)).loglik
        except (oc.NotPositiveDefiniteError, ValueError) as error:
            # a singular matrix, or a smoothness beyond those that are computed here
            judged |= {"loglik": None, "loglik_error": str(error)}
        mean, variance = fitted.predict(self.new)
        prediction = geostat.Prediction(mean * self.deviation + self.mean, variance * self.deviation**2, "observation")
        scores = geostat.score(prediction, self.held_out, observed)
        return judged | {"rmse": scores.rmse, "coverage": scores.coverage, "crps": scores.crps}


def busy_seconds() -> float:
    """Processor seconds that the machine has worked, by Linux's own count."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle, waiting = 3, 4
    return (sum(ticks) - ticks[idle] - ticks[waiting]) / os.sysconf("SC_CLK_TCK")


class Quiet:
    """Waits, within a budget of seconds, for others to leave the processor alone."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def wait(self) -> None:
        """Until one second passes in which less than a tenth of a core is used, or the budget is spent."""
        while self._left > 0:
            before = busy_seconds()
            time.sleep(1.0)
            self._left -= 1.0
            if busy_seconds() - before < QUIET_CORES:
                return


def worker(of: str, name: str, folder: str, threads: int) -> None:
    """Fit whenever a line comes in; the answer is a line of JSON."""
    case = CASES[of]
    task, answers = Task.of(case, Path(folder)), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no answer
    peer = PEERS[name]
    peer.fit(task.sites[:WARM_UP], task.values[:WARM_UP], case.smoothness, threads)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        began, cpu, all_cpu = time.perf_counter(), time.process_time(), busy_seconds()
        fitted = peer.fit(task.sites, task.values, case.smoothness, threads)
        answer: dict[str, Any] = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
        answer["others_cores"] = max(0.0, (busy_seconds() - all_cpu - answer["cpu_seconds"]) / answer["seconds"])
        if line.strip() == "judge":
            answer |= task.judged(fitted)
        print(json.dumps(answer), file=answers, flush=True)


def start(name: str, case: str, options: Options) -> subprocess.Popen[str]:
    """A worker's process."""
    words, pipes = words_apart(worker, case, name, str(options.data), options.threads), ("stdin", "stdout", "stderr")
    environment = environment_apart(options.threads)
    return subprocess.Popen(words, **dict.fromkeys(pipes, subprocess.PIPE), text=True, env=environment)


def ask(process: subprocess.Popen[str], line: str | None) -> dict[str, Any]:
    """The answer to a line; the worker's last words when it ends instead."""
    if line is not None:
        print(line, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    return json.loads(answer) if answer else {"error": process.stderr.read().strip().splitlines()[-1:]}


def measure(name: str, peers: list[str], options: Options, quiet: Quiet) -> list[dict[str, Any]]:
    """All repeats of a case, one fit of each package in turn."""
    case = CASES[name]
    task = Task.of(case, options.data)
    runs = {}
    for peer in peers:
        runs[peer] = {"case": name, "data": case.data, "n": len(task.values), "held_out": len(task.held_out), "peer": peer}
        runs[peer] |= {"settings": PEERS[peer].settings, "version": PEERS[peer].version or commit()}
        runs[peer] |= {"smoothness": case.smoothness or "free", **{key: [] for key in REPEATED}}
    workers = {peer: start(peer, name, options) for peer in peers}
    for peer, process in workers.items():
        runs[peer] |= {key: text for key, text in ask(process, None).items() if key == "error"}
    for repeat in range(options.repeats):
        for peer, process in workers.items():
            if "error" in runs[peer]:
                continue
            quiet.wait()
            answer = ask(process, "judge" if repeat == options.repeats - 1 else "fit")
            for key in REPEATED:
                runs[peer][key] += [answer.pop(key)] if key in answer else []
            runs[peer] |= answer
    for peer, process in workers.items():
        process.communicate()
        told = runs[peer].get("loglik") or runs[peer].get("error") or runs[peer]["loglik_error"]
        print(f"{name:16} {peer:18} {' '.join(f'{s:.3f}' for s in runs[peer]['seconds'])} s  {told}", flush=True)
    return list(runs.values())


def installed(wanted: list[str], must: bool) -> tuple[list[str], list[str]]:
    """Peers that are here, and those that are left out; an error when one that was named is not here."""
    out = [name for name in wanted if PEERS[name].package and PEERS[name].version is None]
    if out and must:
        packages = " ".join(sorted({str(PEERS[name].package) for name in out}))
        raise ValueError(f"{', '.join(out)} cannot be measured: pip install {packages}")
    if out:
        print(f"left out, because not installed: {', '.join(out)}")
    return [name for name in wanted if name not in out], out


def about() -> dict[str, Any]:
    """Processor, its cores, versions."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.*)", told)
    found = {"cpu": model[1] if model else platform.processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    return found | {name: version for name, version in versions(*PACKAGES).items() if version}


def table(content: Mapping[str, Any]) -> str:
    """Seconds of the peers of :data:`SHOWN`, a row for each case."""
    lines = [["data", "fitted", "smoothness", *SHOWN]]
    for case in dict.fromkeys(run["case"] for run in content["runs"]):
        runs = {run["peer"]: run for run in content["runs"] if run["case"] == case}
        first = next(iter(runs.values()))
        best = max(run["loglik"] for run in runs.values() if run.get("loglik") is not None)
        cells = [_cell(runs[name], best) if name in runs else "" for name in SHOWN]
        lines.append([first["data"], f"{first['n']:,}", str(first["smoothness"]), *cells])
    machine = content["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("gpboost", "gpytorch", "scikit-learn") if name in machine)
    note = (
        f"Seconds: median of {content['repeats']}; in brackets how far the log-likelihood of the estimate is under the best, "
        f"where that is {_FAR:g} and more. {machine['cpu']}, {content['threads']} threads; {versions}."
    )
    return f"{markdown(*lines)}\n\n{note}\n"


def _cell(run: Mapping[str, Any], best: float) -> str:
    if "error" in run:
        return "failed"
    seconds = run["seconds"]
    if run["loglik"] is None:
        return f"{median(seconds):.3g} (not computable)"
    under = best - run["loglik"]
    return f"{median(seconds):.3g} ({under:.2f})" if under >= _FAR else f"{median(seconds):.3g}"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.set_defaults(name="peers")
    parser.takes(data=Path, cases=tuple(CASES), repeats=3, threads=2)
    parser.add_argument("--peers", nargs="+", choices=PEERS)
    parser.add_argument("--quiet", type=float, default=0.0, help="seconds in all to wait until others leave the processor alone")
    parser.add_argument("--note", default="", help="what the reader of the file should know of the machine")


def documented(options: Options) -> dict[str, str]:
    """The table of a page by its mark, from the result file."""
    return {"geostat peers": table(options.read())}


def run(options: Options) -> None:
    """Measure, and write the file after each case."""
    if options.data is None:
        raise ValueError("--data DIR is needed: the folder of meuse.csv and the KAUST data")
    peers, left_out = installed(options.peers or list(PEERS), must=options.peers is not None)
    content: dict[str, Any] = {
        "machine": about(),
        **{name: getattr(options, name) for name in ("threads", "repeats", "note")},
        "left_out": left_out,
        "load_average": [os.getloadavg()],
        "runs": [],
    }
    quiet = Quiet(options.quiet)
    for name in options.cases:
        free = CASES[name].smoothness is None
        content["runs"] += measure(name, [peer for peer in peers if PEERS[peer].estimates_smoothness or not free], options, quiet)
        content["load_average"].append(os.getloadavg())
        options.write(content)
