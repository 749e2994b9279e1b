"""The examples run at small sizes, and say what they promise."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

from tests.documents import blocks, read
from tests.host.example_files import FOLDER, SMALL, number


def test_each_example_is_tested_and_shown_with_its_size():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SMALL)
    shown = [line for block in blocks(read(FOLDER / "README.md")) for line in block.content.splitlines()]
    for name in SMALL:
        assert sum(line.startswith(f"python examples/{name}.py --n ") for line in shown) == 1
        assert f"[{name}.py]({name}.py)" in read(FOLDER / "README.md")


def test_gp_regression_finds_function_and_noise(example):
    _, told = example("gp_regression")
    assert number(told, "noise ") == pytest.approx(0.1, rel=0.3)
    assert number(told, "root mean square error ") < 0.2 and number(told, "95 % intervals hold ") > 85


def test_many_systems_are_solved(example):
    _, told = example("many_right_hand_sides")
    assert "20 columns at once" in told and number(told, "(||A|| ||X||):") < 1e-14


@pytest.mark.package("h5py")
def test_a_matrix_in_hdf5_is_factored_out_of_core(example, tmp_path):
    _, told = example("matrix_in_hdf5")
    assert number(told, "last equation is off by ") < 1e-10
    assert re.search(r"fetch [\d.]+ [kM]B of", told) and {path.name for path in tmp_path.iterdir()} == {
        "covariance.h5",
        "covariance.factor",
    }


def test_the_covariance_of_ones_own_runs_on_the_host_and_says_so(example):
    module, told = example("cuda_covariance")
    assert told.startswith("no GPU (") and "the host runs the same covariance in NumPy" in told
    points = np.random.default_rng(0).uniform(size=(300, 2))
    squares = np.sum((points[:, None] - points) ** 2, axis=-1)
    a = (1 + squares / (2 * module.ALPHA * module.RANGE**2)) ** -module.ALPHA + module.NUGGET * np.eye(300)
    assert number(told, "log-determinant -") == pytest.approx(-np.linalg.slogdet(a)[1], rel=1e-6)


@pytest.mark.nvcc
@pytest.mark.usefixtures("compilers")
def test_the_kernel_of_ones_own_compiles_and_makes_the_same_covariance(processes: None, example, tmp_path):
    """As CUDA C without warnings, and as C++ one thread at a time beside the function for the host."""
    module, _ = example("cuda_covariance")
    (tmp_path / "code.cu").write_text(module.CODE)
    compile_it = ["nvcc", "-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-cubin", "-o", "out", "code.cu"]
    done = subprocess.run(compile_it, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, points = 7, np.random.default_rng(3).uniform(size=(9, 2))
    program = f"""
#include <cmath>
#include <cstdio>
#define __global__
struct Place {{ int x, y; }};
static Place blockIdx, threadIdx;
static const Place blockDim = {{1, 1}};
using std::pow;
{module.CODE}
int main() {{
    double points[] = {{{", ".join(map(repr, points.ravel().tolist()))}}}, out[{rows * 5}];
    for (int r = 0; r < {rows}; r++) for (int c = 0; c < 5; c++) {{
        blockIdx = {{c, r}};
        rational_quadratic(out, {rows}, 5, 2, 1, points, {module.RANGE}, {module.ALPHA}, {module.NUGGET});
    }}
    for (double value : out) std::printf("%.17g\\n", value);
}}"""
    (tmp_path / "host.cpp").write_text(program)
    subprocess.run(["c++", "-std=c++17", "-o", "host", "host.cpp"], check=True)
    found = subprocess.run(["./host"], capture_output=True, text=True, check=True).stdout.split()
    expected = np.empty((rows, 5))
    module.covariance(points).read_block(range(2, 9), range(1, 6), expected)
    np.testing.assert_allclose(np.array(found, dtype=float).reshape(rows, 5), expected, rtol=1e-14)


def test_mixed_precision_shows_its_certificate(example):
    _, told = example("mixed_precision")
    certified, measured = number(told, "||A - L L.T||_F / ||A||_F is at most "), number(told, "measured  ")
    assert 0 < measured <= certified <= 1e-6
    assert number(told, "residual of refine") < number(told, "residual of solve ") / 100
