"""Numbers of a residue number system: moduli, their product, the exponents of rows, and the weights of reconstruction.

The row norms of a Cholesky factor are known before it is: ``sum_k L_ik**2 = A_ii``. Row i is scaled by the largest power of two
``2**e_i`` for which ``2**e_i sqrt(A_ii) <= sqrt(P / 2)`` with a little room. Then ``q_ik = round(2**e_i L_ik)`` are integers, by
Cauchy and Schwarz every partial sum of ``q_ik q_jk`` and every Schur complement is below ``P / 2``, and the residues of a sum
modulo coprime numbers with product P determine it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
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


def _coprime_moduli(count: int) -> tuple[int, ...]:
    """The ``count`` largest numbers up to 256 of which no two have a common factor, found from 256 down."""
    moduli: list[int] = []
    candidate = 256
    while len(moduli) < count:
        if all(gcd(candidate, modulus) == 1 for modulus in moduli):
            moduli.append(candidate)
        candidate -= 1
    return tuple(moduli)


@dataclass(frozen=True)
class ResidueBasis:
    """The first ``count`` moduli and what follows from them.

    Examples
    --------
    >>> basis = ResidueBasis(13)
    >>> basis.moduli[:4], basis.bits, basis.exponent(1.0)
    ((256, 255, 253, 251), 50, 50)
    """

    count: int  #: Number of moduli, from 4 to 16; more moduli are more bits. 13 give 50 bits.

    def __post_init__(self) -> None:
        if not 4 <= self.count <= MOST_MODULI:
            raise ValueError(f"moduli is {self.count}, but from 4 to {MOST_MODULI} moduli can be had")

    @cached_property
    def moduli(self) -> tuple[int, ...]:
        """The moduli, largest first: a basis of fewer moduli is a prefix of one of more."""
        return _coprime_moduli(self.count)

    @cached_property
    def product(self) -> int:
        """P, the product of the moduli."""
        return prod(self.moduli)

    @cached_property
    def largest_norm(self) -> int:
        """Largest norm that a row of scaled entries ``2**e_i L_ik`` may be planned to have: ``sqrt(P / 2)``, less some room.

        The room holds the slack of the running sums and the rounding of the entries to integers, which adds at most
        ``sqrt(n) / 2`` to each of the two norms of a sum.
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
        return tuple((self.product // m) * pow(self.product // m, -1, m) for m in self.moduli)
