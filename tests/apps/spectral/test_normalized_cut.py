"""Normalized cuts: known segments found, thresholds from one tree, and what cannot be segmented told."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import block_diag, coo_array, csr_array

import ooc_chol as oc
from ooc_chol.apps.spectral import Graph, Segmentation, normalized_cut
from tests.apps.spectral.drawn_images import disc, five_regions, numbered, six_regions, two_discs
from tests.inside.spectral import SolverOptions, check_scales, features_of, normalized, pixel_affinity, regions

pytestmark = pytest.mark.host


def camera(shape: tuple[int, int]) -> NDArray[np.float64]:
    """Scikit-image's camera as a user makes it smaller, in grey levels of 0 to 255."""
    from skimage.data import camera as photograph
    from skimage.transform import resize

    return np.asarray(255 * resize(photograph(), shape))


def recounted(labels: NDArray[np.int32], grey: NDArray[np.float64], radius: int, sigma: float) -> float:
    """Normalized cut of two segments of a whole image, from every pair of pixels by shifts."""
    cut, assoc = 0.0, np.zeros(2)
    height, width = grey.shape
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if not 0 < dy**2 + dx**2 <= radius**2:
                continue
            here = slice(max(0, -dy), height - max(0, dy)), slice(max(0, -dx), width - max(0, dx))
            there = slice(max(0, dy), height - max(0, -dy)), slice(max(0, dx), width - max(0, -dx))
            weights = np.exp(-(((grey[here] - grey[there]) / sigma) ** 2))
            cut += weights[(labels[here] == 0) & (labels[there] == 1)].sum()
            assoc += [weights[labels[here] == part].sum() for part in (0, 1)]
    return float((cut / assoc).sum())


# B3 of the issue


@pytest.mark.package("skimage")
@pytest.mark.parametrize("vectors", [2, 3])
def test_camera_is_cut_as_well_as_was_measured(vectors: int) -> None:
    grey = camera((80, 100))
    found = normalized_cut(grey, sigma_i=20, radius=5, max_ncut=0.02, max_depth=1, vectors=vectors)
    assert found.n_segments == 2
    assert found.ncut <= 0.0020
    assert recounted(found.labels, grey, 5, 20.0) == pytest.approx(found.ncut, rel=1e-10)


@pytest.mark.package("skimage")
def test_the_published_algorithm_is_within_reach() -> None:
    """One vector and a few evenly spaced points find about what all points of it do, and no less than the search."""
    grey = camera((80, 100))
    found = {
        name: normalized_cut(grey, sigma_i=20, max_ncut=0.1, max_depth=1, **options).ncut  # type: ignore[arg-type]
        for name, options in {"few": {"vectors": 1, "split_points": 30}, "one": {"vectors": 1}, "searched": {}}.items()
    }
    assert found["searched"] < found["one"] <= found["few"] < 0.01
    assert found["one"] == pytest.approx(0.002038, abs=2e-5)  # SciPy's eigsh and the same split


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_discs_on_noise_are_recovered(seed: int) -> None:
    image, labels = two_discs(seed)
    found = normalized_cut(image, sigma_i=25, max_ncut=0.01, seed=seed)
    np.testing.assert_array_equal(found.labels, numbered(labels))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_five_regions_are_five_segments(seed: int) -> None:
    image, labels = five_regions(seed)
    found = normalized_cut(image, sigma_i=20, max_ncut=0.1, seed=seed)
    assert found.n_segments == 5
    np.testing.assert_array_equal(found.labels, numbered(labels))
    assert found.report.splits == 4
    assert [split.n for split in found.tree if split.depth == 0] == [3000]


@pytest.mark.package("skimage")
@pytest.mark.package("pyamg")
def test_camera_of_160_x_240_takes_seconds() -> None:
    grey = camera((160, 240))
    began = time.process_time()
    found = normalized_cut(grey, sigma_i=20, max_ncut=0.1, max_depth=1)
    assert time.process_time() - began < 20
    assert found.report.passes < 60
    assert found.ncut < 7.1e-4


# thresholds


def same(one: Segmentation, other: Segmentation) -> bool:
    return bool(np.array_equal(one.labels, other.labels)) and one.tree == other.tree


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_number_of_segments_takes_the_best_cut_next(count: int) -> None:
    image, labels = five_regions()
    found = normalized_cut(image, sigma_i=20, n_segments=count)
    assert found.n_segments == count == found.report.splits + 1
    split = {number for number, one in enumerate(found.tree) if one.is_split}
    left = [one.ncut for number, one in enumerate(found.tree) if number not in split]
    assert all(found.tree[number].ncut <= min(left, default=2.0) for number in split)
    assert {one.parent for one in found.tree} <= {-1, *split}
    if count == 5:
        np.testing.assert_array_equal(found.labels, numbered(labels))
    again = found.at(0.1)
    np.testing.assert_array_equal(again.labels, numbered(labels))


@pytest.mark.parametrize(
    ("image", "options", "count"),
    [(five_regions()[0], {"max_depth": 1}, 2), (five_regions()[0], {"min_size": 1600}, 1), (np.ones((9, 9)), {}, 1)],
    ids=["depth", "size", "one value"],
)
def test_fewer_segments_than_were_asked_for_are_warned_of(image: NDArray[Any], options: dict[str, Any], count: int) -> None:
    with pytest.warns(oc.errors.InputWarning, match=rf"n_segments is 4, but {count} segment") as caught:
        assert normalized_cut(image, sigma_i=20, n_segments=4, **options).n_segments == count
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("long")
def test_other_thresholds_come_from_the_same_tree() -> None:
    image, _ = five_regions()
    first = normalized_cut(image, sigma_i=20, max_ncut=0.1, seed=3)
    assert first.report.passes > 0
    for max_ncut, max_depth in [(0.1, 1), (1e-6, None), (0.1, None), (0.1, 0)]:
        again = first.at(max_ncut, max_depth=max_depth)
        assert again.report.passes == 0
        assert any("looked at for another threshold" in note for note in again.report.notes) == (max_depth != 0)
        assert same(again, normalized_cut(image, sigma_i=20, max_ncut=max_ncut, max_depth=max_depth, seed=3))
    more = first.at(0.4, max_depth=4)
    assert more.n_segments > 5
    assert same(more, normalized_cut(image, sigma_i=20, max_ncut=0.4, max_depth=4, seed=3))
    with pytest.raises(ValueError, match="max_ncut is 0"):
        first.at(0)
    with pytest.raises(ValueError, match="let go of its affinity"):
        replace(first, more=None).at(0.1)


def test_trees_name_parents_and_reasons() -> None:
    image, _ = five_regions()
    tree = normalized_cut(image, sigma_i=20, max_ncut=0.1).tree
    assert tree[0].parent == -1
    for split in tree[1:]:
        parent = tree[split.parent]
        assert parent.is_split
        assert parent.depth == split.depth - 1
        assert split.n in parent.children
    assert all(sum(split.children) == split.n for split in tree)
    assert all(split.is_split == (split.ncut <= 0.1) for split in tree)
    assert all(("at most max_ncut" in split.reason) == split.is_split for split in tree)


def test_the_nearest_cut_that_was_refused_is_told_with_what_makes_it() -> None:
    image, _ = five_regions()
    found = normalized_cut(image, max_ncut=1e-4)
    refused = min(split.ncut for split in found.tree if not split.is_split)
    told = next(note for note in found.report.notes if note.startswith("the next cut, of "))
    assert f"Ncut {refused:.3g}: max_ncut=" in told
    more = found.at(float(told.split("max_ncut=")[1].split()[0]))
    assert more.n_segments > found.n_segments
    number = normalized_cut(image, n_segments=4)
    assert any(note.endswith("n_segments=5 makes it") for note in number.report.notes)
    assert not any("the next cut" in note for note in normalized_cut(image, max_ncut=2, min_size=1600).report.notes)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("noise", [5, 15, 30])
def test_the_default_scale_follows_the_noise(noise: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    image, labels = six_regions(noise)
    found = normalized_cut(image)
    assert adjusted_rand_score(labels.ravel(), found.labels.ravel()) > 0.95
    assert any("and were smoothed" in note for note in found.report.notes)
    given = normalized_cut(image, sigma_i=25, max_depth=1)
    assert not any("smoothed" in note for note in given.report.notes)
    weights = pixel_affinity(features_of(image, "grey", None), check_scales(5, 25, None))
    assert given.ncut == normalized_cut(weights.adjacency, max_depth=1).ncut


def test_noise_alone_is_one_segment() -> None:
    assert normalized_cut(np.random.default_rng(0).normal(100, 5, (40, 50))).n_segments == 1


def test_limits_that_end_the_recursion_are_told() -> None:
    image, _ = five_regions()
    flat = normalized_cut(image, sigma_i=20, max_ncut=0.1, max_depth=1)
    assert flat.n_segments == 2
    assert "2 segments at max_depth 1 were not looked at" in flat.report.notes
    coarse = normalized_cut(image, sigma_i=20, max_ncut=0.1, min_size=700)
    assert coarse.sizes.min() >= 700
    assert any("twice min_size" in note for note in coarse.report.notes)


def test_the_same_seed_gives_the_same_segments_on_any_devices() -> None:
    image, _ = two_discs(5)
    one, two = (normalized_cut(image, sigma_i=25, seed=7, devices=devices) for devices in ("host:0", ["host:0", "host:1"]))
    assert same(one, two)


# small segments beside a GPU


@pytest.fixture
def as_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Devices that are taken for a GPU, though they are the host: a list is, the name that small graphs are solved on is not."""
    monkeypatch.setattr(SolverOptions, "are_gpus", property(lambda options: options.devices != "host:0"))
    return ["host:0"]


@pytest.mark.package("pyamg")
def test_small_segments_are_solved_on_the_host_and_told(as_gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    image, labels = five_regions()
    whole = normalized_cut(image, sigma_i=20, max_ncut=0.1, devices=as_gpu)
    assert any("solved on the host" in note for note in whole.report.notes)
    assert "Lanczos" not in whole.report.method
    monkeypatch.setattr(normalized, "GPU_ENTRIES", whole.report.n_entries)
    some = normalized_cut(image, sigma_i=20, max_ncut=0.1, devices=as_gpu)
    assert some.report.method.startswith("block Lanczos (1 segment), LOBPCG with smoothed aggregation")
    solved = sum(bool(split.eigenvalues) for split in some.tree) - 1
    by_lapack = sum(0 < split.n <= 600 for split in some.tree if split.eigenvalues)
    assert any(note.startswith(f"{solved - by_lapack} segment") and "solved on the host" in note for note in some.report.notes)
    assert str(some.report).count("solved on the host") == 1
    for found in (whole, some):
        np.testing.assert_array_equal(numbered(found.labels), numbered(labels))


@pytest.mark.usefixtures("long")
def test_segments_that_are_looked_at_together_are_those_of_one_after_the_other(
    as_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, _ = five_regions()
    monkeypatch.setattr(normalized, "GPU_ENTRIES", 0)
    together = normalized_cut(image, sigma_i=20, max_ncut=0.5, max_depth=5, devices=as_gpu)
    monkeypatch.setattr(normalized, "_AT_ONCE", 1)
    one_by_one = normalized_cut(image, sigma_i=20, max_ncut=0.5, max_depth=5, devices=as_gpu)
    assert len(together.tree) > 8
    assert same(together, one_by_one)
    assert together.report.passes == one_by_one.report.passes
    assert any("together" in note for note in together.report.notes)
    assert not any("together" in note for note in one_by_one.report.notes)
    again = together.at(0.5, max_depth=5)
    assert again.report.passes == 0
    assert not any("together" in note for note in again.report.notes)


def test_an_error_of_one_segment_ends_the_others_and_what_they_found_is_kept(
    as_gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image, labels = five_regions()
    found = normalized_cut(image, sigma_i=20, max_ncut=0.1, max_depth=1, devices=as_gpu)
    solve, calls = regions.lowest_eigenpairs, []

    def fails(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) == 2:
            raise oc.errors.NoConvergenceError(1, *(np.empty(0),) * 3, 1.0, 1e-6, "a test says so", "nothing")
        return solve(*given, **named)

    monkeypatch.setattr(regions, "lowest_eigenpairs", fails)
    with pytest.raises(oc.errors.NoConvergenceError, match="a test says so"):
        found.at(0.1)
    monkeypatch.setattr(regions, "lowest_eigenpairs", solve)
    np.testing.assert_array_equal(numbered(found.at(0.1).labels), numbered(labels))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ooc_chol team")]


@pytest.mark.parametrize(("times", "is_on_host"), [(2, False), (5, True)])
def test_without_a_cycle_the_host_takes_fewer(
    as_gpu: list[str], monkeypatch: pytest.MonkeyPatch, times: int, is_on_host: bool
) -> None:
    image, _ = two_discs()
    n_entries = pixel_affinity(features_of(image, "grey", None), check_scales(5, 25.0, None)).adjacency.nnz
    monkeypatch.setattr(normalized, "GPU_ENTRIES", times * n_entries)
    found = normalized_cut(image, sigma_i=25, max_ncut=0.01, max_depth=1, devices=as_gpu, preconditioner="diagonal")
    assert found.report.n_entries == n_entries
    assert found.report.method == "block Lanczos"
    assert any("solved on the host" in note for note in found.report.notes) == is_on_host


def test_on_a_host_that_was_asked_for_nothing_is_told() -> None:
    image, _ = two_discs()
    found = normalized_cut(image, sigma_i=25, max_ncut=0.01, devices="host:0")
    assert not any("solved on the host" in note for note in found.report.notes)


# pixels left out, loose ones, images of one value


def test_masked_pixels_have_no_segment() -> None:
    image, labels = two_discs()
    mask = labels != 1
    found = normalized_cut(image, sigma_i=25, max_ncut=0.01, mask=mask)
    np.testing.assert_array_equal(found.labels == -1, ~mask)
    assert found.n_segments == 2
    np.testing.assert_array_equal(found.labels[mask], numbered(labels)[mask] // 2)
    assert any("pixels are left out by the mask" in note for note in found.report.notes)


def test_islands_of_a_mask_are_segments_without_eigenvectors() -> None:
    rng = np.random.default_rng(0)
    mask = disc((30, 60), (15, 14), 9) | disc((30, 60), (15, 44), 10)
    found = normalized_cut(rng.uniform(100, 110, mask.shape), sigma_i=15, mask=mask, max_depth=1)
    assert found.ncut == 0
    assert found.n_segments == 2
    assert "nothing joins" in found.tree[0].reason
    assert found.report.passes == 0
    assert found.tree[0].eigenvalues == ()


def test_affinities_far_below_rounding_are_no_bridges() -> None:
    """Discs 200 grey levels from their ground with sigma_i 8: affinities of 1e-271, and eigenvalues that are 0 in float64."""
    labels = disc((40, 60), (20, 17), 9).astype(np.int32) + 2 * disc((40, 60), (20, 43), 9)
    image = np.array([20.0, 220.0, 120.0])[labels] + np.random.default_rng(0).normal(0, 2, labels.shape)
    found = normalized_cut(image, sigma_i=8, max_ncut=0.05)
    np.testing.assert_array_equal(found.labels, numbered(labels))
    assert 0 <= found.ncut < 1e-20


def test_specks_stay_with_a_larger_segment_where_they_are_too_small() -> None:
    """Single pixels of another grey, whose edges are all but nothing: no segments, and no harm to the others."""
    image, labels = two_discs()
    specks = np.random.default_rng(1).random(image.shape) < 0.01
    image = np.where(specks, 255, image // 2).astype(np.uint8)
    found = normalized_cut(image, sigma_i=12, max_ncut=0.01, min_size=20)
    assert found.n_segments == 3
    wanted = numbered(labels)
    assert np.array_equal(found.labels[~specks], wanted[~specks])


def test_an_image_of_one_value_is_one_segment() -> None:
    found = normalized_cut(np.full((20, 30), 7, np.uint8), sigma_i=20)
    assert found.n_segments == 1
    assert math.isnan(found.ncut)
    assert found.tree == ()
    assert "the image has one value: there is nothing to split" in str(found)
    assert found.at(0.5).n_segments == 1
    mask = np.zeros((20, 30), bool)
    mask[4, 5] = True
    assert normalized_cut(np.arange(600.0).reshape(20, 30), sigma_i=2, mask=mask).labels.max() == 0


#: Images and scales that do not go together, and what is said; or nothing, where they do.
SCALES = {
    "floats to 1": (lambda u8: u8 / 255, {"sigma_i": 20}, r"give image \* 255, or sigma_i=0\.078, if 20 of 255 grey"),
    "colours to 1": (lambda u8: np.dstack([u8 / 255] * 3), {"sigma_i": 20}, r"give image \* 255"),
    "a slow slope": (
        lambda u8: np.mgrid[:20, :30][1] * 2.0,
        {"sigma_i": 25},
        "sigma_i is 25, but features within the radius differ by 10 at most, .* such as 5, or a larger radius",
    ),
    "two near grey levels": (lambda u8: 100 + (u8 > 100).astype(np.uint8), {"sigma_i": 20}, "such as sigma_i=0.1, a tenth"),
    "a scale of nothing": (
        lambda u8: u8 + _noise(u8.shape),
        {"sigma_i": 1e-3},
        "sigma_i is 0.001, .* affinities of about 0 alone",
    ),
    "hardly a pixel": (lambda u8: u8 + _noise(u8.shape), {"sigma_i": 20, "sigma_x": 0.01}, "sigma_x is 0.01 pixels"),
    "bytes": (lambda u8: u8, {"sigma_i": 20}, None),
    "wide integers": (lambda u8: u8.astype(np.int64), {"sigma_i": 20}, None),
    "truth values": (lambda u8: u8 > 100, {"sigma_i": 20}, None),
    "floats to 255": (lambda u8: u8.astype(float), {"sigma_i": 20}, None),
    "floats to 1 by their scale": (lambda u8: u8 / 255, {"sigma_i": 20 / 255}, None),
    "no scale": (lambda u8: u8 / 255, {}, None),
    "areas of one value": (lambda u8: u8.astype(float), {"sigma_i": 1e-3}, None),
    "distances that hardly count": (lambda u8: u8.astype(float), {"sigma_i": 20, "sigma_x": 1e6}, None),
    "one value": (lambda u8: np.full_like(u8, 7), {"sigma_i": 20}, None),
}


def _noise(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.random.default_rng(0).normal(0, 4, shape)


@pytest.mark.parametrize("name", SCALES)
def test_a_scale_in_other_units_is_warned_of(name: str) -> None:
    make, options, said = SCALES[name]
    image = make(np.where(disc((20, 30), (10, 10), 6), 190, 90).astype(np.uint8))
    if said is None:
        notes = normalized_cut(image, max_ncut=0.05, **options).report.notes
        assert [note for note in notes if "sigma" in note] == [
            "sigma_i is 0.0392, a tenth of the range of the features" for _ in range("sigma_i" not in options)
        ]
        return
    with pytest.warns(oc.errors.InputWarning, match=said) as caught:
        found = normalized_cut(image, max_ncut=0.05, **options)
    assert caught[0].filename == __file__
    assert str(caught[0].message) in found.report.notes


@pytest.mark.parametrize("drawn", [two_discs, five_regions])
def test_one_picture_has_the_same_segments_in_every_type(drawn: Any) -> None:
    image, labels = drawn()
    white = np.full_like(image, 255)
    for same in (
        image,
        image.astype(np.uint16) * 257,
        image / 255,
        image.astype(np.float32),
        image - 1000.0,
        np.dstack([image] * 3),
        np.dstack([image] * 3) / 255,
        np.dstack([image, image, image, white]),
        np.dstack([image, white]).astype(np.uint16) * 257,
    ):
        np.testing.assert_array_equal(normalized_cut(same, max_ncut=0.02 if labels.max() == 2 else 0.1).labels, numbered(labels))


@pytest.mark.parametrize("name", ["n_clusters", "k", "n_parts", "nparts"])
def test_another_word_for_a_number_of_segments_is_refused_with_ours(name: str) -> None:
    with pytest.raises(TypeError, match=f"normalized_cut has no argument {name}: it is called n_segments"):
        normalized_cut(np.eye(12) * 200, sigma_i=20, **{name: 3})


# what pixels are compared by


@pytest.mark.package("skimage")
def test_colours_of_one_grey_are_told_apart_by_lab() -> None:
    from skimage.color import rgb2gray

    labels = disc((30, 30), (15, 15), 8)
    image = np.where(labels[:, :, None], [200, 60, 60], [40, 107, 60]).astype(np.uint8)
    assert np.ptp(rgb2gray(image)) < 0.005
    found = normalized_cut(image, sigma_i=15, features="lab", max_ncut=0.01)
    np.testing.assert_array_equal(found.labels, labels)
    own = normalized_cut(image, sigma_i=40, features=image.astype(float), max_ncut=0.01)
    np.testing.assert_array_equal(own.labels, labels)


@pytest.mark.package("skimage")
@pytest.mark.parametrize("name", ["coins", "coffee"])
def test_files_and_depths_of_bits_give_the_same_segments(tmp_path: Path, name: str) -> None:
    from skimage import data
    from skimage.io import imsave
    from skimage.transform import resize

    photograph = getattr(data, name)()
    image = np.rint(255 * resize(photograph, (40, 60))).astype(np.uint8)
    imsave(tmp_path / "image.png", image, check_contrast=False)
    options = {"sigma_i": 20, "max_ncut": 0.05, "max_depth": 2}
    found = normalized_cut(image, **options)  # type: ignore[arg-type]
    assert found.n_segments >= 2
    assert np.array_equal(found.labels, normalized_cut(tmp_path / "image.png", **options).labels)  # type: ignore[arg-type]
    assert np.array_equal(found.labels, normalized_cut(image.astype(np.uint16) * 257, **options).labels)  # type: ignore[arg-type]


# affinities


def clusters() -> csr_array:
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(centre, 0.4, (30, 2)) for centre in ((0, 0), (4, 0), (0, 4))])
    far = ((points[:, None] - points) ** 2).sum(axis=2)
    return csr_array(np.exp(-far))


def test_affinities_of_other_things() -> None:
    affinity = clusters()
    found = normalized_cut(affinity, max_ncut=0.1)
    np.testing.assert_array_equal(found.labels, np.repeat([0, 1, 2], 30))
    assert any("90 entries on the diagonal were left out" in note for note in found.report.notes)
    with oc.block_csr(affinity) as packed:
        assert same(found, normalized_cut(packed, max_ncut=0.1))


def test_disconnected_affinities_are_split_first() -> None:
    blocks = [np.ones((size, size)) for size in (5, 9, 1, 7)]
    found = normalized_cut(csr_array(block_diag([coo_array(block) for block in blocks])), max_ncut=0.01)
    np.testing.assert_array_equal(found.labels, np.repeat([0, 1, 2, 3], [5, 9, 1, 7]))
    assert found.ncut == 0


def with_entry(value: float, *, both: bool = True) -> csr_array:
    dense = np.ones((4, 4))
    dense[1, 2] = value
    if both:
        dense[2, 1] = value
    return csr_array(dense)


@pytest.mark.parametrize(
    "affinity",
    [csr_array(np.ones((3, 4))), with_entry(-1.0), with_entry(0.5, both=False), with_entry(math.nan), with_entry(math.inf)],
    ids=["not square", "negative", "not symmetric", "NaN", "infinite"],
)
def test_what_is_no_affinity(affinity: csr_array) -> None:
    with pytest.raises(ValueError):
        normalized_cut(affinity)


@pytest.mark.parametrize(
    "options", [{"sigma_i": 20}, {"sigma_x": 3}, {"mask": np.ones(90, bool)}, {"features": np.ones((9, 10))}]
)
def test_affinities_take_no_arguments_of_images(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="belongs to images"):
        normalized_cut(clusters(), **options)  # type: ignore[arg-type]


# arguments


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"max_ncut": 0}, ValueError, "max_ncut is 0"),
        ({"max_ncut": 2.5}, ValueError, "from 0 to 2"),
        ({"max_ncut": math.nan}, ValueError, "max_ncut is nan"),
        ({"max_depth": -1}, ValueError, "max_depth is -1"),
        ({"n_segments": 0}, ValueError, "n_segments is 0"),
        ({"n_segments": 2.5}, TypeError, "n_segments is a float"),
        ({"n_segments": 3, "max_ncut": 0.01}, ValueError, "leave one of them out"),
        ({"max_depth": 1.5}, TypeError, "max_depth is a float"),
        ({"min_size": 0}, ValueError, "min_size is 0"),
        ({"split_points": 9}, ValueError, "split_points is 9; give 10 or more"),
        ({"vectors": 0}, ValueError, "vectors is 0"),
        ({"search": True}, TypeError, "search is a bool"),
        ({"sigma_i": 0}, ValueError, "sigma_i is 0"),
        ({"radius": 0}, ValueError, "radius is 0"),
        ({"mask": np.zeros((48, 64), bool)}, ValueError, "leaves none"),
        ({"preconditioner": "ilu"}, ValueError, "preconditioner"),
        ({"tolerance": 1e-3}, TypeError, "tolerance"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, object], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        normalized_cut(two_discs()[0], **{"sigma_i": 20, **options})  # type: ignore[arg-type]


# texts


def test_texts() -> None:
    image, _ = five_regions()
    found = normalized_cut(image, sigma_i=20, max_ncut=0.1, trace=True)
    assert "\n" not in repr(found)
    assert repr(found).startswith("Segmentation(n_segments=5, shape='50 x 60', ncut=")
    page = str(found)
    assert page.startswith("5 segments of an image of 50 x 60 pixels\n")
    assert "3000 pixels are split into" in page
    assert found.report.method in page
    assert isinstance(found.trace, oc.Trace)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["n_segments"] == 5
    assert sum(told["sizes"]) == 3000
    assert len(told["tree"]) == told["report"]["looks"] == len(found.tree)
    assert json.loads(json.dumps(normalized_cut(np.ones((3, 3)), sigma_i=1).to_dict(), allow_nan=False))["ncut"] is None


@pytest.mark.package("skimage")
def test_affinities_of_every_magnitude_are_segmented() -> None:
    """Coins with a scale of 3 grey levels: weights down to the smallest number, eigenvalues far below rounding."""
    from skimage import data
    from skimage.transform import resize

    found = normalized_cut(255 * resize(data.coins(), (40, 50)), sigma_i=3, max_ncut=0.01, max_depth=4)
    assert found.n_segments > 2
    assert all(0 <= split.ncut <= 0.01 for split in found.tree if split.is_split)
    assert found.report.passes < 300


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"seed": None}, TypeError, "seed is a NoneType"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"seed": 1.5}, TypeError, "seed is a float"),
        ({"sigma_i": "20"}, TypeError, "sigma_i is a str"),
        ({"radius": None}, TypeError, "radius is a NoneType"),
        ({"max_ncut": "1"}, TypeError, "max_ncut is a str"),
        ({"colour": 1}, TypeError, "has no argument colour"),
    ],
)
def test_arguments_of_other_types_are_named(options, kind, text):
    with pytest.raises(kind, match=text):
        normalized_cut(np.arange(12.0).reshape(3, 4), **{"sigma_i": 2.0, **options})


def test_numbers_of_numpy_are_numbers():
    image = np.repeat([[0.0, 100.0]], 6, axis=1).repeat(6, axis=0)
    found = normalized_cut(image, sigma_i=np.float32(20), max_depth=np.int64(1), min_size=np.int8(2), seed=np.uint8(3))
    assert found.n_segments == 2 and "max_depth 1 were not looked at" in found.report.notes[-1]


@pytest.mark.parametrize("wanted", [{"max_ncut": 0.3}, {"n_segments": 5}])
def test_segments_do_not_depend_on_what_is_packed(wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a packed segment are multiplied by its blocks; nothing stays packed behind the call."""
    grey, packed, closed = five_regions()[0], list[int](), list[int]()
    whole, close = oc.block_csr, oc.BlockCSR.close
    monkeypatch.setattr(regions.oc, "block_csr", lambda *given, **how: packed.append(1) or whole(*given, **how))
    monkeypatch.setattr(oc.BlockCSR, "close", lambda self: (closed.append(1) if not self.closed else None, close(self))[1])
    how: dict[str, Any] = {"sigma_i": 20, "radius": 3, "preconditioner": "diagonal", "devices": "host:0", **wanted}
    shared = normalized_cut(grey, **how)
    assert len(closed) == len(packed)
    count = len(packed)
    monkeypatch.setattr(regions, "_SHARED", 2.0)
    apart = normalized_cut(grey, **how)
    assert len(packed) - count > count > 0
    np.testing.assert_array_equal(shared.labels, apart.labels)


@pytest.mark.parametrize("wanted", [{"max_ncut": 0.3}, {"n_segments": 5}])
def test_segments_do_not_depend_on_whose_rows_are_shared(wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a segment before, or copies: every cut is the same to the bit, and nothing is kept behind the call."""
    how: dict[str, Any] = {"sigma_i": 20, "radius": 3, "preconditioner": "diagonal", "devices": "host:0", **wanted}
    found, copies, copy = list[Segmentation](), [0, 0], Graph.subgraph

    def counted(graph: Graph, vertices: NDArray[np.int64]) -> Graph:
        copies[len(found)] += 1
        return copy(graph, vertices)

    monkeypatch.setattr(Graph, "subgraph", counted)
    for others in (np.inf, -1):
        monkeypatch.setattr(regions, "_OTHERS", others)
        found.append(normalized_cut(five_regions()[0], **how))
        assert all(region.base is None for region in grown(found[-1].more.regions.root))
    assert copies[0] < copies[1]
    np.testing.assert_array_equal(found[0].labels, found[1].labels)
    assert found[0].tree == found[1].tree


def grown(region: Any) -> list[Any]:
    return [region, *(each for child in region.children or () for each in grown(child))]
