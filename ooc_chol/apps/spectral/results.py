"""Partitions and segmentations, with reports of how they were found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.plans import PartitionPlan

#: Parts that have a line of their own on a printed page.
_MOST_PARTS = 12
#: Segments, and segments looked at, that have their place on a printed page.
_MOST_LINES = 12


@final
@dataclass(frozen=True, eq=False, repr=False)
class Partition(tb.AbstractPage):
    """Parts of a graph.

    Parameters
    ----------
    labels : (n,) array of int32
        The part of every vertex, from 0.
    cut : float
        Weights of the edges between parts, each edge counted once.
    sizes : (n_parts,) array of float64
        Weights of the vertices of every part.
    target_sizes : (n_parts,) array of float64
        Weights that were wanted.
    eigenvalues, residuals : (vectors,) arrays of float64
        Values of the lowest nontrivial eigenpairs of the first bisection, more where an eigenvalue has more copies; empty where
        it needed none.
    candidates : tuple of str
        Starts of the best cuts of the first bisection, with their cuts before and after refinement.
    report : PartitionReport
        Methods, passes, seconds, components.
    trace : oc.Trace or None
        Trace of the first eigenpairs.
    names : (n,) tuple or None
        Names of the vertices, as a graph of NetworkX has them; None where they are numbers from 0.
    """

    labels: NDArray[np.int32]
    cut: float
    sizes: NDArray[np.float64]
    target_sizes: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    residuals: NDArray[np.float64]
    candidates: tuple[str, ...]
    report: PartitionReport
    trace: Any = None
    names: tuple[Any, ...] | None = None

    @property
    def n_parts(self) -> int:
        """Parts."""
        return len(self.sizes)

    @property
    def parts(self) -> tuple[set[Any], ...]:
        """The vertices of every part, by their names in a graph of NetworkX, else by their numbers from 0."""
        vertices = (np.flatnonzero(self.labels == part).tolist() for part in range(self.n_parts))
        return tuple(set(some) if self.names is None else {self.names[vertex] for vertex in some} for some in vertices)

    @property
    def imbalance(self) -> float:
        """The heaviest part over its target, less one; 0 of a graph without vertices."""
        return float((self.sizes / self.target_sizes).max() - 1) if self.sizes.sum() else 0.0

    def to_dict(self) -> dict[str, object]:
        """Labels and figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; without the trace.
        """
        arrays = ("labels", "sizes", "target_sizes", "eigenvalues", "residuals")
        return {
            "n_parts": self.n_parts,
            "cut": self.cut,
            "imbalance": self.imbalance,
            **{name: getattr(self, name).tolist() for name in arrays},
            "candidates": list(self.candidates),
            "report": self.report.to_dict(),
        }

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"n": len(self.labels), "n_parts": self.n_parts, "cut": self.cut}
        return facts | {"imbalance": self.imbalance, "seconds": self.report.seconds.total}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of the page."""
        report = self.report
        yield "", f"{_counted(self.n_parts, 'part')} of a graph of {report.size_text()}: the cut is {self.cut:.15g}"
        yield "imbalance", f"{100 * self.imbalance:.3g} %: the heaviest part over its target, less one"
        shown = zip(self.sizes[:_MOST_PARTS], self.target_sizes[:_MOST_PARTS], strict=True)
        for part, (size, target) in enumerate(shown):
            yield f"part {part}", f"weighs {size:.10g}; {target:.10g} was wanted"
        if self.n_parts > _MOST_PARTS:
            yield "", f"  {'':<10} ... and {self.n_parts - _MOST_PARTS} more"
        for number, (value, residual) in enumerate(zip(self.eigenvalues, self.residuals, strict=True), start=2):
            yield f"lambda_{number}", f"{value:.10g}, with a residual of {residual:.1e} of the norm of the Laplacian"
        for number, candidate in enumerate(self.candidates):
            yield "candidates" if number == 0 else "", candidate if number == 0 else f"  {'':<10} {candidate}"
        yield from report.told()


@final
@dataclass(frozen=True, repr=False)
class PartitionReport(tb.AbstractPlannedReport):
    """How a partition was found; printed, it is a page of sentences.

    Parameters
    ----------
    plan : PartitionPlan
        The plan of the first bisection.
    key : mapping
        Arithmetic key: all that the bits depend on but for weights and where the edges are.
    n, n_edges : int
        Vertices, and edges, each counted once.
    components : int
        Connected components of the graph; edges below 1e-30 of those of one of their ends join nothing.
    loops : int
        Self-loops that were dropped.
    bisections : int
        Bisections, those among them that only had components to pack.
    method, reason : str
        How the first eigenvectors were found, and a clause that says why so.
    passes : int
        Products of a matrix with a block of vectors, of all bisections.
    seconds : CallSeconds
        Seconds of the whole call, and of its parts: ``"read"``, ``"plan"``, ``"run"``, and of that eigenvectors
        (``"eigenpairs"``), the search of their span (``"search"``) and moves of vertices (``"refinement"``).
    bytes : CallBytes
        Bytes of blocks over each link for eigenvectors of all bisections.
    notes : tuple of str
        Notes for the user: multiple eigenvalues, limits that ended passes, balance that cannot be met.
    """

    plan: PartitionPlan
    key: Mapping[str, Any]
    n: int
    n_edges: int
    components: int
    loops: int
    bisections: int
    method: str
    reason: str
    passes: int
    seconds: tb.CallSeconds
    bytes: tb.CallBytes
    notes: tuple[str, ...] = field(default=())  #: multiple eigenvalues, limits that ended passes, balance that cannot be met
    resumed = 0  #: There are no checkpoints

    @property
    def call(self) -> str:  # type: ignore[override]
        """``"bisect"`` or ``"partition"``."""
        return self.plan.call

    def figures(self) -> Mapping[str, object]:
        """Sizes, and how the parts were found."""
        names = ("n", "n_edges", "components", "loops", "bisections", "method", "reason", "passes")
        return {**{name: getattr(self, name) for name in names}, "notes": list(self.notes)}

    def size_text(self) -> str:
        """``4824 vertices and 6837 edges``, with components and loops where there is something to say of them."""
        text = f"{_counted(self.n, 'vertex', 'vertices')} and {_counted(self.n_edges, 'edge')}"
        text += f" in {self.components} components" if self.components > 1 else ""
        return text + (f" ({_counted(self.loops, 'self-loop')} dropped)" if self.loops else "")

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"n": self.n, "n_edges": self.n_edges, "components": self.components}
        return facts | {"method": self.method, "passes": self.passes, "seconds": self.seconds.total}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of the page."""
        yield "", f"A partition of a graph of {self.size_text()}"
        yield from self.told()

    def told(self) -> Iterator[tuple[str, str]]:
        """Lines of the page below its title."""
        yield "bisections", str(self.bisections)
        yield "eigenpairs", f"{self.method}, {_counted(self.passes, 'pass', 'passes')}: {self.reason}"
        yield "seconds", _seconds_text(self.seconds)
        for note in self.notes:
            yield "note", note


@final
@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(tb.AbstractPage):
    """Segments of an image, or clusters of an affinity.

    Parameters
    ----------
    labels : array of int32
        The segment of every pixel, from 0, in the shape of the image; -1 where a mask left it out.
    ncut : float
        Normalized cut of the first split; NaN where there was none.
    tree : tuple of Split
        Segments that were looked at, breadth first, with the best split of each.
    report : SegmentationReport
        Methods, passes, seconds, what ended the recursion.
    trace : oc.Trace or None
        Trace of the first eigenpairs.
    more : callable or None
        Function that :meth:`at` calls; it keeps the affinity in memory. ``dataclasses.replace(segmentation, more=None)`` lets go
        of it.

    Notes
    -----
    Segments are numbered in the order in which they first appear in the rows of the image.
    """

    labels: NDArray[np.int32]
    ncut: float
    tree: tuple[Split, ...]
    report: SegmentationReport
    trace: Any = None
    more: Callable[[float, int | None], Segmentation] | None = None

    @property
    def n_segments(self) -> int:
        """Segments."""
        return int(self.labels.max()) + 1 if self.labels.size else 0

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Pixels of every segment, (n_segments,)."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.n_segments)

    def at(self, max_ncut: float, *, max_depth: int | None = None) -> Segmentation:
        """The segments of another threshold, from the same eigenvectors; only what nobody has looked at yet is computed.

        Parameters
        ----------
        max_ncut : float
            A segment is split where its best normalized cut is at most this, above 0 and up to 2.
        max_depth : int, optional
            Splits one after another that lead to a segment, at most.

        Returns
        -------
        Segmentation
            The same as a new call with this threshold would give; its report counts what was computed for it.

        Raises
        ------
        ValueError
            The threshold makes no sense, or ``more`` has been let go.
        """
        if self.more is None:
            raise ValueError("this segmentation has let go of its affinity (more=None): call normalized_cut again")
        return self.more(max_ncut, max_depth)

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, without the labels.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; None where a number is not one.
        """
        return {
            "shape": list(self.labels.shape),
            "n_segments": self.n_segments,
            "sizes": self.sizes.tolist(),
            "ncut": _number(self.ncut),
            "tree": [split.to_dict() for split in self.tree],
            "report": self.report.to_dict(),
        }

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        shape = " x ".join(map(str, self.labels.shape))
        facts = {"n_segments": self.n_segments, "shape": shape, "ncut": self.ncut, "splits": self.report.splits}
        return {**facts, "method": self.report.method, "seconds": self.report.seconds.total}

    def _what(self) -> str:
        if self.labels.ndim == 1:
            return f"an affinity of {_counted(self.labels.size, 'vertex', 'vertices')}"
        return f"an image of {' x '.join(map(str, self.labels.shape))} pixels"

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of the page: the largest segments, the first splits, and the report."""
        yield "", f"{_counted(self.n_segments, 'segment')} of {self._what()}"
        sizes = np.sort(self.sizes)[::-1]
        rest = f" and {len(sizes) - _MOST_LINES} more" if len(sizes) > _MOST_LINES else ""
        yield "sizes", f"{', '.join(map(str, sizes[:_MOST_LINES]))}{rest}"
        for split in self.tree[:_MOST_LINES]:
            yield f"depth {split.depth}", split.sentence()
        if len(self.tree) > _MOST_LINES:
            yield "", f"  {'':<10} ... and {_counted(len(self.tree) - _MOST_LINES, 'segment')} more that were looked at"
        yield from self.report.told()


@final
@dataclass(frozen=True)
class Split:
    """A segment that was looked at.

    Parameters
    ----------
    depth : int
        Splits that led to it.
    n : int
        Its pixels.
    ncut : float
        Best normalized cut; infinite where there is none.
    is_split : bool
        True if it was split there.
    children : (int, int)
        Pixels of both sides of that cut.
    eigenvalues : tuple of float
        Lowest nontrivial ones of its normalized Laplacian; none where it falls apart.
    reason : str
        Why it was, or was not, split.
    parent : int
        Place in the tree of the segment that it is a side of; -1 for the whole.
    """

    depth: int
    n: int  #: Pixels
    ncut: float  #: Best normalized cut; infinite where there is none
    is_split: bool
    children: tuple[int, int]  #: Pixels of both sides of the best cut
    eigenvalues: tuple[float, ...]  #: Lowest nontrivial ones of the normalized Laplacian; none where it falls apart
    reason: str  #: Why it was, or was not, split
    parent: int = -1  #: Place in the tree of the segment that it is a side of; -1 for the whole

    def sentence(self) -> str:
        """Sentence on the outcome."""
        if math.isinf(self.ncut):
            return f"{self.n} pixels stay together: {self.reason}"
        sides = " + ".join(map(str, self.children))
        verb = "are split into" if self.is_split else "stay together; the best cut is"
        return f"{self.n} pixels {verb} {sides}: Ncut {self.ncut:.4g}, {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data, as JSON can hold them."""
        kept = {"children": list(self.children), "eigenvalues": list(self.eigenvalues), "ncut": _number(self.ncut)}
        return {row.name: getattr(self, row.name) for row in fields(self)} | kept

    __repr__ = tb.brief_repr


@final
@dataclass(frozen=True, repr=False)
class SegmentationReport(tb.AbstractPlannedReport):
    """How segments were found; printed, it is a page of sentences.

    Parameters
    ----------
    plan : PartitionPlan
        The plan of the first cut.
    key : mapping
        Arithmetic key: all that the bits depend on but for the image, or the affinity.
    n, n_entries : int
        Vertices of the affinity, and its entries.
    splits : int
        Segments that were split.
    method, reason : str
        How eigenvectors were found, and a clause that says why so.
    passes : int
        Products of a matrix with a block of vectors.
    seconds : CallSeconds
        Seconds of the whole call, and of its parts: ``"affinity"``, ``"plan"``, ``"run"``, and of that eigenvectors
        (``"eigenpairs"``) and the search for the best cuts along them (``"cuts"``).
    bytes : CallBytes
        Bytes of blocks over each link for eigenvectors of all segments.
    notes : tuple of str
        Notes for the user.
    looks : int
        Segments whose best cut is known, split or not.
    """

    plan: PartitionPlan
    key: Mapping[str, Any]
    n: int
    n_entries: int  #: Of the affinity
    splits: int
    method: str
    reason: str
    passes: int
    seconds: tb.CallSeconds
    bytes: tb.CallBytes
    notes: tuple[str, ...] = field(default=())
    looks: int = 0  #: Segments whose best cut is known, split or not
    call = "normalized_cut"
    resumed = 0  #: There are no checkpoints

    def figures(self) -> Mapping[str, object]:
        """Sizes, and how the segments were found."""
        names = ("n", "n_entries", "splits", "method", "reason", "passes", "looks")
        return {**{name: getattr(self, name) for name in names}, "notes": list(self.notes)}

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts = {"n": self.n, "n_entries": self.n_entries, "splits": self.splits, "method": self.method}
        return {**facts, "passes": self.passes, "seconds": self.seconds.total}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Lines of the page."""
        yield "", "How segments were found"
        yield from self.told()

    def told(self) -> Iterator[tuple[str, str]]:
        """Lines of the page below its title."""
        yield "affinity", f"{_counted(self.n_entries, 'entry', 'entries')} between {_counted(self.n, 'vertex', 'vertices')}"
        yield "splits", f"{self.splits}, with {_counted(self.looks, 'segment')} looked at"
        yield "method", f"{self.method}: {self.reason}"
        yield "passes", f"{self.passes} products with blocks of vectors"
        yield "seconds", _seconds_text(self.seconds)
        for note in self.notes:
            yield "note", note


def _seconds_text(seconds: tb.CallSeconds) -> str:
    """Seconds of a call and of its parts."""
    return f"{seconds.total:.3g} in all: {', '.join(f'{name} {value:.3g}' for name, value in seconds.parts.items())}"


def _counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _number(value: float) -> float | None:
    """A number as JSON can hold it: None where it is not finite."""
    return value if math.isfinite(value) else None
