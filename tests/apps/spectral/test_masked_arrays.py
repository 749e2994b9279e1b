"""Masked arrays at the doors of partitions and images: a masked pixel takes no part, and all else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol.apps import spectral as s
from tests.masked import Door, array_parameters, check_real, check_refused, masked

pytestmark = [pytest.mark.commit, pytest.mark.usefixtures("foreign"), pytest.mark.usefixtures("one_blas_thread")]

N = 12
RNG = np.random.default_rng(0)
RING = np.roll(np.eye(N), 1, 0) + np.roll(np.eye(N), -1, 0)
WEIGHTS, LABELS = np.ones(N), np.arange(N) // 6
SITES = RNG.normal(size=(N, 2))
GRAPH = s.as_graph(RING)
IMAGE = np.hstack([np.zeros((6, 5)), np.full((6, 5), 200.0)]) + RNG.uniform(0.0, 5.0, (6, 10))
HOW = {"radius": 2.0, "sigma_i": 50.0, "max_depth": 1, "devices": "host:0"}


def written(labels, folder):
    s.write_partition(folder / "labels", labels, replace=True)
    return s.read_partition(folder / "labels")


def read(weights, folder):
    (folder / "a.graph").write_text("3 2\n2\n1 3\n2\n", encoding="utf-8")
    return s.read_graph(folder / "a.graph", vertex_weights=weights).vertex_weights


def cut(image=IMAGE, **options):
    return s.normalized_cut(image, **HOW, **options).labels


@pytest.mark.parametrize("form", ["csr", "coo", "dia"])
def test_no_sparse_matrix_with_masked_entries_is_taken(form):
    there = csr_array(RING).asformat(form, copy=True)
    there.data = masked(there.data)
    for call in (s.as_graph, s.bisect, lambda a: s.partition(a, 2), s.normalized_cut):
        with pytest.raises(oc.errors.MissingValueError, match=r"data.* is masked"):
            call(there)


#: Every argument that takes an array; files go to a folder.
DOORS = {
    "as_graph.source": lambda _: Door(lambda a: s.as_graph(a).degrees, RING),
    "as_graph.vertex_weights": lambda _: Door(lambda w: s.as_graph(RING, vertex_weights=w).vertex_weights, WEIGHTS),
    "read_graph.vertex_weights": lambda folder: Door(lambda w: read(w, folder), np.ones(3)),
    "bisect.A": lambda _: Door(lambda a: s.bisect(a, devices="host:0").labels, RING),
    "bisect.vertex_weights": lambda _: Door(lambda w: s.bisect(RING, vertex_weights=w, devices="host:0").labels, WEIGHTS),
    "partition.vertex_weights": lambda _: Door(
        lambda w: s.partition(RING, 2, vertex_weights=w, devices="host:0").labels, WEIGHTS
    ),
    "partition.target_sizes": lambda _: Door(
        lambda t: s.partition(RING, 2, target_sizes=t, devices="host:0").labels, np.array([4.0, 8.0])
    ),
    "plan_bisect.vertex_weights": lambda _: Door(lambda w: s.plan_bisect(RING, vertex_weights=w, devices="host:0").n, WEIGHTS),
    "plan_partition.vertex_weights": lambda _: Door(
        lambda w: s.plan_partition(RING, 2, vertex_weights=w, devices="host:0").n, WEIGHTS
    ),
    "plan_partition.target_sizes": lambda _: Door(
        lambda t: s.plan_partition(RING, 2, target_sizes=t, devices="host:0").n, np.array([4.0, 8.0])
    ),
    "plan_normalized_cut.mask": lambda _: Door(
        lambda m: s.plan_normalized_cut(IMAGE, mask=m, **HOW).n, np.ones((6, 10), dtype=bool)
    ),
    "write_partition.labels": lambda folder: Door(lambda x: written(x, folder), LABELS),
    "Graph.cut.labels": lambda _: Door(GRAPH.cut, LABELS),
    "Graph.part_weights.labels": lambda _: Door(lambda x: GRAPH.part_weights(x, 2), LABELS),
    "Graph.subgraph.vertices": lambda _: Door(lambda x: GRAPH.subgraph(x).degrees, np.arange(5)),
    "normalized_cut.mask": lambda _: Door(lambda m: cut(mask=m), np.ones((6, 10), dtype=bool)),
    "NormalizedCut.fit.mask": lambda _: Door(
        lambda m: s.NormalizedCut(**HOW).fit(IMAGE, mask=m).labels_, np.ones((6, 10), dtype=bool)
    ),
    "SpectralPartition.fit.X": lambda _: Door(lambda x: parted(affinity="nearest_neighbors").fit(x).labels_, SITES),
    "SpectralPartition.fit.X of edges": lambda _: Door(lambda x: parted().fit(x).labels_, RING),
    "SpectralPartition.fit.vertex_weights": lambda _: Door(
        lambda w: parted().fit(RING, vertex_weights=w).labels_, WEIGHTS
    ),
    "SpectralPartition.target_sizes": lambda _: Door(
        lambda t: parted(target_sizes=t).fit(RING).labels_, np.array([4.0, 8.0])
    ),
}  # fmt: skip
#: Where a masked pixel is one that takes no part.
TAKEN = {"normalized_cut.features", "NormalizedCut.features", "plan_normalized_cut.features"}


def parted(**options):
    return s.SpectralPartition(n_parts=2, devices="host:0", **options)


@pytest.mark.parametrize("name", DOORS)
def test_no_door_takes_what_lies_beneath_a_mask(name, tmp_path):
    check_refused(DOORS[name](tmp_path), tmp_path)


@pytest.mark.parametrize("name", [name for name in DOORS if name != "Graph.cut.labels"])  # which are compared, whatever they are
def test_no_door_drops_imaginary_parts(name, tmp_path):
    check_real(DOORS[name](tmp_path))


def test_every_array_that_is_taken_is_in_the_table():
    there = {*array_parameters({name: getattr(s, name) for name in s.__all__})}
    assert there <= {*DOORS, *TAKEN}, sorted(there - {*DOORS, *TAKEN})


def test_a_masked_pixel_takes_no_part_and_what_lies_beneath_does_not_count():
    there, gaps = masked(IMAGE), np.ma.getmaskarray(masked(IMAGE))
    wanted = cut(mask=~gaps)
    for beneath in (0.0, 1e9, np.nan):
        there.data[gaps] = beneath
        np.testing.assert_array_equal(cut(there), wanted)
        np.testing.assert_array_equal(cut(IMAGE, mask=~gaps, features=there), cut(IMAGE, mask=~gaps, features=IMAGE))
    with pytest.raises(ValueError, match=r"pixel \(3, 0\) is NaN or infinite, .* give a mask that leaves them out"):
        cut(IMAGE, features=there)
    np.testing.assert_array_equal(cut(np.ma.masked_array(IMAGE, False)), cut())
