"""True errors of log-determinants beside their certified half-widths, for fifteen families of matrices, on the host.

For each family and threshold the error of ``L.logdet()`` as it is, of the certified
value, the half-width and the gap, with the truth in long double. Orders are 400 in tiles of 32; the fewest bytes within a
threshold are asked for, so that mixed precision runs.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options
from tests.host.structured import STRUCTURED
from tests.long_double import truth_of

FOLDER = "certified"
N, NB, THRESHOLDS = 400, 32, (1e-3, 1e-6)


def measured(name: str, threshold: float) -> dict[str, Any]:
    """One matrix of a family."""
    rng = np.random.default_rng(len(name))
    a = STRUCTURED[name](N, rng)
    truth = truth_of(a, np.ones(N)).logdet
    with oc.cholesky(a, threshold, tile_size=NB, devices="host:0", objective="bytes", strict=False) as factor:
        plain, answer = factor.logdet(), factor.logdet(certified=True)
        formats = dict(factor.formats)
    return {
        "formats": formats,
        "gap": answer.gap,
        "error_as_it_is": abs(float(plain - truth)),
        "error": abs(float(answer.value - truth)),
        "half_width": answer.half_width if np.isfinite(answer.half_width) else None,
        "is_inside": bool(answer.lower <= truth <= answer.upper),
    }


NAME = "families"


def run(options: Options) -> dict[str, Any]:
    """Measure all."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"n": N, "tile_size": NB, "families": {}}
    for name in STRUCTURED:
        found["families"][name] = {f"{threshold:g}": measured(name, threshold) for threshold in THRESHOLDS}
        print(name, found["families"][name], flush=True)
    return found
