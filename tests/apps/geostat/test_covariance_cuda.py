"""The CUDA kernels of covariance functions, compiled as C++ of one thread, against the tile function of the host."""

from __future__ import annotations

import ctypes
import subprocess
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from ooc_chol.apps.geostat import Matern, covariance_tiles, derivative_tiles
from tests.apps.geostat.cuda_as_cpp import C_TYPES, ON_THE_HOST
from tests.apps.geostat.geostat_tolerances import TABLE
from tests.apps.geostat.models import MODELS
from tests.inside.geostat import _cuda_tiles, _device_tiles
from tests.products import thorough

pytestmark = pytest.mark.nvcc


@pytest.fixture(scope="module")
def library(compilers: None, tmp_path_factory):
    """Compiles the code that a device would get, once."""
    folder = tmp_path_factory.mktemp("covariances")

    @lru_cache
    def compile_for(whole):
        source, made = folder / f"{len(list(folder.iterdir()))}.cpp", folder / f"{len(list(folder.iterdir()))}.so"
        define, _, code = whole.partition("\n")
        assert define.startswith("#define DIMENSIONS ")
        source.write_text(f"{define}\n{ON_THE_HOST}{code}", encoding="utf-8")
        words = ["nvcc", "-std=c++17", "-O0", "-shared", "-Xcompiler", "-fPIC", "-o", str(made), str(source)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ctypes.CDLL(str(made))

    return compile_for


def by_kernel(library, model, sites, rows, cols, noise=None):
    """The tile that the kernel makes; the code and the arguments are those that a device would get."""
    return by_source(library, _device_tiles(model, sites, noise), rows, cols)


def by_source(library, source, rows, cols):
    """The tile of a kernel with its arguments."""

    compiled = library(source.code)
    out = np.full((len(rows) + 1, len(cols)), np.nan)
    arguments = [
        ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else C_TYPES[type(value)](value)
        for value in source.arguments
    ]
    places = ctypes.c_int(len(rows)), ctypes.c_int(len(cols)), ctypes.c_int64(rows.start), ctypes.c_int64(cols.start)
    kernel = getattr(compiled, source.name)
    for row, column in product(range(len(rows) + 1), range(len(cols) + 2)):  # some are outside, and must write nothing
        compiled.choose_entry(row, column)
        kernel(ctypes.c_void_p(out.ctypes.data), *places, *arguments)
    assert np.isnan(out[-1]).all()
    return out[:-1]


def by_host(model, sites, rows, cols, noise=None):
    """The tile that the host fills."""
    out = np.empty((len(rows), len(cols)))
    covariance_tiles(model, sites, noise)(rows, cols, out, None)
    return out


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.889, 1.5, 2.5, 20.0])
@pytest.mark.commit
def test_kernel_fills_the_tile_of_the_host(library, nu, dimensions):
    rng = np.random.default_rng(5)
    sites = rng.uniform(size=(70, dimensions)) * 10.0 ** rng.uniform(-9, 1.5, (70, 1))
    sites[50] = sites[10]  # a duplicate off the diagonal: no nugget there
    model, noise = Matern(2.0, 0.3, nu, 0.1), rng.uniform(size=70)
    for rows, cols in [(range(45, 60), range(3, 20)), (range(45, 60), range(48, 66))]:
        found = by_kernel(library, model, sites, rows, cols, noise)
        np.testing.assert_allclose(found, by_host(model, sites, rows, cols, noise), rtol=0, atol=2.0 * TABLE)


@pytest.mark.parametrize(("model", "sites"), MODELS.values(), ids=MODELS)
@pytest.mark.commit
def test_kernels_of_all_families_fill_the_tile_of_the_host(library, model, sites):
    places, rows, cols = sites(60, 8), range(30, 55), range(20, 40)
    expected = by_host(model, places, rows, cols)
    np.testing.assert_allclose(
        by_kernel(library, model, places, rows, cols), expected, rtol=0, atol=TABLE * np.abs(expected).max()
    )


@pytest.mark.parametrize(("model", "sites"), MODELS.values(), ids=MODELS)
def test_kernels_make_the_derivatives_of_the_host(library, model, sites):
    places = sites(60, 8)
    for name in model.parameters:
        form = model.derivative_form(name, places)
        source = _cuda_tiles(form, form.variances)
        for rows, cols in [(range(40, 55), range(30, 45)), (range(9), range(8))]:
            expected = np.empty((len(rows), len(cols)))
            derivative_tiles(model, places, name)(rows, cols, expected, None)
            found = by_source(library, source, rows, cols)
            scale = max(np.abs(expected).max(), model.variance)
            np.testing.assert_allclose(found, expected, rtol=0, atol=4 * TABLE * scale, err_msg=name)


#: Sums, whose kernels are compiled as C++ above, too.
SUMS = [name for name in MODELS if name.startswith("nested")]
USUAL_SUMS = ("nested", "nested, space and time")


@pytest.mark.parametrize("name", [*USUAL_SUMS, *thorough(*(name for name in SUMS if name not in USUAL_SUMS))])
@pytest.mark.usefixtures("compilers")
def test_the_kernel_of_a_sum_compiles_for_a_device(name, tmp_path):
    model, sites = MODELS[name]
    source, made = tmp_path / "nested.cu", tmp_path / "nested.cubin"
    source.write_text(_device_tiles(model, sites(20, 0), None).code, encoding="utf-8")
    words = ["nvcc", "-arch=sm_90", "-Xcicc=-O0", "-Xptxas=-O0", "-cubin", "-o", str(made), str(source)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and made.stat().st_size > 0, ran.stderr


def test_coordinates_far_from_the_origin_keep_their_distances(library):
    model, sites = Matern(1.0, 0.25, 0.7), np.random.default_rng(4).integers(0, 2**16, size=(40, 2)) / 2**16
    here, there = (by_kernel(library, model, places, range(40), range(40)) for places in (sites, sites + 2.0**20))
    assert np.array_equal(here, there)
