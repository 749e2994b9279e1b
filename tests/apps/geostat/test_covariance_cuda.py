"""The CUDA kernel of covariance functions, compiled as C++ of one thread, against the tile function of the host."""

from __future__ import annotations

import ctypes
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from ooc_chol.apps.geostat.covariance import Matern, _radial_source, covariance_tiles
from tests.apps.geostat.geostat_tolerances import TABLE

pytestmark = pytest.mark.nvcc

#: What C++ needs to run the kernel entry by entry.
ON_THE_HOST = """
#include <algorithm>
#include <cmath>
#include <cstring>
using std::fma; using std::max; using std::min; using std::sqrt;
#define __global__
struct Place { int x, y; };
static Place blockIdx, threadIdx;
static const Place blockDim = {1, 1};
struct double2 { double x, y; };
template <class T> static T __ldg(const T* p) { return *p; }
static long long bits(double x) { long long to; std::memcpy(&to, &x, 8); return to; }
static int __double2hiint(double x) { return (int)(bits(x) >> 32); }
static int __double2loint(double x) { return (int)bits(x); }
static double __hiloint2double(int high, int low) {
    const long long both = (long long)high << 32 | (unsigned)low; double to; std::memcpy(&to, &both, 8); return to; }
"""
#: Every entry of a tile, and some places outside that the kernel must leave alone.
EVERY_ENTRY = """
extern "C" void tile(double* out, int rows, int cols, long long row0, long long col0, const double* sites,
                     const double* diagonal, double scale, const double* table, int before, int last) {
    for (blockIdx.y = 0; blockIdx.y < rows + 3; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < cols + 5; ++blockIdx.x)
            radial(out, rows, cols, row0, col0, sites, diagonal, scale, table, before, last);
}
"""
C_TYPES = {np.float64: ctypes.c_double, np.int32: ctypes.c_int}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernel for one, two and three dimensions."""
    folder = tmp_path_factory.mktemp("radial")
    code = files("ooc_chol.apps.geostat").joinpath("matern.cu").read_text(encoding="utf-8")
    compiled = {}
    for dimensions in (1, 2, 3):
        source, library = folder / f"radial{dimensions}.cpp", folder / f"radial{dimensions}.so"
        source.write_text(f"#define DIMENSIONS {dimensions}\n{ON_THE_HOST}{code}{EVERY_ENTRY}", encoding="utf-8")
        words = ["nvcc", "-std=c++17", "-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        compiled[dimensions] = ctypes.CDLL(str(library)).tile
    return compiled


def by_kernel(kernels, model, sites, rows, cols, noise=None):
    """The tile that the kernel makes; the arguments are those that a device would get."""
    source = _radial_source(model, model.radial_form(sites), noise)
    out = np.full((len(rows) + 1, len(cols)), np.nan)
    arguments = [
        ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else C_TYPES[type(value)](value)
        for value in source.arguments
    ]
    places = ctypes.c_int(len(rows)), ctypes.c_int(len(cols)), ctypes.c_int64(rows.start), ctypes.c_int64(cols.start)
    kernels[sites.shape[1]](ctypes.c_void_p(out.ctypes.data), *places, *arguments)
    assert np.isnan(out[-1]).all()
    return out[:-1]


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("nu", [0.1, 0.5, 0.889, 1.5, 2.5, 20.0])
def test_kernel_fills_the_tile_of_the_host(kernels, nu, dimensions):
    sites = np.random.default_rng(5).uniform(size=(90, dimensions)) * 10.0 ** np.random.default_rng(6).uniform(-9, 1.5, (90, 1))
    sites[50] = sites[10]  # a duplicate off the diagonal: no nugget there
    model, noise = Matern(2.0, 0.3, nu, 0.1), np.random.default_rng(7).uniform(size=90)
    for rows, cols in [(range(90), range(90)), (range(40, 75), range(0, 33)), (range(40, 75), range(30, 90))]:
        expected = np.empty((len(rows), len(cols)))
        covariance_tiles(model, sites, noise)(rows, cols, expected, None)
        np.testing.assert_allclose(by_kernel(kernels, model, sites, rows, cols, noise), expected, rtol=0, atol=2.0 * TABLE)


def test_coordinates_far_from_the_origin_keep_their_distances(kernels):
    model, sites = Matern(1.0, 0.25, 0.7), np.random.default_rng(4).integers(0, 2**16, size=(40, 2)) / 2**16
    here, there = (by_kernel(kernels, model, places, range(40), range(40)) for places in (sites, sites + 2.0**20))
    assert np.array_equal(here, there)
