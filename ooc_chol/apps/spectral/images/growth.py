"""From the tree of segments to labels and a report, for any threshold."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.images.regions import Region, Regions, Threshold
from ooc_chol.apps.spectral.plans import PartitionPlan
from ooc_chol.apps.spectral.results import Segmentation, SegmentationReport, Split
from ooc_chol.apps.spectral.solving.eigenpairs import added
from ooc_chol.apps.spectral.solving.lowest import Lowest

#: The largest normalized cut that there is, and the threshold where nothing else ends the splits.
_MOST_NCUT, _USUAL_NCUT = 2.0, 0.01
#: A threshold that is so many times a cut is above it in three digits, too.
_ABOVE = 1.01


class Place(NamedTuple):
    """Where the vertices of a graph lie in what was given."""

    shape: tuple[int, ...]
    keep: NDArray[np.bool_] | None  #: Which elements they are; None for all

    @property
    def n(self) -> int:
        """Vertices."""
        return math.prod(self.shape) if self.keep is None else int(np.count_nonzero(self.keep))

    def filled(self, labels: NDArray[np.int32]) -> NDArray[np.int32]:
        """Labels of vertices as an array of the shape, -1 where there is none."""
        if self.keep is None:
            return labels.reshape(self.shape)
        placed = np.full(self.shape, -1, np.int32)
        placed[self.keep] = labels
        return placed


class _Visit(NamedTuple):
    """A segment, as a threshold has it."""

    region: Region
    is_split: bool
    is_new: bool


def check_threshold(max_ncut: float | None, max_depth: int | None, n_segments: int | None = None) -> Threshold:
    """A threshold, or number, that makes sense; ``ValueError`` where it does not."""
    most = _USUAL_NCUT if max_ncut is None else tb.real_number(max_ncut, "max_ncut")
    if not 0 < most <= _MOST_NCUT:
        raise ValueError(f"max_ncut is {most:g}: a normalized cut lies from 0 to 2, so give a number above 0 and up to 2")
    depth = None if max_depth is None else tb.whole_number(max_depth, "max_depth", least=0)
    if n_segments is None:
        return Threshold(most, depth)
    count = tb.whole_number(n_segments, "n_segments", least=1)
    if max_ncut is not None:
        raise ValueError(
            f"max_ncut is {most:g} and n_segments {count}: segments are split by a threshold, or until there are so many; leave "
            "one of them out"
        )
    return Threshold(_MOST_NCUT, depth, count)


class Called(NamedTuple):
    """Facts of a call before its run."""

    plan: PartitionPlan
    key: Mapping[str, Any]
    parts: Mapping[str, float]  #: Seconds of what is done

    def of(self, wanted: Threshold) -> dict[str, Any]:
        """The key of a threshold."""
        how = {"max_ncut": wanted.max_ncut.hex()} if wanted.n_segments is None else {"n_segments": wanted.n_segments}
        return {**self.key, **how, "max_depth": wanted.max_depth}


def one_segment(place: Place, notes: tuple[str, ...], call: Called, started: float) -> Segmentation:
    """Result for an image with nothing to be split."""
    seconds = tb.CallSeconds(time.perf_counter() - started, {**call.parts, "run": 0.0})
    what = 0, 0, "none", "nothing had to be computed", 0
    report = SegmentationReport(call.plan, dict(call.key), place.n, *what, seconds, tb.CallBytes(), notes)
    labels = place.filled(np.zeros(place.n, np.int32))
    return Segmentation(labels, math.nan, (), report, more=_Unsplit(labels, report))


@final
@dataclass(frozen=True, eq=False)
class _Unsplit:
    """The same segment whatever the threshold."""

    labels: NDArray[np.int32]
    report: SegmentationReport

    def __call__(self, max_ncut: float, max_depth: int | None) -> Segmentation:
        check_threshold(max_ncut, max_depth)
        return Segmentation(self.labels, math.nan, (), self.report, more=self)


@final
@dataclass(frozen=True, eq=False)
class Grown:
    """The tree of an image or affinity, and what is known beside it."""

    regions: Regions
    place: Place
    notes: tuple[str, ...]
    call: Called

    def __call__(self, max_ncut: float, max_depth: int | None) -> Segmentation:
        """The segments of another threshold."""
        again = replace(self, call=self.call._replace(parts={}))
        return again.segmentation(check_threshold(max_ncut, max_depth), time.perf_counter())

    def segmentation(self, wanted: Threshold, started: float) -> Segmentation:
        """Segments of a threshold; only those are computed that no earlier one has looked at."""
        began = time.perf_counter()
        visits = [_Visit(*visit) for visit in self.regions.visited(wanted)]
        looked = [visit for visit in visits if _is_looked(visit, wanted)]
        looks = [look for visit in visits if visit.is_new and (look := visit.region.look) is not None]
        found = [look.lowest for look in looks if look.lowest is not None]
        of_all = [look.lowest for visit in looked if (look := visit.region.look) is not None and look.lowest is not None]
        planned, executed = dict[str, int](), dict[str, int]()
        for lowest in found:
            planned, executed = added(planned, lowest.planned), added(executed, lowest.executed)
        now = time.perf_counter()
        spent = {"eigenpairs": sum(lowest.seconds for lowest in found), "cuts": sum(look.seconds for look in looks)}
        report = SegmentationReport(
            self.call.plan,
            self.call.of(wanted),
            n=self.regions.graph.n,
            n_entries=int(self.regions.graph.adjacency.nnz),
            splits=sum(visit.is_split for visit in visits),
            method=_told([lowest.method for lowest in of_all]),
            reason=of_all[0].reason if of_all else "the affinity falls apart by itself, and needs no eigenvectors",
            passes=sum(lowest.passes for lowest in found),
            seconds=tb.CallSeconds(now - started, {**self.call.parts, "run": now - began, **spent}),
            bytes=tb.CallBytes(planned, executed),
            notes=(
                *self.notes,
                *_on_host(of_all, self.regions.solver.gpu_entries),
                *_cut_on_host(self.regions.refused),
                *_together(self.regions.at_once, len(looks)),
                *_nearest_refused(looked, wanted),
                *self._limits(visits, looked, wanted),
            ),
            looks=len(looked),
        )
        tree = _tree(looked, wanted)
        labels = self.place.filled(_labels([visit.region for visit in visits if not visit.is_split], self.regions.graph.n))
        first = tree[0].ncut if tree and tree[0].is_split else math.nan
        trace = next((lowest.trace for lowest in of_all if lowest.trace is not None), None)
        return Segmentation(labels, first, tree, report, trace, more=self)

    def _limits(self, visits: list[_Visit], looked: list[_Visit], wanted: Threshold) -> list[str]:
        """Notes on the limits that ended the recursion beside the threshold, and on segments looked at before."""
        notes, least = [], self.regions.sweep.min_size
        count = sum(not visit.is_split for visit in visits)
        if wanted.n_segments is not None and count < wanted.n_segments:
            notes.append(too_few_text(count, wanted.n_segments))
        at_end = sum(visit.region.depth == wanted.max_depth and len(visit.region.vertices) > 1 for visit in visits)
        if at_end:
            notes.append(f"{_segments(at_end)} at max_depth {wanted.max_depth} {_was(at_end)} not looked at")
        small = sum(1 < len(visit.region.vertices) < 2 * least for visit in visits)
        if small:
            notes.append(f"{_segments(small)} of fewer than {2 * least} pixels, twice min_size, {_was(small)} not looked at")
        known = sum(not visit.is_new for visit in looked)
        if known:
            notes.append(f"{_segments(known)} had been looked at for another threshold")
        return notes


def too_few_text(count: int, wanted: int) -> str:
    """That a number of segments was not reached."""
    return f"n_segments is {wanted}, but {_segments(count)} {_was(count)} found: none of them can be split within the limits"


def _on_host(found: Sequence[Lowest], gpu_entries: int) -> list[str]:
    """How many segments the host solved although GPUs were asked for."""
    small = sum(lowest.is_small for lowest in found)
    why = f"fewer than {gpu_entries:,} entries do not keep a GPU busy"
    return [f"{_segments(small)} {_was(small)} solved on the host: {why}"] if small else []


def _cut_on_host(refused: int) -> list[str]:
    """That the host split segments although a GPU found their eigenvectors."""
    why = "a quarter of the GPU's free memory does not hold their affinity"
    return [f"segments were split on the host: {why}"] if refused else []


def _together(at_once: int, looks: int) -> list[str]:
    """That seconds of segments do not add up, where they were looked at together."""
    if min(at_once, looks) < 2:
        return []
    return [f"up to {at_once} segments were looked at together: seconds of eigenvectors and of cuts overlap"]


def _nearest_refused(looked: Sequence[_Visit], wanted: Threshold) -> list[str]:
    """The smallest cut that was not made, and what makes it."""
    refused = [(look, visit) for visit in looked if not visit.is_split and (look := visit.region.look) is not None]
    look, visit = min(refused, key=lambda each: each[0].ncut, default=(None, None))
    if look is None or visit is None or math.isinf(look.ncut):
        return []
    n, second = len(visit.region.vertices), int(np.count_nonzero(look.side))
    by = f"max_ncut={_ABOVE * look.ncut:.3g}" if wanted.n_segments is None else f"n_segments={wanted.n_segments + 1}"
    return [f"the next cut, of {n} pixels into {n - second} + {second}, has Ncut {look.ncut:.3g}: {by} makes it"]


def _is_looked(visit: _Visit, wanted: Threshold) -> bool:
    """Tell whether a segment's best split is known and counts for this threshold."""
    return visit.region.look is not None and (wanted.max_depth is None or visit.region.depth < wanted.max_depth)


def _tree(looked: Sequence[_Visit], wanted: Threshold) -> tuple[Split, ...]:
    """Every segment that was looked at, with what came of it."""
    place = {id(visit.region): index for index, visit in enumerate(looked)}
    parents = {id(child): place[id(visit.region)] for visit in looked if visit.is_split for child in visit.region.split()}
    return tuple(_split(visit, wanted, parents.get(id(visit.region), -1)) for visit in looked)


def _split(visit: _Visit, wanted: Threshold, parent: int) -> Split:
    """Outcome of a segment: its split, and why it was split or not."""
    region, look = visit.region, visit.region.look
    assert look is not None
    n = len(region.vertices)
    second = int(np.count_nonzero(look.side))
    values = () if look.lowest is None else tuple(float(value) for value in look.lowest.eigenvalues)
    if math.isinf(look.ncut):
        reason = look.how
    else:
        if wanted.n_segments is None:
            relation = f"{'at most' if visit.is_split else 'above'} max_ncut {wanted.max_ncut:g}"
        else:
            relation = f"{'the smallest left' if visit.is_split else 'not needed'} for {wanted.n_segments} segments"
        reason = f"{relation}; {look.how if look.lowest is None else 'found ' + look.how}"
    return Split(region.depth, n, look.ncut, visit.is_split, (n - second, second), values, reason, parent)


def _labels(segments: list[Region], n: int) -> NDArray[np.int32]:
    """The segment of every vertex, numbered by their first vertices."""
    labels = np.empty(n, np.int32)
    for number, region in enumerate(sorted(segments, key=lambda region: int(region.vertices[0]))):
        labels[region.vertices] = number
    return labels


def _told(methods: list[str]) -> str:
    """Methods with the number of segments that each did, the first one first."""
    counted = Counter(methods)
    if len(counted) <= 1:
        return methods[0] if methods else "none"
    return ", ".join(f"{method} ({_segments(count)})" for method, count in counted.items())


def _segments(count: int) -> str:
    return f"{count} segment{'s' * (count != 1)}"


def _was(count: int) -> str:
    return "was" if count == 1 else "were"
