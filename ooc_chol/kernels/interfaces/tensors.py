"""Kernels of graph-tensor imputation: transforms over a graph, entries filled in, and singular values thresholded.

A tensor X (N, m, n) has a slice at each vertex of a graph; its *unfolding* is the same memory as N rows of m n columns. A *panel*
is some columns of an unfolding, :data:`PANEL_COLUMNS` but in the last one; a *group* is up to :func:`slice_group` slices, which
end where :func:`group_ends` says. Both depend on the tensor and its graph alone: what a panel and a group become depends on
nothing else, and so the bits of a result depend on no budget, no number of devices or threads, and no place where anything is
kept.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, final

from ooc_chol.interfaces import AbstractDevice, AbstractDeviceKernels, AbstractStream, Tile, Turns
from ooc_chol.precision.triples import Precision

#: Columns of a panel of an unfolding; the last panel may have fewer.
PANEL_COLUMNS = 4096
#: Most slices of a group, and the bytes that slices of a group, their Gram matrices and eigenvectors take in float64.
_MOST_SLICES, _GROUP_BYTES = 1024, 512 << 20
#: Most columns of a subspace: those for which a kernel on a GPU has room.
_MOST_COLUMNS = 1024
#: Order of Gram matrices from which on a few columns of a subspace cost less than all eigenpairs.
SUBSPACE_LEAST = 48
#: Partial sums of a row in :meth:`AbstractTensorKernels.fill`: entry j is added to sum ``j % LANES``.
LANES = 256

#: How singular values are found; "auto" is what :func:`resolve_svt` says.
Svt: TypeAlias = Literal["auto", "gram64", "subspace", "svd"]
SVTS: tuple[Svt, ...] = ("auto", "gram64", "subspace", "svd")
#: What a singular value s above lambda becomes: ``s - lambda``, or ``s - lambda**2 / s``. Smaller ones become zero.
Shrinkage: TypeAlias = Literal["soft", "garrote"]
SHRINKAGES: tuple[Shrinkage, ...] = ("soft", "garrote")


class TensorShape(NamedTuple):
    """Sizes for which kernels are made."""

    vertices: int  #: N, slices of the tensor X
    components: int  #: r, eigenvectors of the graph, and slices of its transform
    rows: int  #: m, rows of a slice
    columns: int  #: n, columns of a slice

    @property
    def width(self) -> int:
        """Columns of an unfolding, m n."""
        return self.rows * self.columns

    @property
    def order(self) -> int:
        """Order d of the Gram matrix of the shorter side of a slice."""
        return min(self.rows, self.columns)


@final
@dataclass(frozen=True)
class PanelSlices:
    """Adjacent slices of those that lie panel by panel: a panel of all of them, row-major, and behind it the next one."""

    memory: Tile  #: All that lie there, flat
    rows: int  #: How many these are
    columns: int  #: Columns of a panel; the last one may have fewer
    first: int  #: Where the slices begin among them
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, some: slice) -> PanelSlices:
        """Some of the slices."""
        start, stop, _ = some.indices(self.count)
        return replace(self, first=self.first + start, count=stop - start)

    def panels(self) -> Iterator[Tile]:
        """Columns of each panel, (count, w)."""
        width = self.memory.size // self.rows
        for at in range(0, width, self.columns):
            own = self.memory[self.rows * at : self.rows * min(at + self.columns, width)]
            yield own.reshape(self.rows, -1)[self.first : self.first + self.count]


#: Slices (s, m, n), one behind the other or panel by panel.
Slices: TypeAlias = Tile | PanelSlices


def slice_group(m: int, n: int) -> int:
    """Slices of a group: 1,024, or fewer where slices are large."""
    order = min(m, n)
    return max(1, min(_MOST_SLICES, _GROUP_BYTES // (8 * (m * n + 2 * order * order))))


def runs_within(joined: Sequence[range], part: slice) -> list[range]:
    """Runs of slices of which the first is in a part, counted from its beginning."""
    return [range(run.start - part.start, run.stop - part.start) for run in joined if part.start <= run.start < part.stop]


def group_ends(count: int, group: int, runs: Sequence[range] = ()) -> tuple[int, ...]:
    """Where groups of up to so many slices end: never within a run of slices that a group can hold."""
    starts = {each: run.start for run in runs if len(run) <= group for each in run[1:]}
    ends, at = list[int](), 0
    while at < count:
        stop = min(at + group, count)
        at = starts.get(stop, stop)
        ends.append(at)
    return tuple(ends)


def within_groups(runs: Sequence[range], ends: Sequence[int]) -> tuple[range, ...]:
    """Runs of slices, cut where groups end; what is left of one slice is none."""
    parts = list[range]()
    for run in runs:
        cuts = ends[bisect_right(ends, run.start) : bisect_left(ends, run.stop)]
        parts += [range(start, stop) for start, stop in pairwise((run.start, *cuts, run.stop))]
    return tuple(part for part in parts if len(part) > 1)


def subspace_columns(m: int, n: int) -> int:
    """Columns c of the basis that "subspace" keeps for each slice: an eighth of the shorter side, from 16 to 1,024."""
    order = min(m, n)
    return min(order, max(16, min(order // 8, _MOST_COLUMNS)))


def resolve_svt(svt: Svt, m: int, n: int) -> Svt:
    """The route that "auto" is for slices of (m, n): "subspace" from :data:`SUBSPACE_LEAST` on, else "gram64"."""
    if svt not in SVTS:
        raise ValueError(f"svt={svt!r}: singular values are thresholded by {', '.join(map(repr, SVTS))}")
    if svt != "auto":
        return svt
    return "subspace" if min(m, n) >= SUBSPACE_LEAST else "gram64"


class AbstractTensorKernels(AbstractDeviceKernels):
    """Kernels of one precision for tensors of one shape, on the device that is current.

    Tensors are of the type of storage, the basis of the graph of the type of computing: float64 in FDF and DDD. Panels are
    row-major with adjacent columns; their rows may lie further apart, as those of a part of an unfolding do. Slices lie one
    behind the other or panel by panel, with the same bits; all else is contiguous. Calls share one workspace: all are on one
    stream, or wait for each other. Nothing is read back to the host, but that "subspace" on a GPU waits for the stream once a
    group, or twice, to know which slices need more: :meth:`threshold_in_turns` lets its caller feed others meanwhile.
    """

    shape: TensorShape
    precision: Precision
    #: The route that thresholds take, never "auto".
    svt: Svt

    @property
    def group(self) -> int:
        """Slices of a group."""
        return slice_group(self.shape.rows, self.shape.columns)

    @property
    def basis_columns(self) -> int:
        """Columns c of the warm start of each slice; 0 where the route keeps none."""
        return subspace_columns(self.shape.rows, self.shape.columns) if self.svt == "subspace" else 0

    @abstractmethod
    def transform(self, stream: AbstractStream, basis: Tile, panel: Tile, out: Tile, *, inverse: bool = False) -> None:
        """Enqueue ``out = U.T @ panel``, or ``out = U @ panel`` for the inverse; each entry is rounded to storage once.

        ``basis`` (N, r) is U, contiguous, of the type of computing; ``panel`` (N, w) and ``out`` (r, w) share no memory, and
        change their shapes for the inverse.
        """

    @abstractmethod
    def fill(
        self, stream: AbstractStream, z: Tile, observed: Tile, mask: Tile, x: Tile, sums: Tile, *, momentum: float = 0.0
    ) -> None:
        """Enqueue ``x = observed where mask else z + momentum * (z - x)``, and the sizes of that change.

        ``z``, ``observed`` (where it was not, anything, NaN too) and ``x``, which changes, are (rows, w); ``mask`` is uint8,
        (rows,) or (rows, w), 1 where observed. ``sums`` (2,) becomes the sum of ``(x_new - x_old)**2`` over missing entries, and
        that of ``x_old**2`` over all. Squares are of float64 and added in one order on all devices: :data:`LANES` partial sums of
        a row, each in the order of its columns, which are then folded in halves; the sums of rows in the same way.
        """

    @abstractmethod
    def threshold_in_turns(
        self,
        stream: AbstractStream,
        slices: Slices,
        lam: float,
        ranks: Tile,
        flags: Tile,
        *,
        basis: Tile | None = None,
        shrinkage: Shrinkage = "soft",
        joined: Sequence[range] = (),
        across: bool = False,
    ) -> Turns:
        """Enqueue, piece by piece, what :meth:`threshold` does; nothing happens before the first piece is asked for."""

    @final
    def threshold(
        self,
        stream: AbstractStream,
        slices: Slices,
        lam: float,
        ranks: Tile,
        flags: Tile,
        *,
        basis: Tile | None = None,
        shrinkage: Shrinkage = "soft",
        joined: Sequence[range] = (),
        across: bool = False,
    ) -> None:
        """Enqueue: lower all singular values of each slice as ``shrinkage`` says, those below ``lam`` to zero, in place.

        ``slices`` (s, m, n) begin with a group: any number of groups, of which the last may be short. For ``lam`` 0 they stay as
        they are, to the bit. ``ranks`` (s,) int32 becomes the number of values kept: those above ``lam`` and above ``sqrt(d u)``
        of the largest, where d is the shorter side and u the unit roundoff of float64, since Gram matrices do not tell smaller
        ones from zero. ``flags`` (s,) int32 becomes 1 where all eigenpairs (or values) were computed, 0 where a subspace or the
        norm of the slice was enough, and -1, and the slice NaN, where it or its Gram matrix is not finite, or cuSOLVER fails.
        ``basis`` (s, d, c) float64, for "subspace", has the leading eigenvectors of the last step's Gram matrices, zeros at
        first, and becomes those of this step; it stays as it is where all of the slice is below ``lam``. Without it all slices
        take the full route. With the Gram matrix ``G = X.T X`` (of the shorter side, in float64) the result is ``X V diag(f(s))
        V.T``, which needs no left vectors; f is ``(1 - lam / s)+``, or ``(1 - (lam / s)**2)+``. "subspace" multiplies the basis
        by G three times, in the last as Rayleigh-Ritz, to pairs (V, t), and accepts it only if for all pairs kept together
        ``sqrt(sum ||G v - t v||**2 / t) <= tolerance * s_1``, so that the error of the result is at most about that by either
        rule, and if the norm of what is not kept, ``G - sum t v v.T``, is below ``lam**2``, so that no value above ``lam`` was
        missed. The norm is Frobenius', of the difference itself: a difference of sums of squares would lose it for lam below 1e-4
        s_1. Slices that fail have a second try: V is filtered by Chebyshev polynomials of G, and instead of the norm a
        factorization of ``lam**2 I - (G - sum t v v.T)``, over the pairs kept, proves that no value above ``lam`` was missed.
        Those that fail again take the full route.

        ``joined`` are runs of adjacent slices, each within a group, that are lowered as one matrix: with their shorter sides put
        together, (k m, d) for k slices, whose Gram matrix is the sum of theirs. With ``across``, for square slices and without a
        basis, all slices are seen the other way round.
        """
        how: dict[str, Any] = {"basis": basis, "shrinkage": shrinkage, "joined": joined, "across": across}
        _take(self.threshold_in_turns(stream, slices, lam, ranks, flags, **how))

    @abstractmethod
    def norms_in_turns(self, stream: AbstractStream, slices: Slices, out: Tile, *, joined: Sequence[range] = ()) -> Turns:
        """Enqueue, piece by piece, what :meth:`norms` does; nothing happens before the first piece is asked for."""

    @final
    def norms(self, stream: AbstractStream, slices: Slices, out: Tile, *, joined: Sequence[range] = ()) -> None:
        """Enqueue ``out[k] = ||slices[k]||_2``, float64, the largest singular value, or NaN; slices as in :meth:`threshold`."""
        _take(self.norms_in_turns(stream, slices, out, joined=joined))


def _take(turns: Turns) -> None:
    """Do all pieces one after the other."""
    for found in turns:
        if callable(found):
            found()
        elif found is not None:
            found.synchronize()


#: A device that imputes tensors.
TensorDevice: TypeAlias = AbstractDevice[AbstractTensorKernels]
