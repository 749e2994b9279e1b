"""CUDA C compiles, and what is public of it can be used without CuPy."""

from __future__ import annotations

import subprocess
from importlib.resources import files

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.bench.problem import CUDA_CODE
from ooc_chol.kernels.cuda import triangular_source

SOURCES = {
    "tiles.cu": files("ooc_chol.kernels.cuda").joinpath("tiles.cu").read_text(encoding="utf-8"),
    "matern.cu": files("ooc_chol.apps.geostat").joinpath("matern.cu").read_text(encoding="utf-8"),
    "benchmark covariance": CUDA_CODE,
}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", SOURCES)
def test_cuda_sources_compile_without_warnings(name, tmp_path):
    source = tmp_path / "source.cu"
    source.write_text(SOURCES[name], encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(source)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.nvcc
@pytest.mark.parametrize("options", [["-arch=sm_90"], ["-arch=sm_80"], ["-arch=sm_90", "-DFP64_MMA=0"]])
def test_triangular_kernels_of_every_generation_compile_without_warnings(options, tmp_path):
    code = tmp_path / "triangular.cu"
    code.write_text(triangular_source.source(), encoding="utf-8")
    words = ["nvcc", "-std=c++17", *options, "-Werror", "all-warnings", "-cubin", "-o", str(tmp_path / "out"), str(code)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("n", "blocks"), [(1, 1), (64, 1), (65, 2), (2048, 32), (4096, 64), (20000, 64)])
def test_thread_blocks_of_potrf(n, blocks):
    assert triangular_source.potrf_blocks(n) == blocks


def test_two_thread_blocks_of_the_triangular_kernels_fit_on_a_multiprocessor():
    assert 2 * (max(triangular_source.SHARED_BYTES.values()) + 1024) <= 227 << 10  # of Hopper; a block takes 1 KiB for itself


@pytest.mark.parametrize("bad", [3, "x", None, True, [1.0]])
def test_cuda_source_refuses_what_a_kernel_cannot_take(bad):
    with pytest.raises(TypeError, match="give a float, a NumPy scalar or an array"):
        oc.cuda_source("", "kernel", bad)


def test_cuda_source_on_the_host_says_what_to_do():
    source = oc.from_function(4, oc.cuda_source(CUDA_CODE, "exponential", np.zeros((4, 2)), 0.1, 0.0))
    with pytest.raises(TypeError, match="give from_function a host function and this one as cuda="):
        oc.cholesky(source, devices="host:0")
