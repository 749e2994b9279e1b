"""Measurements of the case diff_peers are right: results beside SciPy's, gradients beside differences, failures in words."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import diff_peers as peers
from benchmarks.running import apart

pytestmark = [pytest.mark.host, pytest.mark.package("torch")]


@pytest.mark.parametrize("operation", ["spmv", "spmm", "spgemm", "add", "triangular", "solve"])
def test_our_operations_and_gradients_are_right_on_lines_and_squares(operation):
    names = []
    for name, case in peers.cases(operation, [400]):
        names.append(name)
        found = peers.measure("ours-torch", case)
        assert found["forward"]["error"] < 1e-12 and found["forward_backward"]["error"] < 1e-6
        assert found["forward_backward"]["gradient_bytes"] == 8 * case.matrix.nnz
    assert names == ["line", "square"]


def test_a_wrong_gradient_is_seen():
    (_, case), *_ = peers.cases("spmv", [400])
    gradient = np.ones(case.matrix.nnz)
    assert peers.slope_error(case, case.matrix.data, gradient) > 1e-3
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        peers.slope_error(case, case.matrix.data, np.ones(3))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_what_torch_cannot_is_said_in_its_own_words():
    (_, case), *_ = peers.cases("spgemm", [400])
    found = peers.measure("torch", case)
    assert found["forward"]["error"] < 1e-12
    assert "unsupported combination of layouts" in found["forward_backward"]["failed"]


@pytest.mark.usefixtures("processes")
def test_a_process_that_ends_early_leaves_a_word():
    """A twentieth of a second is not enough to start Python and import torch."""
    found = apart(peers.one, "ours-torch", "spmv", "line", 400, 8, seconds=0.05)
    assert found == {"failed": "not done in 0.05 s"}
