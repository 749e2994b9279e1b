"""Every form of A on every choice of host devices, in every arithmetic and place for L: LAPACK's factor."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import zarr

import ooc_chol as oc
from tests.host.source_table import ARITHMETIC, HOST_SOURCES, check, lapack, matrix

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "one_blas_thread")]

N, NB = 230, 48


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Zarr reads and writes by threads of its own, which nothing ends; many chunks at once start all that it will have."""
    array = zarr.create_array(store=str(tmp_path_factory.mktemp("zarr")), shape=(400,), chunks=(1,), dtype="float64")
    array[:] = 1.0
    array[:]


@pytest.mark.parametrize("how", ARITHMETIC)
@pytest.mark.parametrize("devices", ["host:0", ("host:1", "host:0")])
@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("source", HOST_SOURCES)
def test_the_factor_is_lapacks(tmp_path, source, devices, how, in_file):
    place = tmp_path / "L" if in_file else None
    a = HOST_SOURCES[source](tmp_path, N)
    with oc.cholesky(a, devices=devices, tile_size=NB, memory_budget="2 MiB", store=place, **ARITHMETIC[how]) as factor:
        check(factor, ARITHMETIC[how].get("precision_threshold"))


@pytest.mark.parametrize("source", HOST_SOURCES)
def test_refinement_and_residual_read_every_source(tmp_path, source):
    a, b = HOST_SOURCES[source](tmp_path, N), np.random.default_rng(0).standard_normal((N, 3))
    expected = scipy.linalg.cho_solve((lapack(N), True), b)
    with oc.cholesky(a, 1e-4, devices="host:0", tile_size=NB) as factor:
        assert np.abs(factor.solve(b, refine=True) - expected).max() <= 1e-9 * np.abs(expected).max()
    with oc.cholesky(matrix(N), devices="host:0", tile_size=NB) as factor:
        assert factor.residual(a).max_scaled_over_sqrt_n <= 4.0


@pytest.mark.parametrize("how", ["native", "residue"])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("kind", ["array", "memmap"])
def test_over_a_itself(tmp_path, how, order, kind):
    a = np.array(matrix(N), order=order)
    if kind == "memmap":
        np.save(tmp_path / "a.npy", a)
        a = np.load(tmp_path / "a.npy", mmap_mode="r+")
    with oc.cholesky(a, devices="host:0", tile_size=NB, overwrite=True, **ARITHMETIC[how]) as factor:
        check(factor, None)
        assert np.array_equal(np.triu(a, 1), np.triu(matrix(N), 1))
