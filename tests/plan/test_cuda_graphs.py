"""The kernels of random graphs compile, and their arithmetic, as C++ of one thread, is the host's."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.kernels import graphs, source
from tests.products import thorough

pytestmark = pytest.mark.nvcc

DRAWS = {
    "rmat 27": oc.testing.rmat(27, seed=1, devices="host:0").draw,
    "rmat 1": oc.testing.rmat(1, seed=2).draw,
    "urand 30": oc.testing.urand(30, seed=2**64 - 1, devices="host:0").draw,
    "rmat 12 directed": oc.testing.rmat(12, 3, 0.0, 1.0, 0.0, directed=True).draw,
    "rmat 30": oc.testing.rmat(30, seed=5, devices="host:0").draw,
}

#: One thread in one block, whose atomic additions are additions; what is not called need not be right.
ON_THE_HOST = """
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
struct Place { unsigned x, y; };
static const Place blockIdx = {0, 0}, threadIdx = {0, 0}, blockDim = {1, 1}, gridDim = {1, 1};
template <class T> static T atomicAdd(T* sum, T x) { T before = *sum; *sum += x; return before; }
static void __syncthreads() {}
static int __syncthreads_count(int x) { return x; }
static unsigned __ballot_sync(unsigned, int x) { return x; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T> static T __ldg(const T* x) { return *x; }
"""
CALLED = """
extern "C" void draw_edges(GRAPH, word first, word count, u32* u, u32* v) {
    const Graph graph = MAKE_GRAPH;
    for (word i = 0; i < count; ++i) {
        const Ends ends = drawn(first + i, graph);
        u[i] = ends.u;
        v[i] = ends.v;
    }
}
"""


def compiled(words):
    ran = subprocess.run(["nvcc", "-std=c++17", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("is_numbered", [True, *thorough(False)])
@pytest.mark.parametrize("name", ["rmat 27", *thorough(*[name for name in DRAWS if name != "rmat 27"])])
@pytest.mark.usefixtures("compilers")
def test_kernels_of_graphs_compile_without_warnings(name, is_numbered, tmp_path):
    (tmp_path / "graphs.cu").write_text(source(DRAWS[name], is_numbered=is_numbered), encoding="utf-8")
    compiled(["-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(tmp_path / "graphs.cu")])


@pytest.mark.parametrize("name", ["rmat 27", "urand 30", *thorough("rmat 1", "rmat 12 directed", "rmat 30")])
@pytest.mark.usefixtures("compilers")
def test_kernels_draw_the_edges_of_the_host(name, tmp_path):
    draw = DRAWS[name]
    (tmp_path / "graphs.cpp").write_text(ON_THE_HOST + source(draw) + CALLED, encoding="utf-8")
    compiled(["-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(tmp_path / "out.so"), str(tmp_path / "graphs.cpp")])
    first, count = max(0, draw.n_edges - 5000), min(5000, draw.n_edges)
    u, v = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    numbers = [ctypes.c_uint32(each) for each in (*(draw.thresholds or (0, 0, 0)), *draw.offsets)]
    span = ctypes.c_uint64(first), ctypes.c_uint64(count)
    called = ctypes.CDLL(str(tmp_path / "out.so")).draw_edges
    called(ctypes.c_uint64(draw.key), *numbers, None, *span, ctypes.c_void_p(u.ctypes.data), ctypes.c_void_p(v.ctypes.data))
    wanted = graphs.edges(draw, range(first, first + count))
    assert np.array_equal(u, wanted[0]) and np.array_equal(v, wanted[1])


@pytest.mark.parametrize("name", ["rmat 12 directed", *thorough("rmat 1", "urand 12")])
@pytest.mark.usefixtures("compilers")
def test_kernels_number_vertices_and_count_degrees_as_the_host(name, tmp_path):
    draw = {**DRAWS, "urand 12": oc.testing.urand(12, 3).draw}[name]
    (tmp_path / "graphs.cpp").write_text(ON_THE_HOST + source(draw, is_numbered=True) + CALLED, encoding="utf-8")
    compiled(["-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(tmp_path / "out.so"), str(tmp_path / "graphs.cpp")])
    library, edges = ctypes.CDLL(str(tmp_path / "out.so")), graphs.edges(draw, range(draw.n_edges))
    numbers = np.random.default_rng(1).permutation(draw.n_vertices).astype(np.uint32)
    degrees, (u, v) = np.zeros(draw.n_vertices, np.uint32), np.zeros_like(edges)
    first = ctypes.c_uint64(draw.key), *[ctypes.c_uint32(each) for each in (*(draw.thresholds or (0, 0, 0)), *draw.offsets)]
    table = ctypes.c_void_p(numbers.ctypes.data)
    count, ends = ctypes.c_uint64(draw.n_edges), [ctypes.c_void_p(each.ctypes.data) for each in (u, v, degrees)]
    library.draw_edges(*first, table, ctypes.c_uint64(0), count, *ends[:2])
    library.count_degrees(*first, table, count, ends[2])
    assert np.array_equal(u, numbers[edges[0]]) and np.array_equal(v, numbers[edges[1]])
    assert np.array_equal(degrees, np.bincount(graphs.read_ends(draw, range(draw.n_edges)), minlength=draw.n_vertices))
