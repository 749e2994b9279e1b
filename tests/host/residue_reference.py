"""What residue kernels must give, in Python's integers and fractions, and how the tests call the host's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import SimpleNamespace

import numpy as np

from tests.builders import host_residue_kernels
from tests.inside.kernels import HostResidueKernels
from tests.inside.precision import FP64, PrecisionFormat, ResidueBasis

#: A stream that runs what it is given at once.
STREAM = SimpleNamespace(name="test", enqueue=lambda operation: operation())


@contextmanager
def host_kernels(moduli: int, diagonal, threads: int = 1, fmt: PrecisionFormat = FP64) -> Iterator[HostResidueKernels]:
    """Kernels for tiles of one format, whose rows have the given diagonal entries of A."""
    kernels = host_residue_kernels(moduli, threads, fmt)
    kernels.open(len(diagonal))
    kernels.set_diagonal(STREAM, 0, np.diag(diagonal).astype(fmt.dtype))
    try:
        yield kernels
    finally:
        kernels.close()


def canonical(number: int, modulus: int) -> int:
    """``number mod m`` nearest to zero, and ``-m / 2`` rather than ``m / 2``."""
    residue = number % modulus
    return residue - modulus if residue > (modulus - 1) // 2 else residue


def residues(numbers, basis: ResidueBasis) -> np.ndarray:
    """Canonical residues of an array of Python integers, one plane a modulus."""
    numbers = np.asarray(numbers, dtype=object)
    planes = [[canonical(number, m) for number in numbers.ravel()] for m in basis.moduli]
    return np.array(planes, dtype=np.int64).reshape(basis.count, *numbers.shape)


def integer(value: float, e: int) -> int:
    """``round(2**e value)``, to nearest even."""
    return round(Fraction(float(value)) * Fraction(2) ** int(e))


def difference(a_ij: float, total: int, e: int) -> float:
    """``a_ij - total / 2**e``, ``a_ij`` rounded to a multiple of ``2**-e`` first; the conversion rounds correctly."""
    return float((integer(a_ij, e) - total) * Fraction(2) ** -int(e))
