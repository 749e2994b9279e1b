"""When imputation of whole slices works: errors by share observed, rank, graph, noise, schedule, rule; one result file.

Graphs: 200 places joined with their 8 nearest, 200 vertices any two joined with probability 0.05, a grid of 14 x 14, and a ring
of 200. Nearly all eigenvalues of the last two are double.
Slices of 24 x 24, of rank 1, 3 or 6 in the Fourier domain of the graph: in eigenvectors that are turned at random where an
eigenvalue is multiple, which the solver does not know. Errors are at what was not observed,
``||found - true|| / ||true||``. ``--update`` rewrites the tables of a
page from ``host-when.json``, and one of what ``ooc-chol bench imputation`` left in other files ``host-*.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, kronsum

import ooc_chol as oc
from benchmarks.running import Options, markdown
from ooc_chol.apps.imputation import cross_validate, neighbour_graph, relative_error

FOLDER = "imputation"
SIZE = 24
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
#: The default, and the convex model as the paper has it.
RULES: dict[str, dict[str, Any]] = {
    "garrote": {"shrinkage": "garrote", "momentum": 0.5},
    "soft": {"shrinkage": "soft", "momentum": 0.0},
}


def graphs(seed: int) -> dict[str, csr_array]:
    """The four graphs by name."""
    rng = np.random.default_rng(seed)
    places = neighbour_graph(rng.random((200, 2)), 8)
    upper = np.triu(rng.random((200, 200)) < 0.05, 1)
    path = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(14, 14))
    ring = diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-199, -1, 1, 199], shape=(200, 200))
    random = csr_array((upper + upper.T).astype(float))
    return {"places": places, "random": random, "grid": kronsum(path, path).tocsr(), "ring": ring.tocsr()}


def imputed(x: Any, fourier: oc.GraphFourier, mask: Any, true: Any, device: str, **options: Any) -> dict[str, Any]:
    """Error and seconds of one imputation."""
    since = time.perf_counter()
    found = oc.impute(x, mask, fourier, devices=device, **options)
    seconds = time.perf_counter() - since
    return {"error": relative_error(found.tensor, true, ~mask), "steps": found.report.steps, "seconds": seconds}


def runs(seed: int, device: str) -> Iterator[dict[str, Any]]:
    """All cases, each as it is there."""
    transforms = {name: oc.GraphFourier(graph) for name, graph in graphs(seed).items()}
    for name, fourier in transforms.items():
        for rank in (1, 3, 6):
            x = oc.testing.low_rank_tensor(fourier, SIZE, SIZE, rank, seed=seed)
            for by, share in (*(("slice", each) for each in SHARES), ("entry", 0.5), ("entry", 0.8)):
                mask = oc.testing.random_mask(x.shape, share, by=by, seed=seed)
                yield {"case": by, "graph": name, "rank": rank, "share": share, **imputed(x, fourier, mask, x, device)}
    fourier = transforms["places"]
    true = oc.testing.low_rank_tensor(fourier, SIZE, SIZE, 3, seed=seed)
    mask = oc.testing.random_mask(true.shape, 0.8, seed=seed)
    yield from of_the_other_laplacian(graphs(seed)["places"], seed, device)
    yield from beside_a_constant(fourier, true, mask, device)
    for decay in (0.3, 0.5, 0.7):
        for shrinkage, momentum in product(RULES, (0.0, 0.5)):
            options = {"decay": decay, "shrinkage": shrinkage, "momentum": momentum}
            yield {"case": "schedule", **options, **imputed(true, fourier, mask, true, device, n_lambdas=40, **options)}
    for noise in (0.01, 0.1, 0.3):
        x = true + noise * np.random.default_rng(seed).standard_normal(true.shape).astype(true.dtype)
        for name, rule in RULES.items():
            best = cross_validate(x, fourier, mask, folds=5, seed=seed, devices=device, **rule).best
            ended, whole = (imputed(x, fourier, mask, true, device, n_lambdas=each, **rule) for each in (best, 20))
            yield {"case": "noise", "noise": noise, "rule": name, "best": best, **ended, "to_the_end": whole}


def of_the_other_laplacian(graph: csr_array, seed: int, device: str) -> Iterator[dict[str, Any]]:
    """Truths of rank 1 for D - A and for the normalized Laplacian, each imputed by both; held-out errors, too."""
    fouriers = {normalized: oc.GraphFourier(graph, normalized=normalized) for normalized in (True, False)}
    for of, by in product(fouriers, fouriers):
        x = oc.testing.low_rank_tensor(fouriers[of], SIZE, SIZE, 1, seed=seed)
        mask = oc.testing.random_mask(x.shape, 0.8, seed=seed)
        held_out = cross_validate(x, fouriers[by], mask, seed=seed, devices=device).error
        found = imputed(x, fouriers[by], mask, x, device)
        yield {"case": "laplacian", "normalized": of, "by_normalized": by, "held_out": held_out, **found}


def beside_a_constant(fourier: oc.GraphFourier, true: Any, mask: Any, device: str) -> Iterator[dict[str, Any]]:
    """The same truth with a constant added: as it is, and with the mean of all that is observed taken off first."""
    for constant, is_centred in product((0.0, 1.0, 300.0), (False, True)):
        x = true + np.float32(constant)
        mean = x[mask].mean(dtype=np.float64).astype(x.dtype) if is_centred else x.dtype.type(0)
        found = imputed(x - mean, fourier, mask, true + np.float32(constant) - mean, device)
        norm = float(np.linalg.norm((true + np.float32(constant) - mean)[~mask]) / np.linalg.norm(true[~mask]))
        yield {"case": "constant", "constant": constant, "centred": is_centred, **found, "error": found["error"] * norm}


def tables(found: list[dict[str, Any]]) -> dict[str, str]:
    """Markdown of each table, by name."""
    shares = [f"{100 * share:.0f} %" for share in SHARES]
    lines: list[list[object]] = [["graph", "rank", *shares, "50 % of entries", "80 % of entries"]]
    cases = [each for each in found if each["case"] in ("slice", "entry")]
    for graph, rank in dict.fromkeys((each["graph"], each["rank"]) for each in cases):
        errors = [f"{each['error']:.1e}" for each in cases if (each["graph"], each["rank"]) == (graph, rank)]
        lines.append([graph, rank, *errors])
    schedule: list[list[object]] = [["decay", "shrinkage", "momentum", "error", "steps"]]
    noise: list[list[object]] = [["noise", "shrinkage", "values of lambda by cross-validation", "error", "error with all values"]]
    for each in found:
        if each["case"] == "schedule":
            facts = [f"{each['decay']:g}", each.get("shrinkage", "soft"), f"{each['momentum']:g}"]
            schedule.append([*facts, f"{each['error']:.1e}", each["steps"]])
        if each["case"] == "noise":
            facts = [f"{each['noise']:g}", each.get("rule", "soft"), each["best"]]
            noise.append([*facts, f"{each['error']:.2g}", f"{each['to_the_end']['error']:.2g}"])
    return {"observed": markdown(*lines), "schedule": markdown(*schedule), "noise": markdown(*noise)}


def beside(folder: Path) -> str:
    """Markdown of what ``ooc-chol bench imputation`` measured on the host, beside the paper's errors and steps by NumPy's SVD."""
    names = "graph, truth made in, observed, shrinkage, error, squared, paper, off, error of the rest, steps, seconds, a step"
    lines = [[*names.split(", "), "a step by NumPy's SVD"]]
    for path in sorted(folder.glob("host-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["case"] != "imputation":
            continue
        for run in content["runs"]:
            lines.append(cells(path.name, content, run))
    return markdown(*lines)


def cells(file: str, content: dict[str, Any], run: dict[str, Any]) -> list[str]:
    """One run; those before the garrote was there were of soft thresholds, and do not say which slices are off.

    Eigenvalues of the random graphs are simple, so that there is no other basis; files of turned truths say so in their names.
    """
    n, rows, columns = content["shape"]
    paper, is_split = run.get("paper_error") if columns == 50 else None, "off" in run
    found = [f"[{content['graph']}, {n} of {rows} x {columns}](../benchmarks/results/imputation/{file})"]
    found.append("any basis" if content["graph"].startswith("random") else "turned" if "turned" in file else "the solver's")
    found += [f"{100 * run['share']:.0f} %", run.get("shrinkage", "soft"), f"{run['error']:.1e}", f"{run['error'] ** 2:.1e}"]
    found += ["" if paper is None else f"{paper:g}", f"{run['off']} of {run['missing']}" if is_split else ""]
    found += [f"{run['error_of_the_rest']:.1e}" if is_split else ""]
    plain = run.get("numpy_svd_seconds_a_step")
    found += [str(run["report"]["steps"]), f"{run['seconds']:.3g}", f"{run['seconds_a_step']:.2g}"]
    return [*found, "" if plain is None else f"{plain:.2g}"]


def documented(options: Options) -> dict[str, str]:
    """The tables of a page by their marks, from ``host-when.json`` and files of ``ooc-chol bench imputation``."""
    found = options.read("host-when")["runs"]
    return {f"when {name}": table for name, table in (tables(found) | {"beside": beside(options.output)}).items()}


LINES = "runs"
TAKES = {"seed": 0, "devices": "host:0"}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Run all cases."""
    options.about = {"case": "imputation-when", "size": SIZE, "seed": options.seed}
    yield from runs(options.seed, options.device)
