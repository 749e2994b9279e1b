"""Numbers of a residue number system: moduli, their product, the exponents of rows, and the weights of reconstruction.

The row norms of a Cholesky factor are known before it is: ``sum_k L_ik**2 = A_ii``. Row i is scaled by the largest power of two
``2**e_i`` for which ``2**e_i sqrt(A_ii) <= sqrt(P / 2)`` with a little room. Then ``q_ik = round(2**e_i L_ik)`` are integers, by
Cauchy and Schwarz every partial sum of ``q_ik q_jk`` and every Schur complement is below ``P / 2``, and the residues of a sum
modulo coprime numbers with product P determine it exactly.

Of a complex matrix ``q_ik`` has whole real and imaginary parts, and the bound is that of the magnitude of the sum of
``q_ik conj(q_jk)``. Where -1 is a square modulo a number m, say ``w**2 = -1``, the map ``x + iy -> (x + w y, x - w y)`` modulo m
turns products into products of each part, and conjugation exchanges the two: a complex product takes two real ones instead of
four. So the moduli are those whose prime factors are all 1 modulo 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import frexp, gcd, isqrt, prod

#: Most moduli: 256 and the next smaller numbers coprime to all before, whose residues fit in int8.
MOST_MODULI = 16
#: Most products ``|r s| <= 2**14`` that an int32 sum may have since it was last folded.
MOST_TERMS = 1 << 17
#: Most matrix rows: the room for rounding is planned for that many.
MOST_ROWS = 1 << 20
#: What tensor cores take: K and strides of int8 matrices, hence tile orders, are multiples of it.
TENSOR_MULTIPLE = 16
#: Entries of a row in FP16 are below two to this power.
FP16_TOP = 15
#: A row's squares may exceed its diagonal entry by this share before it is flagged: far more than rounding, far less than room.
ROW_SLACK = 2.0**-20


def _coprime_moduli(count: int, is_usable: Callable[[int], bool]) -> tuple[int, ...]:
    """The ``count`` largest usable numbers up to 256 of which no two have a common factor, found from 256 down."""
    moduli: list[int] = []
    candidate = 256
    while len(moduli) < count:
        if is_usable(candidate) and all(gcd(candidate, modulus) == 1 for modulus in moduli):
            moduli.append(candidate)
        candidate -= 1
    return tuple(moduli)


@cache
def _root_of_minus_one(m: int) -> int | None:
    """The least ``w`` with ``w**2 = -1 (mod m)``, at most ``m / 2``; None where there is none, or m is even."""
    return next((w for w in range(2, m // 2 + 1) if (w * w + 1) % m == 0), None) if m % 2 else None


@dataclass(frozen=True)
class ResidueBasis:
    """The first ``count`` moduli and what follows from them."""

    count: int  #: Number of moduli, from 4 to 16; more moduli are more bits. 13 give 50 bits.
    #: Whether -1 is a square modulo each of them: for complex numbers, which then have two residues a modulus. 14 give 51 bits.
    is_split: bool = False

    def __post_init__(self) -> None:
        if not 4 <= self.count <= MOST_MODULI:
            raise ValueError(f"moduli is {self.count}, but from 4 to {MOST_MODULI} moduli can be had")

    @cached_property
    def moduli(self) -> tuple[int, ...]:
        """The moduli, largest first: a basis of fewer moduli is a prefix of one of more."""
        return _coprime_moduli(self.count, lambda m: not self.is_split or _root_of_minus_one(m) is not None)

    @property
    def planes(self) -> int:
        """Residues of a number: one a modulus, or two, of which ``x + w y`` come first for all moduli and then ``x - w y``."""
        return self.count * (2 if self.is_split else 1)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """A square root ``w`` of -1 modulo each of split moduli, from 2 to ``m / 2``."""
        roots = [_root_of_minus_one(m) for m in self.moduli]
        return tuple(w for w in roots if w is not None)

    @cached_property
    def product(self) -> int:
        """P, the product of the moduli."""
        return prod(self.moduli)

    @cached_property
    def largest_norm(self) -> int:
        """Largest norm that a row of scaled entries ``2**e_i L_ik`` may be planned to have: ``sqrt(P / 2)``, less some room.

        The room holds the slack of the running sums and the rounding of the entries to integers, which adds at most
        ``sqrt(n) / 2`` to each of the two norms of a sum, and ``sqrt(n / 2)`` where they are complex.
        """
        norm = isqrt(self.product // 2)
        return norm - (norm >> 20) - isqrt(MOST_ROWS) - 1

    @cached_property
    def limit(self) -> tuple[float, int]:
        """Mantissa in ``[0.5, 1)``, rounded down, and power of two of the square of :attr:`largest_norm`."""
        square = self.largest_norm**2
        power = square.bit_length()
        return float((square << 53) >> power) / 2.0**53, power

    @cached_property
    def bits(self) -> int:
        """Bits of the scaled rows: every row's norm is at least ``2**(bits - 1)``, and its entries are rounded to integers."""
        return self.largest_norm.bit_length() - 1

    def exponent(self, a_ii: float) -> int:
        """``e_i``, the largest integer with ``4**e_i a_ii <= largest_norm**2``."""
        mantissa, power = frexp(a_ii)  # a_ii = mantissa * 2**power with 0.5 <= mantissa < 1
        largest, top = self.limit
        return (top - power - (mantissa > largest)) // 2

    def fp16_exponent(self, e_i: int) -> int:
        """``h_i`` of a row with exponent ``e_i``: its entries ``2**h_i L_ik`` are below ``2**15``.

        FP16 has its full accuracy from ``2**-29`` of the largest possible entry on.
        """
        return e_i + FP16_TOP - self.largest_norm.bit_length()

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """``w_p = (P / m_p) ((P / m_p)**-1 mod m_p)``: a number is ``sum_p r_p w_p mod P``."""
        return self._weights([1] * self.count)

    @cached_property
    def part_weights(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``w_p / 2`` and ``w_p / (2 w)`` modulo P, of the real part, ``sum_p (u_p + v_p) w_p / 2``, and of the imaginary one.

        The latter is ``sum_p (u_p - v_p) w_p / (2 w)``, for split moduli and residues ``u = x + w y`` and ``v = x - w y``.
        """
        halves = [pow(2, -1, m) for m in self.moduli]
        of_roots = [pow(2 * w, -1, m) for m, w in zip(self.moduli, self.roots, strict=True)]
        return self._weights(halves), self._weights(of_roots)

    def _weights(self, factors: Sequence[int]) -> tuple[int, ...]:
        """Numbers from 0 to P that are a factor modulo one modulus, and 0 modulo all others."""
        of = [(self.product // m, m, factor) for m, factor in zip(self.moduli, factors, strict=True)]
        return tuple(rest * (pow(rest, -1, m) * factor % m) for rest, m, factor in of)


@cache
def residue_basis(count: int) -> ResidueBasis:
    """The basis of so many moduli for real numbers, whose constants are found once in a process."""
    return ResidueBasis(count)
