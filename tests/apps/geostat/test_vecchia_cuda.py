"""The CUDA kernel of Vecchia's approximation, compiled as C++ of one thread, against the host's."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat import FactorSettings
from tests.apps.geostat.cuda_as_cpp import C_TYPES, ON_THE_HOST
from tests.apps.geostat.vecchia_problems import CASES, assert_same, problem_of
from tests.inside.geostat import device_work, parts_on_cuda, parts_on_host, vecchia_cuda
from tests.products import thorough

pytestmark = pytest.mark.nvcc

#: What the kernel needs beside, and a loop over its blocks.
BLOCKS = """
#define __shared__
#define __syncwarp()
double memory[1 << 16];
"""
LOOP = """
extern "C" void run(int blocks, const int* index, double* whitened, double* sums, int* failed, const double* table,
                    const double* noise, double nugget PARAMETERS)
{
    for (int block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        vecchia(index, whitened, sums, failed, table, noise, nugget NAMES);
    }
}
"""


@pytest.fixture
def by_one_thread(compilers: None, tmp_path, monkeypatch):
    """Takes the place of the public function that runs blocks on GPUs: the same code and arguments, on the host."""

    def run(code, name, rows, outputs, arguments, *, threads, shared_bytes, **how):
        source, made = tmp_path / "vecchia.cpp", tmp_path / "vecchia.so"
        source.write_text(f"{ON_THE_HOST}{BLOCKS}{code}{LOOP}", encoding="utf-8")
        words = ["nvcc", "-std=c++17", "-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(made), str(source)]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert shared_bytes <= 8 << 16
        (index,), found = rows, [np.zeros((len(rows[0]), *shape), dtype) for shape, dtype in outputs]
        values = [ctypes.c_void_p(array.ctypes.data) for array in (index, *found)]
        for value in arguments:
            is_array = isinstance(value, np.ndarray)
            values.append(ctypes.c_void_p(value.ctypes.data) if is_array else C_TYPES.get(type(value), ctypes.c_double)(value))
        ctypes.CDLL(str(made)).run(ctypes.c_int(len(index)), *values)
        return tuple(found)

    monkeypatch.setattr(tb, "run_cuda_blocks", run)


SOME = ["Matern 0.889", "anisotropic", "nested", "separable", "bivariate"]


@pytest.mark.parametrize("case", [*SOME, *thorough(*(case for case in CASES if case not in SOME))])
def test_kernel_gives_the_sums_of_the_host(by_one_thread, case):
    problem, graph = problem_of(case, 60, 7, has_noise=case == "Matern 0.889")
    assert_same(parts_on_cuda(problem, graph, FactorSettings()), parts_on_host(problem, graph))


def test_values_alone(by_one_thread):
    problem, graph = problem_of("great circle", 60, 7, is_derived=False)
    assert_same(parts_on_cuda(problem, graph, FactorSettings()), parts_on_host(problem, graph))


def test_matrices_that_are_not_positive_definite_are_named(by_one_thread):
    problem, graph = problem_of("Matern 0.889", 60, 7)
    problem.coordinates[:] = 0.0
    object.__setattr__(problem, "correlation", problem.correlation.with_values(nugget=0.0))
    with pytest.raises(oc.NotPositiveDefiniteError, match="leading minor of order 2"):
        parts_on_cuda(problem, graph, FactorSettings())


def test_too_many_neighbours_are_left_to_the_host():
    problem, graph = problem_of("Matern 0.889", 300, 250)
    assert device_work(problem).shared_bytes(251) > vecchia_cuda._SHARED_BYTES
    assert parts_on_cuda(problem, graph, FactorSettings()) is None


@pytest.mark.parametrize("case", ["Matern 0.889", *thorough("nested", "separable, great circle", "bivariate")])
@pytest.mark.usefixtures("compilers")
def test_kernel_compiles_without_warnings(case, tmp_path):
    problem, graph = problem_of(case, 60, 30, has_noise=True)
    source = tmp_path / "vecchia.cu"
    source.write_text(device_work(problem).code(graph.m + 1), encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(source)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
