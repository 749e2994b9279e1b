"""Normalized cuts of images by this package, SciPy's eigsh and scikit-learn's spectral clustering: seconds of each.

Images are scikit-image's, resized, in grey; ``sigma_i`` is 20, the radius 5. Every run is a process of its own with a time
limit; with ``--repeats 2`` ours are run again in it, and ``again`` is the last one, when kernels are compiled and modules
there. *first*: one split, with the affinity and its eigenvectors; *whole*: splits until the normalized cut is above
``--max-ncut``; *scipy*: ``scipy.sparse.linalg.eigsh`` for five eigenvectors of the same matrix, and no split; *sklearn-amg*,
*sklearn-arpack*: ``spectral_clustering`` into two, of the same affinity. Seconds are of the wall and, in the file, of the
processor.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from benchmarks.running import Options, Parser, apart, both_seconds, markdown, seconds_of
from ooc_chol.apps import spectral
from ooc_chol.apps.spectral.images.affinity import check_scales, pixel_affinity
from ooc_chol.apps.spectral.images.features import features_of

FOLDER, NAME = "spectral", "host-segments"
SIGMA_I, RADIUS, TOL, VECTORS = 20.0, 5, 1e-6, 4
SOLVERS = ("first", "whole", "scipy", "sklearn-amg", "sklearn-arpack")


def image_of(name: str, size: str) -> NDArray[np.float64]:
    """An image of scikit-image in grey, from 0 to 255, of ``COLUMNSxROWS`` pixels."""
    from skimage import color, data, transform

    image = getattr(data, name)()
    grey = 255 * color.rgb2gray(image) if image.ndim == 3 else image
    columns, rows = map(int, size.split("x"))
    return np.asarray(transform.resize(grey, (rows, columns), anti_aliasing=True, preserve_range=True), np.float64)


def ours(image: NDArray[np.float64], device: str, preconditioner: str, max_ncut: float, *, is_whole: bool) -> dict[str, Any]:
    """One split, or all."""
    limits = {"max_ncut": max_ncut, "max_depth": 20} if is_whole else {"max_ncut": 2.0, "max_depth": 1}
    solver = {"devices": device, "preconditioner": preconditioner}
    found = spectral.normalized_cut(image, sigma_i=SIGMA_I, radius=RADIUS, tol=TOL, **solver, **limits)
    facts: dict[str, Any] = {"ncut": found.ncut, "n_segments": found.n_segments, "splits": len(found.tree)}
    return {**facts, "report": json.loads(json.dumps(found.report.to_dict(), default=str))}


def scipys(image: NDArray[np.float64]) -> dict[str, Any]:
    """Eigenvectors alone, once the affinity is there."""
    from scipy.sparse.linalg import eigsh

    made, w = seconds_of(lambda: affinity_of(image))
    left = 1 / np.sqrt(np.asarray(w.sum(axis=1)).ravel())
    a = csr_array(diags_array(left) @ w @ diags_array(left))
    seconds, (values, vectors) = seconds_of(lambda: eigsh(a, VECTORS + 1, which="LA", tol=TOL))
    residuals = np.linalg.norm(a @ vectors - vectors * values, axis=0)
    facts = {"affinity_seconds": made, "solve_seconds": seconds, "residual": float(residuals.max())}
    return {**facts, "eigenvalues": (1 - values).tolist(), "n_entries": int(a.nnz)}


def sklearns(image: NDArray[np.float64], solver: str) -> dict[str, Any]:
    """Spectral clustering into two of the affinity."""
    from sklearn.cluster import spectral_clustering

    w = affinity_of(image)
    w.indices, w.indptr = w.indices.astype(np.int32), w.indptr.astype(np.int32)
    seconds, labels = seconds_of(lambda: spectral_clustering(w, n_clusters=2, eigen_solver=solver, random_state=0))
    return {"solve_seconds": seconds, "sizes": np.bincount(labels).tolist()}


def affinity_of(image: NDArray[np.float64]) -> csr_array:
    """The affinity that all are given."""
    return pixel_affinity(features_of(image, "grey", None), check_scales(RADIUS, SIGMA_I, None)).adjacency


def one(solver: str, name: str, size: str, repeats: int, *how: Any) -> dict[str, Any]:
    """One image of one size by one solver."""
    image, is_whole = image_of(name, size), solver == "whole"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if solver not in ("first", "whole"):
            run = partial(scipys, image) if solver == "scipy" else partial(sklearns, image, solver.removeprefix("sklearn-"))
            seconds, facts = both_seconds(run)
            return {**seconds, **facts}
        seconds, facts = both_seconds(lambda: ours(image, *how, is_whole=is_whole))
        for _ in range(repeats - 1):
            again, found = seconds_of(lambda: ours(image, *how, is_whole=is_whole))
            facts["again"] = {"seconds": again, **found}
    return {**seconds, **facts}


def measured(options: Options) -> Iterator[dict[str, Any]]:
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
                how = (options.repeats, options.device, options.preconditioner, options.max_ncut)
                rows[solver] = apart(one, solver, image, size, *how, seconds=options.limit, threads=options.threads)
                if "failed" in rows[solver]:
                    given_up.add(solver)
                shown = {key: rows[solver].get(key) for key in ("seconds", "ncut", "n_segments", "solve_seconds", "failed")}
                shown["again"] = rows[solver].get("again", {}).get("seconds")
                print(image, size, solver, shown, flush=True)
                yield found


def table(cases: Mapping[str, Any]) -> str:
    """Markdown: seconds of each."""
    names = [name for name in SOLVERS if any(name in rows for rows in cases.values())]
    lines = [["image", "segments", *names]]
    for case, rows in cases.items():
        segments = str(rows.get("whole", {}).get("n_segments", ""))
        lines.append([case.replace("x", " x "), segments, *(_cell(rows.get(name, {})) for name in names)])
    return markdown(*lines)


def _cell(run: Mapping[str, Any]) -> str:
    return f"{float(format(run['seconds'], '.2g')):g}" if "seconds" in run else "-"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--sizes", nargs="*", default=["100x80", "240x160", "480x320", "600x450", "1920x1080"])
    parser.add_argument("--images", nargs="*", default=["camera", "coins", "coffee"])
    parser.add_argument("--solvers", nargs="*", choices=SOLVERS, default=list(SOLVERS))
    parser.takes(devices="host:0", max_ncut=0.01, threads=2)
    words = "ours, where it is not small"
    parser.add_argument("--preconditioner", choices=("auto", "amg", "diagonal"), default="auto", help=words)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that a process may take (default: 600)")
    parser.add_argument("--repeats", type=int, default=1, help="how often ours are run in their process (default: 1)")
    parser.add_argument("--note", default="", help="of the machine, such as what else it did")


def documented(options: Options) -> dict[str, str]:
    """The table of a page by its mark, from the result file."""
    return {"segments": table(options.read()["images"])}


def run(options: Options) -> None:
    """Measure all images, and write the file after each."""
    about = {name: getattr(options, name) for name in ("note", "threads", "preconditioner", "max_ncut")}
    for images in measured(options):
        options.write(about | {"sigma_i": SIGMA_I, "radius": RADIUS, "tol": TOL, "images": images})
