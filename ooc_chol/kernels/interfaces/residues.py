"""Products through residues, and those in FP16 beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, TypeAlias

from ooc_chol.formats import PrecisionFormat
from ooc_chol.interfaces.streams import AbstractStream, Tile

#: Bytes of state of a matrix row: its limit, its running sum and its exponent.
ROW_STATE_BYTES = 20
#: Tensor cores that multiply residues: as they are, or split into two digits that FP8 holds exactly.
ResidueUnits: TypeAlias = Literal["int8", "fp8"]


class AbstractResidueProducts(ABC):
    """Products of planes of residues on tensor cores of one type; those of every type give the same sums."""

    @abstractmethod
    def multiply(self, stream: AbstractStream, sums: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool) -> None:
        """``S[p] (+)= left[p] @ right[p].T`` in int32, or in int8 modulo ``m_p``: see :meth:`AbstractResidueKernels.product`."""

    def close(self) -> None:  # noqa: B027 - not every one holds memory
        """Release what products hold; a second call does nothing."""


class AbstractResidueKernels(ABC):
    """Products of rows of L as exact integers, held as residues modulo small coprime numbers.

    Row i of L is held as ``q_ik = round(2**e_i L_ik)``, one plane of int8 a modulus, canonical; an accumulator holds
    ``sum_k q_ik q_jk`` as one plane of int32 a modulus, or, canonical, of int8. Arrays have shape ``(planes, rows, columns)``
    with adjacent columns; the strides of rows and planes are any. Every call enqueues on ``stream`` and returns at once, and
    calls for one array may come on several streams that wait on each other. See :mod:`ooc_chol.precision.moduli` for the
    mathematics.
    """

    @abstractmethod
    def open(self, n: int) -> None:
        """Make the state of ``n`` matrix rows on the device: exponents, limits and running sums, sums all zero."""

    @abstractmethod
    def set_diagonal(self, stream: AbstractStream, first: int, a_bb: Tile) -> None:
        """Exponents and limits of rows ``first, first + 1, ...`` from the diagonal of a square block of A.

        A diagonal entry that is not a positive finite number gets exponent 0 and flags its row.
        """

    @abstractmethod
    def convert(
        self, stream: AbstractStream, l_ik: Tile, rows: range, out: Tile, *, is_first: bool, fp16: Tile | None = None
    ) -> None:
        """``out[p] = round(2**e_i L[i, k]) mod m_p`` for the matrix rows ``rows``.

        ``fp16``, unless it is None, becomes ``2**h_i L[i, k]`` in FP16, with the exponents of
        :meth:`ooc_chol.precision.moduli.ResidueBasis.fp16_exponent`.

        With ``is_first``, add the squares to the rows' running sums and flag each row whose sum exceeds ``A_ii (1 + 2**-20)`` or
        that holds a NaN: the sums wrap only for such a row, and A is not positive definite.
        """

    @abstractmethod
    def convert_stored(
        self,
        stream: AbstractStream,
        stored: Tile,
        fmt: PrecisionFormat,
        rows: range,
        out: Tile,
        *,
        is_first: bool,
        fp16: Tile | None = None,
    ) -> None:
        """:meth:`convert` of a tile as it is stored in a format narrower than FP64."""

    @abstractmethod
    def product(
        self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool, lower: bool
    ) -> None:
        """``S (+)= left[p] @ right[p].T`` for every plane p; with ``lower``, at least the lower triangle of a square block.

        No int32 sum may have more than :data:`ooc_chol.precision.moduli.MOST_TERMS` terms since its last :meth:`fold`; one
        in int8 is folded by every product, of at most half as many.
        """

    @abstractmethod
    def fp16_product(self, stream: AbstractStream, accumulator: Tile, left: Tile, right: Tile, *, accumulates: bool) -> None:
        """``F (+)= left @ right.T`` for FP16 operands, in FP32."""

    @abstractmethod
    def subtract_narrow(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """``A[i, j] -= F / 2**(h_i + h_j)`` for the rows and columns given."""

    @abstractmethod
    def fold(self, stream: AbstractStream, accumulator: Tile) -> None:
        """``S = S mod m_p``, canonical, in place, of int32 sums."""

    @abstractmethod
    def reconstruct(self, stream: AbstractStream, accumulator: Tile, a_ij: Tile, rows: range, cols: range) -> None:
        """``A[i, j] -= sum_k q_ik q_jk / 2**(e_i + e_j)``, with one rounding to nearest even, for the rows and columns given.

        ``A[i, j] 2**(e_i + e_j)`` is first rounded to an integer. Where it reaches 2**126, A is not positive definite (or the
        entry is above the diagonal): there the sum is rounded before it is subtracted.
        """

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy of the flags to the host behind the work of ``stream``."""

    @abstractmethod
    def flagged_row(self) -> int | None:
        """Smallest flagged matrix row, as of the last copy; None if there is none."""

    def close(self) -> None:  # noqa: B027 - not every one holds memory
        """Release the state of the rows; a second call does nothing."""
