"""The tile kernels of a device, and what they tell: flags and norms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import ScheduleError
from ooc_chol.formats import TYPES, PrecisionFormat
from ooc_chol.interfaces.kernels import AbstractDeviceKernels
from ooc_chol.interfaces.streams import AbstractStream, Tile
from ooc_chol.kernels.interfaces.residues import AbstractResidueKernels
from ooc_chol.kernels.interfaces.solves import AbstractSolveKernels
from ooc_chol.tasks.tiling import TileGrid


def largest_imaginary(of_a: np.dtype[Any], fmt: PrecisionFormat, n: int) -> float:
    """Share of a diagonal entry that its imaginary part may have: what is left of rounding where A was computed.

    A is of type ``of_a``, and what it was computed from has ``n`` terms or a thousand.
    """
    unit_roundoff = max(fmt.unit_roundoff, TYPES.get(of_a.name, fmt).unit_roundoff)
    return max(n, _LEAST_TERMS) * unit_roundoff


#: Terms of a sum behind an entry of A that are no reason to refuse it.
_LEAST_TERMS = 1024


class FinalTile(NamedTuple):
    """Which tile has become final: its packed number, and whether it is a diagonal one."""

    packed: int
    is_diagonal: bool


class AbstractFlags(ABC):
    """Failures met by kernels: written on the device, copied back in stream order, and read by the host as of the last copy."""

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy to the host behind the work of ``stream``."""

    @abstractmethod
    def nonfinite(self) -> tuple[int, int] | None:
        """Smallest packed tile number with a non-finite entry, and its row-major position there; None if all are finite."""

    @abstractmethod
    def failed_pivot(self) -> tuple[int, int] | None:
        """Smallest tile column with a failed pivot, and LAPACK's ``info`` within the tile; None if all pivots are positive."""

    def imaginary(self) -> tuple[int, int] | None:
        """Smallest tile column with a diagonal entry of A that is not real, and its row in the tile; None if all are."""
        return None


class AbstractTileNorms(ABC):
    """Measurements of tiles as they become final: one row of :data:`NORM_COLUMNS` numbers for each packed tile."""

    @abstractmethod
    def copy_back(self, stream: AbstractStream) -> None:
        """Enqueue the copy to the host behind the work of ``stream``."""

    @abstractmethod
    def copy_rows(self, stream: AbstractStream, first: int, count: int) -> None:
        """Enqueue the copy of ``count`` tiles' rows, from packed tile ``first`` on, to the host."""

    @abstractmethod
    def rows(self, first: int, count: int) -> NDArray[np.float64]:
        """These rows as of the last copy that is complete."""

    def largest(self, packed: int) -> int | None:
        """Where a device that rounds stored tiles itself finds the largest magnitude of tile ``packed``; None on others."""
        return None

    @abstractmethod
    def values(self) -> NDArray[np.float64]:
        """The ``(n_tiles, len(NORM_COLUMNS))`` array, of all work that is complete; zero for a tile that is not final here."""


#: Numbers of a row of :class:`AbstractTileNorms`: Frobenius norms of the tile as stored and of what rounding took away; of a
#: diagonal tile also its largest sums of magnitudes along a row and along a column (0 for others); and the largest magnitude.
NORM_COLUMNS = ("frobenius", "lost", "row_sum", "column_sum", "largest")


class AbstractSurvey(ABC):
    """Measurements of A's tiles on one device before there is a plan; results read back are of all work that is complete."""

    @abstractmethod
    def measure(self, stream: AbstractStream, tiles: Tile, rows: range, column: int) -> None:
        """Enqueue: measure the tiles of one column in ``rows``, one below the other, each of them once.

        A diagonal one is alone. Only its lower triangle counts, which is mirrored to the upper one.
        """

    @abstractmethod
    def norms(self) -> NDArray[np.float64]:
        """Frobenius norms of the packed tiles, of a diagonal one of the whole square; zero where none was measured."""

    @abstractmethod
    def diagonal(self) -> NDArray[np.float64]:
        """The ``(n,)`` diagonal of A; zero where no tile was measured."""

    @abstractmethod
    def sample(self) -> NDArray[np.float64]:
        """Lower triangle of the ``(m, m)`` sample, as :func:`ooc_chol.precision.norms.sample_starts` says; else anything."""


class AbstractKernelSet(AbstractDeviceKernels):
    """The tile kernels of one device. Every call enqueues on ``stream`` and returns at once; arrays are in place.

    What it makes, such as flags, is made on the device that the set is bound to, whichever is current.
    """

    #: Products through residues, where the set was made for them; it binds and closes them with itself.
    residues: AbstractResidueKernels | None

    def open_residues(self, n: int) -> AbstractResidueKernels:
        """The residue kernels, with state for ``n`` matrix rows on the device."""
        if self.residues is None:
            raise ScheduleError("the device was opened with kernels that know no residues; choose them with their moduli")
        self.residues.open(n)
        return self.residues

    @abstractmethod
    def create_flags(self, nt: int) -> AbstractFlags:
        """Flags for ``nt`` tile columns and their packed tiles, all clear."""

    @abstractmethod
    def potrf(self, stream: AbstractStream, a_kk: Tile, flags: AbstractFlags, k: int) -> None:
        """``A[k, k] -> L[k, k]``, strict upper part zeroed; a pivot that is not positive sets the flag of column ``k``."""

    @abstractmethod
    def trsm(self, stream: AbstractStream, l_kk: Tile, a_ik: Tile, k: int) -> None:
        """``A[i, k] = A[i, k] @ inv(L[k, k]).T``; ``k`` names the diagonal tile, of which a run has one value."""

    def prepare_trsm(self, stream: AbstractStream, l_kk: Tile, k: int) -> None:
        """Make what :meth:`trsm` needs of ``L[k, k]`` beside the tile, for later calls on any stream; else the first does."""

    @abstractmethod
    def syrk(self, stream: AbstractStream, a_ii: Tile, l_ik: Tile, *, k0: int) -> None:
        """``A[i, i] -= L[i, k] @ L[i, k].T``, lower triangle only; ``k0`` is the first matrix column of tile column ``k``."""

    @abstractmethod
    def gemm(self, stream: AbstractStream, a_ij: Tile, l_ik: Tile, l_jk: Tile, *, k0: int) -> None:
        """``A[i, j] -= L[i, k] @ L[j, k].T``; ``k0`` is the first matrix column of tile column ``k``."""

    @abstractmethod
    def create_norms(self, n_tiles: int) -> AbstractTileNorms:
        """Norms of ``n_tiles`` packed tiles, all zero."""

    @abstractmethod
    def create_survey(self, grid: TileGrid, step: int | None) -> AbstractSurvey:
        """A survey of the tiles of a grid, with every ``step``-th row and column of each as a sample, or none."""

    @abstractmethod
    def create_solves(self) -> AbstractSolveKernels:
        """Kernels for solves with a stored factor, on the device that the set is bound to."""

    @abstractmethod
    def finish(
        self, stream: AbstractStream, l_ij: Tile, fmt: PrecisionFormat, norms: AbstractTileNorms, index: FinalTile
    ) -> None:
        """Round a final tile to what ``fmt`` stores of it, in place, and measure it: from here on it has this one value."""

    @abstractmethod
    def check_finite(self, stream: AbstractStream, a_ij: Tile, lower: bool, flags: AbstractFlags, packed: int) -> None:
        """Flag tile ``packed`` when it (with ``lower``: its lower triangle) holds a NaN or an infinity."""

    def check_real_diagonal(self, stream: AbstractStream, a_kk: Tile, share: float, flags: AbstractFlags, k: int) -> None:
        """Flag column ``k`` where a diagonal entry of a complex tile has an imaginary part of more than that share of it."""
        raise ScheduleError("the device was opened with kernels for real tiles; choose them with the format of the plan")
