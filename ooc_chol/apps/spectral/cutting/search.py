"""Search of the span of some vectors for the direction that splits a graph at the smallest cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.spectral.cutting.splits import BATCH, Product, Splits
from ooc_chol.apps.spectral.cutting.target import Cut, Target
from ooc_chol.apps.spectral.graphs.graph import Graph

#: Angles between the first two vectors that are tried.
ANGLES = 11
#: Splits along single vectors that are kept, the best ones: each is refined.
AXES = 12
#: The best directions that a local search starts from, its rounds, and directions that each tries beside each best one.
STARTS, ROUNDS, TRIES = 4, 8, 8
#: How far from the best the first round looks; every other round looks half as far as the one before.
RADIUS = 0.4
#: Edges from which on a GPU that is named counts the cuts.
DEVICE_EDGES = 20_000_000


class _Candidate(NamedTuple):
    """A direction and the split along it."""

    direction: NDArray[np.float64]
    labels: NDArray[np.int8]
    cut: float
    how: str


def search_cuts(
    graph: Graph,
    vectors: NDArray[np.float64],
    target: Target,
    *,
    search: int = 60,
    seed: int = 0,
    devices: str | Sequence[str] | int | None = None,
    product: Product | None = None,
) -> tuple[list[Cut], list[str]]:
    """Look for the direction in the span of some vectors along which a balanced split cuts least.

    Returns the cuts, ascending and without equal ones (those along the axes, the best 12 of them, the best four of the others,
    and the results of a local search from these), and notes. ``vectors`` (n, d) are orthonormal; ``product`` maps ``X (n, b)`` to
    ``A X`` with the adjacency matrix, ``BATCH`` splits at once. The local search tries 8 directions around each of the best four,
    in 8 rounds of which each looks half as far as the one before. A split costs a partial sort, its cut a bit of one pass over
    the edges for eight of them. Raises ``ValueError``.
    """
    coordinates = _checked(graph, vectors, search)
    rng = np.random.default_rng(seed)
    with _counter(graph, devices, product) as (counter, notes):
        splits = Splits(graph, target, counter)
        directions, names = _first_directions(len(coordinates), search, target, rng)
        found = _evaluated(splits, coordinates, directions, names)
        best = _distinct(_ascending(found), target)[:STARTS]
        ends = _local_search(splits, coordinates, best, rng) if len(coordinates) > 1 and search > 0 else []
    axes = _ascending([one for one in found if one.how.startswith("vector")])[:AXES]
    cuts = _distinct(_ascending(best + ends + axes), target)
    return [Cut(one.labels, one.cut, float(graph.vertex_weights[one.labels == 0].sum()), one.how) for one in cuts], notes


def _checked(graph: Graph, vectors: NDArray[np.float64], search: int) -> NDArray[np.float64]:
    """The vectors as rows."""
    rows = np.ascontiguousarray(np.asarray(vectors, np.float64).T)
    if rows.ndim != 2 or rows.shape[1] != graph.n or not len(rows):
        raise ValueError(
            f"vectors has shape {np.shape(vectors)}, but {graph.name} has {graph.n} vertices: give one or more of them as columns"
        )
    if graph.n < 2:
        raise ValueError(f"{graph.name} has {graph.n} vertices, but two parts take two or more")
    if not np.all(np.isfinite(rows)):
        raise ValueError("vectors has entries that are NaN or infinite, by which vertices cannot be sorted: compute them anew")
    if search < 0:
        raise ValueError(f"search is {search}, but the number of random directions is 0 or more")
    return rows


@contextmanager
def _counter(
    graph: Graph, devices: str | Sequence[str] | int | None, product: Product | None
) -> Iterator[tuple[Product | None, list[str]]]:
    """Product that counts cuts, if there is any, and notes on it."""
    if product is not None:
        yield product, ["Cuts were counted by the products that the caller gave."]
    elif graph.n_edges >= DEVICE_EDGES and _names_gpu(devices):
        with oc.multiplier(graph.adjacency, BATCH, devices=devices) as multiply:
            yield multiply, [f"Cuts were counted on {', '.join(multiply.plan.devices)}, {BATCH} splits in a product."]
    else:
        yield None, []


def _names_gpu(devices: str | Sequence[str] | int | None) -> bool:
    """Tell whether devices were asked for by names, and those are GPUs."""
    names = devices.split(",") if isinstance(devices, str) else devices if isinstance(devices, Sequence) else ()
    return any(name.strip().startswith(("cuda", "gpu")) for name in names)


def _ascending(candidates: list[_Candidate]) -> list[_Candidate]:
    """By their cuts; equal ones as they came."""
    return sorted(candidates, key=lambda one: one.cut)


def _first_directions(
    dimensions: int, search: int, target: Target, rng: np.random.Generator
) -> tuple[NDArray[np.float64], list[str]]:
    """The axes, angles of the first two, random ones; both ways of each where the parts differ in weight."""
    axes = np.eye(dimensions)
    directions, names = list(axes), [f"vector {i + 1}" for i in range(dimensions)]
    if dimensions > 1:
        for i in range(1, ANGLES + 1):
            angle = np.pi * i / (ANGLES + 1)
            directions.append(np.cos(angle) * axes[0] + np.sin(angle) * axes[1])
            names.append(f"angle {i}")
        directions += list(rng.standard_normal((search, dimensions)))
        names += [f"random {i + 1}" for i in range(search)]
    if not _is_even(target):
        directions += [-one for one in directions]
        names += [f"{name} the other way" for name in names]
    rows = np.array(directions)
    return rows / np.linalg.norm(rows, axis=1)[:, None], names


def _is_even(target: Target) -> bool:
    """Tell whether both parts shall weigh the same, so that they may change their labels."""
    return 2 * target.weight == target.total


def _evaluated(
    splits: Splits, coordinates: NDArray[np.float64], directions: NDArray[np.float64], names: list[str]
) -> list[_Candidate]:
    """Splits along directions."""
    found = []
    for start in range(0, len(directions), BATCH):
        some = directions[start : start + BATCH]
        labels, cuts = splits.best(some @ coordinates)
        counted = zip(some, labels, cuts.tolist(), names[start : start + BATCH], strict=True)
        found += [_Candidate(*one) for one in counted]
    return found


def _distinct(candidates: list[_Candidate], target: Target) -> list[_Candidate]:
    """Candidates without those that split as an earlier one does."""
    kept, seen = [], set()
    for one in candidates:
        labels = one.labels ^ one.labels[0] if _is_even(target) else one.labels
        key = np.packbits(labels).tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(one)
    return kept


def _local_search(
    splits: Splits, coordinates: NDArray[np.float64], starts: list[_Candidate], rng: np.random.Generator
) -> list[_Candidate]:
    """Better splits near the best ones: every round looks half as far as the one before."""
    best = [one._replace(how=f"search from {one.how}") for one in starts]
    for turn in range(ROUNDS):
        steps = rng.standard_normal((len(best), TRIES, len(coordinates))) * RADIUS / 2**turn
        for i, one in enumerate(best):
            near = one.direction + steps[i]
            near /= np.linalg.norm(near, axis=1)[:, None]
            tried = _evaluated(splits, coordinates, near, [one.how] * TRIES)
            best[i] = min([one, *tried], key=lambda other: other.cut)
    return best
