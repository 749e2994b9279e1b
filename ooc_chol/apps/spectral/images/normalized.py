"""``normalized_cut``: segments of an image, or clusters of an affinity, by recursive normalized cuts."""

from __future__ import annotations

import math
import os
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.graphs.graph import Graph
from ooc_chol.apps.spectral.graphs.sources import as_graph
from ooc_chol.apps.spectral.habits import OF_SEGMENTATIONS
from ooc_chol.apps.spectral.images.affinity import Scales, check_scales, count_entries, pixel_affinity
from ooc_chol.apps.spectral.images.features import Features, features_of
from ooc_chol.apps.spectral.images.growth import Called, Grown, Place, check_threshold, one_segment, too_few_text
from ooc_chol.apps.spectral.images.noise import noise_of, smoothed
from ooc_chol.apps.spectral.images.regions import Regions
from ooc_chol.apps.spectral.images.sweep import SweepOptions
from ooc_chol.apps.spectral.partitions.bisect import bisect
from ooc_chol.apps.spectral.plans import PartitionPlan, arithmetic_key, largest_size, plan_cut, planned_cut, size_of
from ooc_chol.apps.spectral.results import Segmentation
from ooc_chol.apps.spectral.solving.lowest import Devices, passes_shown, solver_options
from ooc_chol.apps.spectral.solving.ways import Size

#: Entries of a segment from which on it is worth a GPU, which has to be opened and fed with hundreds of passes: fewer take the
#: host 0.2 s of one core at most, as measured.
GPU_ENTRIES = 400_000
#: Segments that are looked at together beside GPUs: while these find the eigenvectors of one, the host cuts others.
_AT_ONCE = 2
#: Without sigma_i it is this share of the range of the features.
_OF_RANGE = 0.1
#: Noise above this share of the range is smoothed away first. Then sigma_i is this share of what is left of the range, or this
#: many times the noise, whichever is larger: a few times what smoothing leaves of it.
_NOISY, _OF_SMOOTH_RANGE, _OF_NOISE = 1 / 60, 0.05, 0.4
#: Features that differ by less than this share of sigma_i leave all affinities above 0.78 (for one feature).
_HARDLY_SEEN = 0.5
#: Sums of a pixel's affinities below this leave it to itself.
_ALONE = 1e-6
#: Fewest split points that say something of a vector.
_FEWEST_POINTS = 10


@tb.answering(OF_SEGMENTATIONS)
@tb.documented(like=bisect, plan="As :func:`plan_normalized_cut` makes it.")
def normalized_cut(
    image_or_affinity: Any,
    *,
    radius: float = 5,
    sigma_i: float | None = None,
    sigma_x: float | None = None,
    max_ncut: float | None = None,
    n_segments: int | None = None,
    max_depth: int | None = None,
    min_size: int = 1,
    split_points: int | None = None,
    vectors: int = 2,
    search: int | None = None,
    features: str | ArrayLike = "grey",
    mask: ArrayLike | str | os.PathLike[str] | None = None,
    seed: int = 0,
    tol: float = 1e-7,
    preconditioner: str = "auto",
    precision: str | oc.Precision | None = None,
    max_passes: int | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: tb.Progress = None,
    trace: bool = False,
    plan: PartitionPlan | None = None,
) -> Segmentation:
    """Split an image, or the graph of an affinity, where the normalized cut is smallest, and the parts again.

    The normalized cut of two sides is ``cut / assoc(A) + cut / assoc(B)``: the weights of the edges between them, relative to
    those of all edges that begin in either. Sides come from the eigenvectors of ``D^-1/2 W D^-1/2`` with the largest eigenvalues.

    Parameters
    ----------
    image_or_affinity : (h, w) or (h, w, channels) array, str, PathLike, sparse matrix, BlockCSR or Graph
        An image: grey, grey and alpha, RGB or RGBA, as an array or as a file that scikit-image reads. Of a masked array those
        pixels are left out that it masks. Or an affinity: a sparse matrix, symmetric and without negative entries; a dense one
        as ``scipy.sparse.csr_array(W)``, since dense arrays are images.
    radius : float
        Pixels at most this far from each other are neighbours, in pixels between their centres. Not used with an affinity.
    sigma_i : float, optional
        Scale of features, in their units: affinities are ``exp(-|F_i - F_j|^2 / sigma_i^2)``. By default a tenth of the range
        of the features, and of noisy ones see the notes.
    sigma_x : float, optional
        Scale of distances, in pixels: affinities are multiplied by ``exp(-|X_i - X_j|^2 / sigma_x^2)``. By default there is no
        such factor.
    max_ncut : float, optional
        A segment is split where its best normalized cut is at most this, above 0 and up to 2; by default 0.01.
    n_segments : int, optional
        In place of ``max_ncut``: of all segments the one with the smallest best cut is split next, until there are so many.
    max_depth : int, optional
        Splits one after another that lead to a segment, at most; by default as many as are wanted.
    min_size : int
        Fewest pixels of a segment.
    split_points : int, optional
        Split points of a vector that are looked at, 10 or more, evenly spaced in the order of its entries; by default all. With
        few of them cuts are missed: the number of segments follows from ``max_ncut``.
    vectors : int
        Eigenvectors whose span is searched for the best cut. With 1 it is the published algorithm.
    search : int, optional
        Directions of that span, the vectors among them: angles between the first two, and random ones where there are more. By
        default 12, but fewer of large affinities, of which 50 million entries are looked at, and always the vectors themselves.
    features : {"grey", "lab"} or (h, w, f) array
        Features by which pixels are compared: grey levels (Rec. 709; alpha is laid on white), CIE Lab by scikit-image, whose
        colours must lie from 0 to 255 in integers and 0 to 1 in floats, or numbers of your own.
    mask : (h, w) array, str or PathLike, optional
        Where it is true, or not zero, a pixel takes part; others have label -1.
    seed : int
        Seed of the eigensolver's starting vectors, and of random directions.
    tol : float
        Largest residual of an eigenpair, relative to the norm of the normalized Laplacian.
    max_passes : int, optional
        Most products of the Laplacian with a block for the eigenvectors of one segment.

    Returns
    -------
    Segmentation
        Labels in the shape of the image, of an affinity (n,), numbered in the order in which segments first appear in its rows;
        the normalized cut of the first split, the tree and a report. Its method ``at`` gives the segments of another threshold.

    Raises
    ------
    ValueError
        An argument makes no sense: NaN in the image, a radius below 1, a mask of another shape or one that leaves nothing, an
        affinity that is not square or symmetric or has negative entries.
    TypeError
        Something has a type that it cannot have.
    ImportError
        scikit-image is needed and not installed.
    BudgetError
        The process may not have the memory of the affinity.
    oc.errors.NoConvergenceError
        Eigenvectors of some segment have not converged.

    Warns
    -----
    oc.errors.InputWarning
        Features, or those of neighbours, differ by less than half of ``sigma_i``, so that affinities hardly differ; or it or
        ``sigma_x`` is so small that most pixels have none. Or there are fewer segments than ``n_segments``, since
        none can be split.

    Notes
    -----
    By default an image has the same segments in bytes, in 16 bits and in floats. Where the noise of features is above a
    sixtieth of their range, they are smoothed first, to least total variation; ``sigma_i`` is then a twentieth of the range
    that is left, or 0.4 times the noise if that is more. With ``sigma_i`` given, features stay as they are. Integers of 8 and
    16 bits and truth values are brought to 0 to 255, and ``sigma_i`` is in these levels: an image whose floats lie from 0 to 1
    wants ``20 / 255`` where one of bytes wants 20.

    The affinity is the paper's (Shi and Malik, 2000; both scales are squared), with pixels at the radius itself among the
    neighbours and without the ones on the diagonal, which would only make small segments cheaper. It takes 12 bytes an entry:
    2.0 GB for 1920 x 1080 pixels and a radius of 5, of which the building peaks at 2.2 GB and the search for parts at 3.0 GB. The
    eigensolver packs it once more, and smoothed aggregation holds the Laplacian and coarser ones beside it.

    Segments that fall apart, or whose parts hang together by less than 1e-10 of their degrees, are split along that: no
    eigenvector is needed. Single pixels all of whose affinities are below a millionth of their neighbours' degrees follow the
    side that they lean to. All else is computed from the eigenpairs of each segment's own graph, as published. Where GPUs are
    named, those of segments with fewer than 400,000 entries are found on the host (without PyAMG 100,000), since hundreds of
    short passes do not keep a GPU busy; a note in the report counts them. Two segments are looked at together then, so that the
    host does its part of one while a GPU works for the other, unless progress is shown. The first GPU also finds the components
    and searches the cuts of all others. It does so if a quarter of its free memory holds the affinity (12 bytes an entry, 600 a
    pixel), which a note tells of if not, and without a ``memory_budget``. Where ``tol`` is 4e-7 or more, so that float32
    reaches it, GPUs hold vectors in that by default (``"FDF"``): a pass moves half of the bytes, and residuals are in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps.spectral.images.normalized import normalized_cut
    >>> image = np.zeros((12, 12), np.uint8)
    >>> image[3:9, 3:9] = 200
    >>> found = normalized_cut(image, radius=2, sigma_i=60, max_ncut=0.1)
    >>> (
    ...     found.n_segments,
    ...     bool(np.array_equal(found.labels == 1, image == 200)),
    ... )
    (2, True)
    """
    started = time.perf_counter()
    wanted = check_threshold(max_ncut, max_depth, n_segments)
    vectors, seed = tb.whole_number(vectors, "vectors", least=1), tb.whole_number(seed, "seed", least=0)
    sweep = _sweep_options(split_points, min_size, search, seed)
    # Eigenvalues of 1e-11 are common, and any vector of the space that they span falls at a good cut.
    options = solver_options(locals(), seed, sharp=False, gpu_entries=GPU_ENTRIES)
    given = _given(image_or_affinity, radius, sigma_i, sigma_x, features, mask)
    read = time.perf_counter()
    the_plan = planned_cut(plan, "normalized_cut", given.size, vectors, options, host_budget, normalized=True)
    planned = time.perf_counter()
    if given.seen is not None and sigma_i is None:
        given = given.by_default()
    graph, notes = given.graph(), given.notes
    if given.seen is not None and not given.is_smoothed and (doubt := _doubt_of_scales(given.seen, given.scales, graph)):
        warnings.warn(doubt, oc.errors.InputWarning, stacklevel=3)
        notes = (*notes, doubt)
    built = time.perf_counter()
    settings = {
        "radius": radius,
        "sigma_i": given.scales.sigma_i or None,
        "sigma_x": sigma_x,
        "vectors": vectors,
        **sweep._asdict(),
    }
    key = arithmetic_key("normalized_cut", given.size[:2], options, the_plan, settings)
    call = Called(the_plan, key, {"plan": planned - read, "affinity": built - planned + read - started})
    if graph is None:
        return _of_number(one_segment(given.place, notes, call, started), n_segments)
    at_once = _AT_ONCE if options.are_gpus and not progress else 1
    with passes_shown(progress, "normalized_cut") as shown, tb.kept_threads():
        regions = Regions(graph, vectors, sweep, replace(options, progress=shown), at_once)
        grown = Grown(regions, given.place, notes, call)
        found = grown.segmentation(wanted, started)
    regions.solver = replace(options, progress=None)
    return _of_number(found, n_segments)


@tb.answering(OF_SEGMENTATIONS)
@tb.documented(like=normalized_cut)
def plan_normalized_cut(
    image_or_affinity: Any,
    *,
    radius: float = 5,
    sigma_i: float | None = None,
    sigma_x: float | None = None,
    max_ncut: float | None = None,
    n_segments: int | None = None,
    max_depth: int | None = None,
    min_size: int = 1,
    split_points: int | None = None,
    vectors: int = 2,
    search: int | None = None,
    features: str | ArrayLike = "grey",
    mask: ArrayLike | str | os.PathLike[str] | None = None,
    seed: int = 0,
    tol: float = 1e-7,
    preconditioner: str = "auto",
    precision: str | oc.Precision | None = None,
    max_passes: int | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: tb.Progress = None,
    trace: bool = False,
) -> PartitionPlan:
    """Plan :func:`normalized_cut`: of its first cut how eigenvectors are found, memory, bytes and seconds; nothing is computed.

    Parameters
    ----------
    image_or_affinity : array, str, PathLike, sparse matrix, BlockCSR, Graph, or ((int, int), int, str)
        As for :func:`normalized_cut`; or the shape and entries of a connected affinity, and a kind of values.

    Returns
    -------
    PartitionPlan
        The plan. Entries of an image are those of all neighbours, also where weights turn out too small to be kept.

    Raises
    ------
    ValueError, TypeError
        As of :func:`normalized_cut`.
    BudgetError
        A budget does not hold the vectors; it says how many bytes would do.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps import spectral
    >>> plan = spectral.plan_normalized_cut(
    ...     np.eye(12), radius=2, sigma_i=0.1, devices="host:0"
    ... )
    >>> plan.n, plan.n_entries, plan.method
    (144, 1492, 'LAPACK')
    """
    check_threshold(max_ncut, max_depth, n_segments)
    vectors, seed = tb.whole_number(vectors, "vectors", least=1), tb.whole_number(seed, "seed", least=0)
    _sweep_options(split_points, min_size, search, seed)
    options = solver_options(locals(), seed, sharp=False, gpu_entries=GPU_ENTRIES)
    if isinstance(image_or_affinity, tuple):
        size = size_of(image_or_affinity, lambda A: largest_size(as_graph(A)))
    else:
        size = _given(image_or_affinity, radius, sigma_i, sigma_x, features, mask).size
    return plan_cut("normalized_cut", size, vectors, options, host_budget, normalized=True)


def _of_number(found: Segmentation, n_segments: int | None) -> Segmentation:
    """The segments; an ``InputWarning`` where they are fewer than were asked for."""
    if n_segments is not None and found.n_segments < n_segments:
        warnings.warn(too_few_text(found.n_segments, n_segments), oc.errors.InputWarning, stacklevel=4)  # of normalized_cut
    return found


class _Given(NamedTuple):
    """An image, or an affinity."""

    size: Size
    place: Place
    notes: tuple[str, ...]
    affinity: Graph | None
    seen: Features | None
    scales: Scales
    is_smoothed: bool = False

    def by_default(self) -> _Given:
        """The image with the scale that its features suggest, and without their noise where there is much of it."""
        assert self.seen is not None
        spread, noises = self.seen.spread, noise_of(self.seen)
        noise = float(noises.max())
        is_noisy = noise > _NOISY * spread
        if not is_noisy:
            sigma_i = _OF_RANGE * spread
            seen, told = self.seen, f"sigma_i is {sigma_i:.3g}, a tenth of the range of the features"
        else:
            seen = smoothed(self.seen, noises)
            sigma_i = max(_OF_SMOOTH_RANGE * seen.spread, _OF_NOISE * noise)
            told = f"features have noise of about {noise:.2g} and were smoothed; sigma_i is {sigma_i:.3g}: give one to leave them"
        scales, notes = self.scales._replace(sigma_i=sigma_i), (*self.notes, told) if spread else self.notes
        return self._replace(seen=seen, scales=scales, notes=notes, is_smoothed=is_noisy)

    def graph(self) -> Graph | None:
        """The affinity; None where there is nothing to compare."""
        if self.seen is None:
            return self.affinity
        return pixel_affinity(self.seen, self.scales) if self.seen.spread else None


def _given(
    image_or_affinity: Any, radius: float, sigma_i: float | None, sigma_x: float | None, features: str | ArrayLike, mask: Any
) -> _Given:
    """The image or affinity to cut, if that makes sense."""
    if _is_affinity(image_or_affinity):
        own = None if isinstance(features, str) else features
        _refuse_what_images_have(sigma_i=sigma_i, sigma_x=sigma_x, mask=mask, features=own)
        graph, place, notes = _of_affinity(image_or_affinity)
        size = Size(place.n, 0) if graph is None else largest_size(graph)
        return _Given(size, place, notes, graph, None, Scales(0.0, 0.0, None))
    scales = check_scales(radius, 1.0 if sigma_i is None else sigma_i, sigma_x)
    seen = features_of(image_or_affinity, features, mask)
    place = Place(seen.keep.shape, None if seen.keep.all() else seen.keep)
    return _Given(Size(place.n, count_entries(seen.keep, scales.radius)), place, _notes_on(seen), None, seen, scales)


def _is_affinity(given: Any) -> bool:
    """Tell whether something is a matrix of affinities; arrays and files are images."""
    return issparse(given) or isinstance(given, oc.BlockCSR | oc.Operator | Graph)


def _refuse_what_images_have(**given: object) -> None:
    """Raise where an affinity comes with arguments of images."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} belongs to images, but an affinity was given, which has been computed already: leave it out"
            )


def _of_affinity(given: Any) -> tuple[Graph | None, Place, tuple[str, ...]]:
    """A graph with its weights as affinities."""
    graph = as_graph(given)
    if not graph.n:
        raise ValueError("the affinity has no rows")
    dropped = f"{graph.loops} entries on the diagonal were left out: an affinity of something with itself joins nothing"
    return (graph if graph.n > 1 else None), Place((graph.n,), None), (dropped,) if graph.loops else ()


def _notes_on(features: Features) -> tuple[str, ...]:
    """Notes on an image before anything is computed."""
    notes = []
    left_out = int(np.count_nonzero(~features.keep))
    if left_out:
        notes.append(f"{left_out} of {features.keep.size} pixels are left out by the mask")
    if not features.spread:
        notes.append("the image has one value: there is nothing to split")
    return tuple(notes)


def _doubt_of_scales(features: Features, scales: Scales, graph: Graph | None) -> str:
    """Warning about scales that make affinities of neighbours all alike, or leave hardly any."""
    spread, sigma_i = features.spread, scales.sigma_i
    if graph is None:
        return ""
    if spread < _HARDLY_SEEN * sigma_i:
        values = features.values[features.keep]
        of_bytes = values.min() >= 0 and values.max() <= 1 < sigma_i
        advice = (
            f"give image * 255, or sigma_i={sigma_i / 255:.2g}, if {sigma_i:g} of 255 grey levels were meant"
            if of_bytes
            else f"give one in their units, such as sigma_i={spread / 10:.2g}, a tenth of that"
        )
        return f"sigma_i is {sigma_i:g}, but features differ by {spread:.3g} at most, so that affinities hardly differ: {advice}"
    least = float(graph.adjacency.data.min(initial=1.0))
    are_all_kept = scales.sigma_x is None and graph.adjacency.nnz == count_entries(features.keep, scales.radius)
    if are_all_kept and math.exp(-(_HARDLY_SEEN**2)) < least < 1:
        near = sigma_i * math.sqrt(-math.log(least))
        return (
            f"sigma_i is {sigma_i:.3g}, but features within the radius differ by {near:.3g} at most, so that affinities hardly "
            f"differ: give one such as {near / 2:.2g}, or a larger radius"
        )
    if 2 * np.count_nonzero(graph.degrees < _ALONE) <= graph.n:
        return ""
    few = "so that more than half of the pixels have affinities of about 0 alone"
    if scales.sigma_x is not None and scales.sigma_x < 0.3:  # the next pixel has less than 2e-5
        return f"sigma_x is {scales.sigma_x:g} pixels, {few}: give 1 or more, or leave it out"
    return f"sigma_i is {sigma_i:g}, and features differ by {spread:.3g}, {few}: give a larger one, such as {spread / 10:.2g}"


def _sweep_options(split_points: int | None, min_size: int, search: int | None, seed: int) -> SweepOptions:
    """Options of the sweep over a vector, if they make sense."""
    return SweepOptions(
        None if split_points is None else tb.whole_number(split_points, "split_points", least=_FEWEST_POINTS),
        tb.whole_number(min_size, "min_size", least=1),
        None if search is None else tb.whole_number(search, "search", least=1),
        seed,
    )
