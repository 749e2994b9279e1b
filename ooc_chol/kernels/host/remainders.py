"""Numbers as residues and back, in NumPy: canonical residues, those of complex integers, and the Chinese remainder theorem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.kernels.host.words import Words, digits_of
from ooc_chol.precision.moduli import ResidueBasis

Integers: TypeAlias = NDArray[np.signedinteger]


def real_parts(tile: NDArray[Any]) -> list[NDArray[np.float64]]:
    """The entries in float64; of complex ones the real and the imaginary parts."""
    parts = (tile.real, tile.imag) if tile.dtype.kind == "c" else (tile,)
    return [part.astype(np.float64, copy=False) for part in parts]


def canonical(numbers: Integers, modulus: int) -> Integers:
    """``numbers mod m`` in ``[-(m // 2), (m - 1) // 2]``."""
    residues = numbers % modulus
    return residues - modulus * (residues > (modulus - 1) // 2)


def residues_of(basis: ResidueBasis, parts: Sequence[Integers]) -> Iterator[Integers]:
    """The planes of whole numbers, one after the other; of complex ones, given by their parts, ``x + w y`` and ``x - w y``."""
    if not basis.is_split:
        for modulus in basis.moduli:
            yield canonical(parts[0], modulus)
        return
    for sign in (1, -1):
        for modulus, root in zip(basis.moduli, basis.roots, strict=True):
            x, y = (canonical(part, modulus) for part in parts)
            yield canonical(x + sign * root * y, modulus)


def remainders_of(basis: ResidueBasis, sums: Integers) -> list[Words]:
    """The numbers in ``(-P/2, P/2]``, entry by entry, that have these residues, canonical or not; of complex ones both parts."""
    numbers = sums.astype(np.int32, copy=False)
    planes = np.array(
        [canonical(each, basis.moduli[p % basis.count]).ravel() for p, each in enumerate(numbers)], dtype=np.float64
    )
    if not basis.is_split:
        return [_remainder(basis.product, basis.weights, planes)]
    u, v = planes[: basis.count], planes[basis.count :]
    of_real, of_imaginary = basis.part_weights
    return [_remainder(basis.product, of_real, u + v), _remainder(basis.product, of_imaginary, u - v)]


def _remainder(modulus: int, weights: Sequence[int], residues: NDArray[np.float64]) -> Words:
    """``X = sum_p r_p w_p mod P`` in ``(-P/2, P/2]`` for each column of residues.

    The sums over 32-bit digits of the weights are exact in float64: 16 residues of 8 bits, or 9.
    """
    digits = np.array([digits_of(weight) for weight in weights], dtype=np.float64)
    shares = np.array([weight / modulus for weight in weights])
    multiples = np.rint(shares @ residues).astype(np.int64)  # off by one at most, and that near +-P/2
    sums = (digits.T @ residues).astype(np.int64)
    x = Words.of_digits([sums[d] - multiples * digit for d, digit in enumerate(digits_of(modulus))])
    product, half = Words.of_constant(modulus), Words.of_constant(modulus // 2)
    x = x.plus_where(x.exceeds(half), product.negated())
    return x.plus_where(~x.exceeds(half.negated()), product)
