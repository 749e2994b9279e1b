"""SciPy's compiled modules by themselves: the same routines, and a package that is whole for whoever imports it later."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEFORE = """
import sys
import numpy as np
import ooc_chol as oc
a = np.eye(300) + 1.0
with oc.cholesky(a, devices="host:0", tile_size=64) as factor:
    x = factor.solve(np.ones(300))
oc.cholesky(a, precision_threshold=1e-5, devices="host:0", tile_size=64).close()  # norms of a sample
assert "scipy.linalg" not in sys.modules, "a factorization imports the package"
assert not [name for name in sys.modules if name.startswith("scipy.linalg")]
"""
AFTER = """
import scipy.linalg, scipy.linalg.cython_blas, scipy.linalg.cython_lapack, scipy.linalg.lapack
assert np.allclose(scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), np.ones(300)), x, rtol=1e-13)
assert scipy.linalg.cython_blas.__pyx_capi__["dgemm"] and scipy.linalg.cython_lapack.__pyx_capi__["dpotrf"]
assert np.allclose(scipy.linalg.lapack.dpotrf(a, lower=1, clean=1)[0], np.linalg.cholesky(a))
assert np.allclose(scipy.linalg.blas.dgemm(1.0, a, a), a @ a)
import scipy.optimize, scipy.special, scipy.sparse.linalg
with oc.cholesky(a, devices="host:0", tile_size=64) as factor:
    assert np.array_equal(factor.solve(np.ones(300)), x)
"""
OTHER_WAY_ROUND = """
import scipy.linalg
from tests.inside.process import linalg_module
for name in ("cython_blas", "cython_lapack", "_flapack", "_fblas"):
    assert linalg_module(name) is getattr(scipy.linalg, name), name
"""


SPARSE = """
import sys
import numpy as np
from tests.inside.process import sparse_tools
starts, columns, y = np.array([0, 2], np.int32), np.array([0, 1], np.int32), np.zeros(1)
sparse_tools().csr_matvec(1, 2, starts, columns, np.array([3.0, 4.0]), np.array([1.0, 10.0]), y)
assert y[0] == 43
assert not [name for name in sys.modules if name.startswith("scipy.sparse")]
import scipy.sparse, scipy.sparse.csgraph, scipy.sparse.linalg
a = scipy.sparse.csr_array((np.array([3.0, 4.0]), columns, starts), shape=(1, 2))
assert (a @ np.array([1.0, 10.0]))[0] == 43 and scipy.sparse._sparsetools.csr_matvec
"""
PROGRAMS = {"alone": BEFORE, "package after": BEFORE + AFTER, "package before": OTHER_WAY_ROUND, "sparse": SPARSE}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.usefixtures("processes")
def test_the_package_is_whole_whatever_is_imported_first(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
