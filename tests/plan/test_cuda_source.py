"""CUDA C compiles, and what is public of it can be used without CuPy."""

from __future__ import annotations

import ctypes
import subprocess
from importlib.resources import files

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.host.narrow_tiles import KINDS, expected_norms, rounded, same, stored_bytes
from tests.inside.bench import CUDA_CODE
from tests.inside.geostat import covariances
from tests.inside.kernels import code, modules, triangular_source
from tests.inside.precision import FORMATS, FP64, decode
from tests.products import thorough

SOURCES = {
    "formats.cu": code("formats.cu"),
    "tiles.cu": code("tiles.cu"),
    "matern.cu": files(covariances).joinpath("matern.cu").read_text(encoding="utf-8"),
    "benchmark covariance": CUDA_CODE,
}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.usefixtures("compilers")
def test_cuda_sources_compile_without_warnings(name, tmp_path):
    source = tmp_path / "source.cu"
    source.write_text(SOURCES[name], encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(source)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "options",
    [
        # Every line of the source; optimizing them takes most of the seconds.
        ["-cubin", "-arch=sm_90", "-Xcicc=-O0", "-Xptxas=-O0"],
        ["-ptx", "-arch=sm_80", "-Xcicc=-O0"],
        ["-ptx", "-arch=sm_90", "-DFP64_MMA=0", "-Xcicc=-O0"],
        *thorough(["-cubin", "-arch=sm_90"], ["-cubin", "-arch=sm_80"], ["-cubin", "-arch=sm_90", "-DFP64_MMA=0"]),
    ],
)
@pytest.mark.usefixtures("compilers")
def test_triangular_kernels_of_every_generation_compile_without_warnings(options, tmp_path):
    source = tmp_path / "triangular.cu"
    source.write_text(triangular_source.source(), encoding="utf-8")
    words = ["nvcc", "-std=c++17", *options, "-Werror", "all-warnings", "-o", str(tmp_path / "out"), str(source)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


#: What C++ needs to run a kernel as one thread of the host: a shuffle brings zero from lanes that are not there.
ON_THE_HOST = """
#include <algorithm>
#include <cmath>
#include <cstring>
using std::copysign; using std::fabs; using std::max; using std::min;
#define __align__ alignas
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
struct Place { unsigned x, y; };
static Place blockIdx, threadIdx;
static const Place blockDim = {1, 1}, gridDim = {1, 1};
struct double2 { double x, y; };
template <class To, class From> static To bits(From from) { To to; std::memcpy(&to, &from, sizeof(to)); return to; }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static double __hiloint2double(int high, int low) { return __longlong_as_double((long long)high << 32 | (unsigned)low); }
static double __dadd_rn(double x, double y) { return x + y; }
static double __dsub_rn(double x, double y) { return x - y; }
static double __dmul_rn(double x, double y) { return x * y; }
static int __clzll(long long x) { return __builtin_clzll(x); }
template <class T> static T __shfl_down_sync(unsigned, T, int) { return T(); }
static void __syncthreads() {}
template <class T> static void atomicAdd(T* sum, T x) { *sum += x; }
template <class T> static void atomicMax(T* most, T x) { *most = max(*most, x); }
extern "C" void choose_sums(unsigned y) { blockIdx.y = y; }
"""


@pytest.fixture(scope="module")
def on_the_host(compilers: None, tmp_path_factory):
    """The kernels of formats.cu, compiled as C++ of one thread."""
    folder = tmp_path_factory.mktemp("formats")
    (folder / "formats.cpp").write_text(ON_THE_HOST + SOURCES["formats.cu"], encoding="utf-8")
    words = [
        "nvcc",
        "-std=c++17",
        "-O1",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-o",
        str(folder / "out.so"),
        str(folder / "formats.cpp"),
    ]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ctypes.CDLL(str(folder / "out.so"))


def call(function, *arguments):
    """Call with arrays, by address, and integers of 64 bits."""
    words = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    function(*[ctypes.c_int64(word) for word in words])


@pytest.mark.nvcc
@pytest.mark.parametrize("fmt", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.commit
def test_kernels_of_formats_have_the_bits_of_the_host(on_the_host, kind, fmt):
    rng = np.random.default_rng(7)
    for shape in [(1, 1), (3, 5), (64, 64), (101, 203)]:
        before, row = KINDS[kind](rng, shape, fmt), np.zeros(6)
        tile, after = before.copy(), rounded(before, fmt)
        call(on_the_host.largest_magnitude, tile, tile.size, row[4:])
        call(getattr(on_the_host, f"finish_{fmt.name}"), tile, tile.size, row)
        for which in (0, 1):
            on_the_host.choose_sums(which)
            call(on_the_host.largest_sums, tile, *shape, row)
        on_the_host.choose_sums(0)
        assert same(tile, after)
        exponent, wanted = int(row.view(np.int64)[5]), expected_norms(before, after, is_diagonal=True)
        with np.errstate(over="ignore"):
            found = np.array([*np.ldexp(np.sqrt(row[:2]), -exponent), *row[2:5]])
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(found[finite], np.array(wanted)[finite], rtol=1e-12, atol=1e-320)


@pytest.mark.nvcc
@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS.values() if fmt != FP64], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_formats_make_the_bytes_of_the_host(on_the_host, kind, fmt):
    rng = np.random.default_rng(8)
    for shape in [(1, 1), (3, 5), (64, 64), (101, 203)]:
        tile, largest, out = KINDS[kind](rng, shape, fmt), np.zeros(1, dtype=np.uint64), np.empty(shape)
        wanted, widened = stored_bytes(tile, fmt), np.empty(shape)
        with np.errstate(over="ignore"):
            decode(wanted, fmt, slice(0, tile.size), widened)
        stored = np.full(wanted.size, 0xAA, dtype=np.uint8)
        behind = stored[fmt.scale_offset(tile.size) :] if fmt.top is not None else 0
        call(on_the_host.largest_magnitude, tile, tile.size, largest)
        call(getattr(on_the_host, f"encode_{fmt.name}"), tile, tile.size, stored, largest, behind)
        call(getattr(on_the_host, f"widen_{fmt.name}"), stored, tile.size, out, behind)
        assert np.array_equal(stored, wanted)
        assert same(out, widened)


@pytest.mark.parametrize(("n", "blocks"), [(1, 1), (64, 1), (65, 2), (2048, 32), (4096, 64), (20000, 64)])
def test_thread_blocks_of_potrf(n, blocks):
    assert triangular_source.potrf_blocks(n) == blocks


def test_two_thread_blocks_of_the_triangular_kernels_fit_on_a_multiprocessor():
    assert 2 * (max(triangular_source.SHARED_BYTES.values()) + 1024) <= 227 << 10  # of Hopper; a block takes 1 KiB for itself


@pytest.mark.parametrize("bad", [3, "x", None, True, [1.0]])
def test_cuda_source_refuses_what_a_kernel_cannot_take(bad):
    with pytest.raises(TypeError, match="give a float, a NumPy scalar or an array"):
        tb.cuda_source("", "kernel", bad)


def test_cuda_source_on_the_host_says_what_to_do():
    source = oc.from_function(4, tb.cuda_source(CUDA_CODE, "exponential", np.zeros((4, 2)), 0.1, 0.0))
    with pytest.raises(TypeError, match="give from_function a host function and this one as cuda="):
        oc.cholesky(source, devices="host:0")


def test_the_host_has_no_names_of_gpus_and_runs_no_kernels():
    assert tb.cuda_names("host:0") == tb.cuda_names(["host:0", "host:1"]) == ()
    with pytest.raises(ValueError, match="which is the host, but f is a kernel for GPUs"):
        tb.run_cuda_blocks("", "f", [np.zeros((2, 1))], [((), np.float64)], devices="host:0")
    with pytest.raises(ValueError, match="there is no device"):
        tb.cuda_names("cuda:99")


def test_macros_stand_in_front_of_files():
    text = code("strips.cu", "solves.cu", THREADS=256, REAL="float")
    assert text == "#define THREADS 256\n#define REAL float\n\n" + code("strips.cu") + "\n" + code("solves.cu")
    with pytest.raises(FileNotFoundError, match=r"none\.cu"):
        code("none.cu")


def test_compiled_kernels_lie_in_the_users_folder_or_in_one_of_the_process(monkeypatch, tmp_path):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "caches"))
    modules._folder.cache_clear()
    assert modules._folder() == tmp_path / "caches" / "kernels" and modules._folder().is_dir()
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "file"))
    modules._folder.cache_clear()
    private = modules._folder()
    assert private == modules._folder() and private.is_dir() and private.stat().st_mode & 0o77 == 0
    modules._folder.cache_clear()
