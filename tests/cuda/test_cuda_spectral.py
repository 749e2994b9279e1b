"""Partitions and segments with eigenvectors found on GPUs, and cuts counted there."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.apps import spectral
from tests.apps.spectral.drawn_images import five_regions, numbered, two_discs
from tests.apps.spectral.graphs_made import grid, octahedral_sphere, together
from tests.inside.spectral import normalized

pytestmark = pytest.mark.cuda

DEVICES = ["cuda:0", pytest.param(["cuda:0", "cuda:1"], marks=pytest.mark.cuda(n=2))]


@pytest.mark.parametrize("devices", DEVICES)
def test_a_grid_is_cut_straight(devices):
    found = spectral.bisect(grid(40, 60), devices=devices)
    assert found.cut == 40
    assert found.sizes.tolist() == [1200, 1200]


@pytest.mark.parametrize("preconditioner", ["auto", "diagonal"])
def test_a_sphere_is_cut_at_an_equator(preconditioner):
    """Its lowest eigenvalue is triple."""
    found = spectral.bisect(octahedral_sphere(20), devices="cuda:0", preconditioner=preconditioner)
    assert found.cut <= 1.1 * spectral.bisect(octahedral_sphere(20), devices="host:0").cut
    assert abs(found.sizes[0] - found.sizes[1]) <= 1


def test_components_and_many_parts():
    found = spectral.partition(together(grid(30, 30), grid(25, 40), grid(10, 10)), 4, devices="cuda:0")
    assert found.sizes.tolist() == [500] * 4
    assert found.cut <= 140


def test_labels_are_the_same_in_every_run():
    a = octahedral_sphere(20)
    one, again = (spectral.bisect(a, devices="cuda:0").labels for _ in range(2))
    assert np.array_equal(one, again)


@pytest.mark.multigpu
def test_labels_do_not_depend_on_the_number_of_gpus():
    a = octahedral_sphere(20)
    labels = [spectral.bisect(a, devices=devices).labels for devices in ("cuda:0", ["cuda:0", "cuda:1"])]
    assert np.array_equal(*labels)


@pytest.mark.parametrize("gpu_entries", [0, 10**9])
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize(("drawn", "sigma_i", "max_ncut"), [(two_discs, 25, 0.01), (five_regions, 20, 0.1)])
def test_segments_are_found(devices, drawn, sigma_i, max_ncut, gpu_entries, monkeypatch):
    """All on GPUs, and all on the host, which solves small ones: without PyAMG the limit is a quarter of what is set here."""
    monkeypatch.setattr(normalized, "GPU_ENTRIES", gpu_entries)
    image, labels = drawn()
    found = spectral.normalized_cut(image, sigma_i=sigma_i, max_ncut=max_ncut, devices=devices)
    assert np.array_equal(numbered(found.labels), numbered(labels))
    assert any("solved on the host" in note for note in found.report.notes) == bool(gpu_entries)
