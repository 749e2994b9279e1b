"""Normalized cuts of images by this package, SciPy's eigsh and scikit-learn's spectral clustering: seconds of each.

    python benchmarks/segments.py NAME [--sizes 100x80 240x160 480x320 600x450 1920x1080] [--images camera coins coffee]
                                  [--device host:0] [--solvers first whole scipy sklearn-amg] [--limit 600] [--threads 2]
                                  [--repeats 1] [--preconditioner auto] [--output FOLDER]
    python benchmarks/segments.py NAME --update docs/spectral.md      rewrite the table there from the result file

Writes ``benchmarks/results/spectral/NAME.json``. Images are scikit-image's, resized, in grey; ``sigma_i`` is 20, the radius 5.
Every run is a process of its own with a time limit; with ``--repeats 2`` ours are run again in it, and ``again`` is the last one,
when kernels are compiled and modules there. *first*: one split, with the affinity and its eigenvectors; *whole*: splits
until the normalized cut is above ``--max-ncut``; *scipy*: ``scipy.sparse.linalg.eigsh`` for five eigenvectors of the same matrix,
and no split; *sklearn-amg*, *sklearn-arpack*: ``spectral_clustering`` into two, of the same affinity. Seconds are of the wall
and, in the file, of the processor.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from ooc_chol.apps import spectral
from ooc_chol.apps.spectral.images.affinity import check_scales, pixel_affinity
from ooc_chol.apps.spectral.images.features import features_of
from ooc_chol.bench.results import commit, machine, write_json

RESULTS = Path(__file__).resolve().parent / "results/spectral"
SIGMA_I, RADIUS, TOL, VECTORS = 20.0, 5, 1e-6, 4
SOLVERS = ("first", "whole", "scipy", "sklearn-amg", "sklearn-arpack")
_PLACE = re.compile(r"(<!-- segments -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def image_of(name: str, size: str) -> NDArray[np.float64]:
    """An image of scikit-image in grey, from 0 to 255, of ``COLUMNSxROWS`` pixels."""
    from skimage import color, data, transform

    image = getattr(data, name)()
    grey = 255 * color.rgb2gray(image) if image.ndim == 3 else image
    columns, rows = map(int, size.split("x"))
    return np.asarray(transform.resize(grey, (rows, columns), anti_aliasing=True, preserve_range=True), np.float64)


def ours(image: NDArray[np.float64], options: argparse.Namespace, *, is_whole: bool) -> dict[str, Any]:
    """One split, or all."""
    limits = {"max_ncut": options.max_ncut, "max_depth": 20} if is_whole else {"max_ncut": 2.0, "max_depth": 1}
    solver = {"devices": options.device, "preconditioner": options.preconditioner}
    found = spectral.normalized_cut(image, sigma_i=SIGMA_I, radius=RADIUS, tol=TOL, **solver, **limits)
    facts: dict[str, Any] = {"ncut": found.ncut, "n_segments": found.n_segments, "splits": len(found.tree)}
    return {**facts, "report": json.loads(json.dumps(found.report.to_dict(), default=str))}


def scipys(image: NDArray[np.float64]) -> dict[str, Any]:
    """Eigenvectors alone, once the affinity is there."""
    from scipy.sparse.linalg import eigsh

    since = time.perf_counter()
    w = affinity_of(image)
    made = time.perf_counter() - since
    left = 1 / np.sqrt(np.asarray(w.sum(axis=1)).ravel())
    a = csr_array(diags_array(left) @ w @ diags_array(left))
    since = time.perf_counter()
    values, vectors = eigsh(a, VECTORS + 1, which="LA", tol=TOL)
    seconds = time.perf_counter() - since
    residuals = np.linalg.norm(a @ vectors - vectors * values, axis=0)
    facts = {"affinity_seconds": made, "solve_seconds": seconds, "residual": float(residuals.max())}
    return {**facts, "eigenvalues": (1 - values).tolist(), "n_entries": int(a.nnz)}


def sklearns(image: NDArray[np.float64], solver: str) -> dict[str, Any]:
    """Spectral clustering into two of the affinity."""
    from sklearn.cluster import spectral_clustering

    w = affinity_of(image)
    w.indices, w.indptr = w.indices.astype(np.int32), w.indptr.astype(np.int32)
    since = time.perf_counter()
    labels = spectral_clustering(w, n_clusters=2, eigen_solver=solver, random_state=0)
    return {"solve_seconds": time.perf_counter() - since, "sizes": np.bincount(labels).tolist()}


def affinity_of(image: NDArray[np.float64]) -> csr_array:
    """The affinity that all are given."""
    return pixel_affinity(features_of(image, "grey", None), check_scales(RADIUS, SIGMA_I, None)).adjacency


def one(options: argparse.Namespace) -> dict[str, Any]:
    """One image of one size by one solver."""
    solver, name, size = options.one
    image = image_of(name, size)
    wall, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if solver in ("first", "whole"):
            facts = ours(image, options, is_whole=solver == "whole")
        else:
            facts = scipys(image) if solver == "scipy" else sklearns(image, solver.removeprefix("sklearn-"))
        seconds = {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}
        for _ in range(options.repeats - 1 if solver in ("first", "whole") else 0):
            wall = time.perf_counter()
            again = ours(image, options, is_whole=solver == "whole")
            facts["again"] = {"seconds": time.perf_counter() - wall, **again}
    return {**seconds, **facts}


def limited(options: argparse.Namespace, *what: str) -> dict[str, Any]:
    """The same in a process of its own, which ends with the time limit."""
    words = [sys.executable, __file__, options.name, "--device", options.device, "--max-ncut", str(options.max_ncut)]
    words += ["--repeats", str(options.repeats), "--preconditioner", options.preconditioner]
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [*words, "--one", *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, env={**os.environ, **threads})
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {options.limit:g} s"}
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:200]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All images of all sizes, as far as they are, after each; a solver that was not done with an image is spared larger ones."""
    found: dict[str, Any] = {}
    for image in options.images:
        given_up: set[str] = set()
        for size in options.sizes:
            rows = found.setdefault(f"{image} {size}", {})
            for solver in options.solvers:
                if solver in given_up:
                    rows[solver] = {"failed": "not tried: not done with a smaller image"}
                    continue
                rows[solver] = limited(options, solver, image, size)
                if "failed" in rows[solver]:
                    given_up.add(solver)
                shown = {key: rows[solver].get(key) for key in ("seconds", "ncut", "n_segments", "solve_seconds", "failed")}
                shown["again"] = rows[solver].get("again", {}).get("seconds")
                print(image, size, solver, shown, flush=True)
                yield found


def table(cases: Mapping[str, Any]) -> str:
    """Markdown: seconds of each."""
    names = [name for name in SOLVERS if any(name in rows for rows in cases.values())]
    lines = [["image", "entries", "Ncut", *names, "segments"], ["---"] * (4 + len(names))]
    for case, rows in cases.items():
        first, whole = rows.get("first", {}), rows.get("whole", {})
        entries = first.get("report", {}).get("n_entries")
        facts = [case.replace("x", " x "), "" if entries is None else f"{entries:,}", f"{first.get('ncut', float('nan')):.2g}"]
        lines.append([*facts, *(_cell(rows.get(name, {})) for name in names), str(whole.get("n_segments", ""))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(run: Mapping[str, Any]) -> str:
    return f"{run['seconds']:.2g}" if "seconds" in run else "-"


def main() -> None:
    """Measure, or rewrite a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("--sizes", nargs="*", default=["100x80", "240x160", "480x320", "600x450", "1920x1080"])
    parser.add_argument("--images", nargs="*", default=["camera", "coins", "coffee"])
    parser.add_argument("--solvers", nargs="*", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--device", default="host:0")
    parser.add_argument(
        "--preconditioner", choices=("auto", "amg", "diagonal"), default="auto", help="ours, where it is not small"
    )
    parser.add_argument("--max-ncut", type=float, default=0.01)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a process may take (default: 600)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="how often ours are run in their process (default: 1)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the result file")
    parser.add_argument("--note", default="", help="of the machine, such as what else it did")
    parser.add_argument("--update", type=Path, metavar="DOCUMENT")
    parser.add_argument("--one", nargs=3, metavar=("SOLVER", "IMAGE", "SIZE"), help="print the figures of one run as JSON")
    options = parser.parse_args()
    path = options.output / f"{options.name}.json"
    if options.one is not None:
        print(json.dumps(one(options)))
    elif options.update is not None:
        cases = json.loads(path.read_text(encoding="utf-8"))["images"]
        new, count = _PLACE.subn(
            lambda match: f"{match[1]}\n{table(cases)}\n{match[2]}", options.update.read_text(encoding="utf-8")
        )
        if not count:
            parser.error(f"{options.update} has no place <!-- segments --> ... <!-- end -->")
        options.update.write_text(new, encoding="utf-8")
    else:
        content = {
            "case": options.name,
            "commit": commit(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(options.device.startswith("cuda")),
            "note": options.note,
            "threads": options.threads,
            "sigma_i": SIGMA_I,
            "radius": RADIUS,
            "tol": TOL,
            "preconditioner": options.preconditioner,
            "max_ncut": options.max_ncut,
        }
        for images in measured(options):
            write_json(content | {"images": images}, path)
        print(path)


if __name__ == "__main__":
    main()
