"""Factors whose bits must not change unnoticed: matrices of exact arithmetic, and a digest of L beside its arithmetic key.

``python -m tests.host.golden`` writes the file of digests anew: a deliberate change, in a commit of its own with its reason.
Bits belong to a BLAS library on one kind of processor; with another the tests of this file are deselected and counted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from tests.golden import GoldenFile, digest, library
from tests.host.escalation_cases import with_twins

#: Digests and keys by the name of a case, and the library with which they were made.
FILE = GoldenFile(Path(__file__).with_name("golden_bits.json"), "tests.host.golden")

N, NB = 300, 32


def cauchy(n: int, correlation_range: float, power: int, nugget: float) -> NDArray[np.float64]:
    """Covariance ``(1 + (d / range)**2)**-power`` of points along a curve, by operations that every machine rounds alike."""
    steps = np.arange(n, dtype=float) / n
    x, y = steps, (steps * 7.0) % 1.0 / 16.0
    squares = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2
    a = 1.0 / (1.0 + squares / correlation_range**2)
    result = a.copy()
    for _ in range(power - 1):
        result *= a
    return result + nugget * np.eye(n)


def cases() -> dict[str, dict[str, Any]]:
    """What is factored, and with which options, by name."""
    plain = {"A": cauchy(N, 0.05, 2, 1e-3), "tile_size": NB, "devices": "host:0", "memory_budget": "200 KiB"}
    residue = {**plain, "fp64": "residue", "memory_budget": "4 MiB"}
    mixed = {**plain, "precision_threshold": 1e-4}
    narrow = {**residue, "A": cauchy(2 * N, 0.05, 2, 1e-3), "precision_threshold": 1e-3, "moduli": 8}
    twins = (35, 90), (20, 50)
    hard = {**mixed, "precision_threshold": 1e-3, "A": with_twins(plain["A"], twins[:1], 1e-8)}
    harder = {**hard, "A": with_twins(plain["A"], twins, 1e-8)}
    return {
        "native": plain,
        "native, file": {**plain, "store": "native.ooc"},
        "residue, 14 moduli": residue,
        "residue, 8 moduli": {**residue, "moduli": 8},
        "mixed": mixed,
        "mixed, two devices": {**mixed, "devices": ["host:0", "host:1"]},
        "mixed residue": {**residue, "precision_threshold": 1e-4, "moduli": 8},
        "mixed residue, FP16": {**narrow, "half_products": True},
        "escalated": hard,
        "escalated to FP64": harder,
        "escalated residue": {**harder, "fp64": "residue", "memory_budget": "4 MiB"},
    }


def factor(name: str, folder: Path) -> oc.CholeskyFactor:
    """The factor of a case; its file, if it has one, is made in ``folder``."""
    options = cases()[name]
    if "store" in options:
        options["store"] = folder / options["store"]
    with threadpool_limits(limits=1, user_api="blas"):
        return oc.cholesky(**options)


def facts(one: oc.CholeskyFactor) -> dict[str, Any]:
    """Digest of L's bits, what they depend on, and how often pivots failed."""
    bits = digest(np.ascontiguousarray(np.asarray(one)).tobytes())
    return {"sha256": bits, "escalations": len(one.report.escalations), "key": one.arithmetic_key}


def record(folder: Path) -> dict[str, Any]:
    """All that the file holds."""
    made = {}
    for name in cases():
        with factor(name, folder) as one:
            made[name] = facts(one)
    return {"library": library(), "cases": made}


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        FILE.write(record(Path(folder)))
