"""Precision against time and error of eigenpairs, as Figures 2 to 4 of Sgherzi, Parravicini and Santambrogio (2022) have them.

Two matrices: the adjacency of an R-MAT graph of ``2**scale`` vertices, and the Laplacian of a grid of ``side`` times ``side``
points with random edge weights. In each precision

- *converged*: block Lanczos with thick restarts runs for 250 passes, several times what 8 pairs take: the floors of a precision;
- *paper*: K = 8, 16 and 24 single steps for K pairs, with each reorthogonalization.

Errors are ``||A v - w v|| / ||v||``, in float64, relative to the largest magnitude of an eigenvalue. The file is
``precision-NAME.json``; ``--update`` writes its tables into a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import scipy.sparse as sp

import ooc_chol as oc
from benchmarks.k_steps import k_step_pairs
from benchmarks.running import Options, markdown, seconds_of
from ooc_chol.eigen.device_space import open_space
from ooc_chol.eigen.lanczos import Lanczos
from ooc_chol.eigen.wanted import Wanted

FOLDER = "eigen"
PAIRS, STEPS, NCV, BLOCK = 8, (8, 16, 24), 104, 8
#: Below any floor, so that the run goes on for so many passes, several times what they take to converge.
NO_TOL, FLOOR_PASSES = 1e-17, 250


def matrices(stack: ExitStack, scale: int, side: int) -> Iterator[tuple[str, oc.Operator, str]]:
    """Name, matrix, and from which end its pairs are wanted."""
    graph = stack.enter_context(oc.block_csr(oc.testing.rmat(scale, devices="host:0")))
    yield f"R-MAT, scale {scale}", oc.Operator(graph), "LM"
    grid = stack.enter_context(oc.block_csr(weighted_grid(side)))
    yield f"Laplacian, {side} x {side} grid", oc.laplacian(grid), "LA"


def weighted_grid(side: int) -> sp.csr_array:
    """A grid whose edges have random weights of 0 to 1 in float32."""
    points = np.arange(side * side).reshape(side, side)
    ends = np.concatenate([[points[:-1].ravel(), points[1:].ravel()], [points[:, :-1].ravel(), points[:, 1:].ravel()]], axis=1)
    weights = np.random.default_rng(0).random(ends.shape[1], np.float32)
    upper = sp.coo_array((weights, ends), shape=(side * side,) * 2)
    return (upper + upper.T).tocsr()


def converged(operator: oc.Operator, which: str, precision: oc.Precision, devices: str, repeats: int) -> dict[str, Any]:
    """Where residuals end, and the seconds of a run up to ten times that."""
    with open_space(operator, block=BLOCK, capacity=NCV // BLOCK + 1, precision=precision, devices=devices) as space:
        found = Lanczos(space, Wanted(PAIRS, which, NO_TOL), max_passes=FLOOR_PASSES, check=False).run()
    errors = found.residuals / found.scale
    tol = max(10 * float(errors.max()), {"FFF": 1e-6, "FDF": 1e-7, "DDD": 1e-12}[precision.value])
    how = {"precision": precision, "tol": tol, "ncv": NCV, "block": BLOCK, "devices": devices, "check": False}
    runs = [seconds_of(lambda: oc.eigsh(operator, PAIRS, which=which, **how)) for _ in range(repeats)]
    found = {"best": float(errors.min()), "worst": float(errors.max()), "tol": tol}
    return found | {"seconds": [seconds for seconds, _ in runs], "passes": runs[-1][1].report.passes}


def paper(operator: oc.Operator, precision: oc.Precision, how: str, k: int, devices: str, repeats: int) -> dict[str, Any]:
    """K steps for K pairs."""
    runs = [k_step_pairs(operator, k, reorthogonalize=how, precision=precision, devices=devices) for _ in range(repeats)]
    report, errors = runs[0].report, runs[0].residuals
    return {
        "k": k,
        "reorthogonalize": how,
        "best": float(errors.min()),
        "median": float(np.median(errors)),
        "worst": float(errors.max()),
        "mean_l2": float(errors.mean()),
        "deviation": report.deviation,
        "mean_angle_degrees": report.mean_angle_degrees,
        "seconds": [each.report.seconds for each in runs],
    }


def measure(options: Options) -> list[dict[str, Any]]:
    """All lines of the result."""
    lines: list[dict[str, Any]] = []
    with ExitStack() as stack:
        for name, operator, which in matrices(stack, options.scale, options.side):
            facts = {"matrix": name, "n": operator.shape[0], "entries": operator.matrix.nnz}
            for precision in oc.Precision:
                line = facts | {"precision": precision.value, "mode": "converged", "k": PAIRS}
                lines.append(line | converged(operator, which, precision, options.devices, options.repeats))
                print(lines[-1], flush=True)
                for how in ("full", "alternate", "none"):
                    for k in STEPS:
                        line = facts | {"precision": precision.value, "mode": "paper"}
                        lines.append(line | paper(operator, precision, how, k, options.devices, options.repeats))
                        print(lines[-1], flush=True)
    return lines


def tables(lines: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of a page, by name; single steps bring no pair of the grid, so that the page has those of the graph alone."""
    converged: list[list[object]] = [["matrix", "precision", "best of 8", "worst of 8", "passes", "seconds"]]
    head = "matrix, precision, reorthogonalization, best of 24, median, worst, largest cosine, mean angle, seconds"
    paper: list[list[object]] = [head.split(", ")]
    for line in lines:
        first, seconds = [line["matrix"], line["precision"]], f"{min(line['seconds']):.2g}"
        if line["mode"] == "converged":
            converged.append([*first, *(f"{line[name]:.1e}" for name in ("best", "worst")), line["passes"], seconds])
        elif line["k"] == STEPS[-1] and line["matrix"].startswith("R-MAT"):
            errors = [f"{line[name]:.1e}" for name in ("best", "median", "worst", "deviation")]
            paper.append([*first, line["reorthogonalize"], *errors, f"{line['mean_angle_degrees']:.2f}°", seconds])
    return {"converged": markdown(*converged), "paper": markdown(*paper)}


def files(options: Options) -> list[str]:
    """The file of a name."""
    return [f"precision-{options.name}"] if options.name else []


def documented(options: Options) -> dict[str, str]:
    """The tables of a page by their marks, from the result file."""
    lines = options.read(*files(options))["lines"]
    return {f"precision {name}": table for name, table in tables(lines).items()}


TAKES = {"scale": 16, "side": 60, "devices": "host:0", "repeats": 3}


def run(options: Options) -> None:
    """Measure, and print the tables."""
    lines = measure(options)
    content = {"case": f"eigen-precision-{options.name}", "devices": ",".join(options.devices), "lines": lines}
    options.write(content, *files(options))
    print("\n".join(tables(lines).values()))
