"""Solves with sparse matrices for arrays of CuPy: by cuDSS where it is installed, else by SuperLU, whose copies are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

import ooc_chol as oc
from ooc_chol import diff
from ooc_chol.diff import vjp
from ooc_chol.errors import NotPositiveDefiniteError
from tests.host.diff_solve_matrices import backward_error, entries, poisson, regular
from tests.inside.diff import CACHE, CholeskyFactor, SelectedInverse, Solve, TriangularSolve

pytestmark = pytest.mark.cuda(n=1)


def _on_device(*arrays: Any) -> list[Any]:
    import cupy as cp

    return [cp.asarray(each) for each in arrays]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [(), (3,)])
@pytest.mark.parametrize("method", ["auto", "superlu"])
def test_solves_and_derivatives_are_those_of_the_host(method: Any, columns: tuple[int, ...], dtype: Any) -> None:
    pattern, values = entries(regular(40, 0.1, 1))
    rng = np.random.default_rng(0)
    arrays = [each.astype(dtype) for each in (values, rng.standard_normal((40, *columns)), rng.standard_normal((40, *columns)))]
    v, b, g = _on_device(*arrays)
    for trans in (False, True):
        expected = Solve(pattern, trans).forward(*arrays[:2]), *vjp(Solve(pattern, trans), arrays[:2], arrays[2])
        op = Solve(pattern, trans, method=method)
        found = op.forward(v, b), *vjp(op, (v, b), g)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype
            assert float(np.abs(one.get() - other).max()) <= (1e-11 if dtype == np.float64 else 1e-5) * np.abs(other).max()


def test_copies_of_superlu_are_counted_and_said() -> None:
    pattern, values = entries(regular(40, 0.1, 1))
    v, b = _on_device(values, np.ones(40))
    with diff.factorize(pattern, v, method="superlu") as factor:
        assert factor.copies == values.nbytes
        factor.solve(b)
        assert factor.copies == values.nbytes + 2 * 40 * 8
        assert f"{factor.copies} bytes were copied" in repr(factor)


def test_cudss_by_name_solves_or_names_its_extra() -> None:
    from tests.inside.kernels import has_cudss

    a = poisson(8)
    pattern, values = entries(a)
    v, b = _on_device(values, np.random.default_rng(1).standard_normal((64, 3)))
    if not has_cudss():
        with pytest.raises(ImportError, match="cuda13-direct"):
            diff.factorize(pattern, v, method="cudss")
        return
    for assume in (None, "symmetric", "spd"):
        with diff.factorize(pattern, v, method="cudss", assume=assume) as factor:  # type: ignore[arg-type]
            for trans in (False, True):
                x = factor.solve(b, trans=trans)
                assert backward_error(a.toarray(), x.get(), b.get()) <= 1e-14
                assert bool((x == factor.solve(b, trans=trans)).all())
            assert factor.method == "cudss"
            assert factor.copies == 0
    v[:] = 0.0
    with pytest.raises(oc.errors.SingularMatrixError) as caught:
        diff.factorize(pattern, v, method="cudss")
    assert caught.value.column is not None


def test_singular_matrices_name_their_column() -> None:
    pattern, values = entries(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]))
    v, b = _on_device(values, np.ones(3))
    with pytest.raises(oc.errors.SingularMatrixError) as caught:
        diff.solve(pattern, v, b)
    assert caught.value.column in (0, 1, 2)


@pytest.mark.parametrize("assume", [None, "symmetric"])
@pytest.mark.parametrize("seed", range(6))
def test_zeros_among_the_entries_leave_the_gpu_as_it_is(seed: int, assume: Any) -> None:
    """Rows, columns and blocks of stored zeros; the next matrix is solved with, of zeros on the diagonal as well."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    a = rng.standard_normal((n, n)) + 0.1
    a = a + a.T
    pattern = diff.Pattern(np.arange(n + 1) * n, np.tile(np.arange(n), n), (n, n))
    gone, (b,) = rng.choice(n, 1 + seed % 3, replace=False), _on_device(rng.standard_normal(n))
    singular = a.copy()
    singular[gone] = singular[:, gone] = 0.0
    with pytest.raises(oc.errors.SingularMatrixError):
        diff.solve(pattern, *_on_device(singular.reshape(-1)), b, assume=assume)
    hollow = a * (1 - np.eye(n))
    x = diff.solve(pattern, *_on_device(hollow.reshape(-1)), b, assume=assume)
    assert backward_error(hollow, x.get(), b.get()) <= 1e-12


@pytest.mark.parametrize("assume", [None, "symmetric", "spd"])
def test_factors_one_after_the_other_leave_the_gpu_as_it_is(assume: Any) -> None:
    """In its deterministic mode cuDSS fails with memory that others have used, unless that is cleared."""
    import cupy as cp

    from tests.inside.kernels import has_cudss

    if not has_cudss():
        pytest.skip("cuDSS is not installed")
    for turn in range(40):
        n = (3, 6, 40, 300, 900)[turn % 5]
        half = regular(n, min(0.5, 4 / n), turn)
        a = csr_array(half @ half.T + eye_array(n)) if assume else half
        pattern, values = entries(a)
        v, b = _on_device(values, np.random.default_rng(turn).standard_normal(n))
        cp.cuda.Device().synchronize()  # of what the default stream makes
        with cp.cuda.Stream(non_blocking=turn % 2 == 1), diff.factorize(pattern, v, method="cudss", assume=assume) as factor:
            assert backward_error(a.toarray(), factor.solve(b).get(), b.get()) <= 1e-12


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("columns", [(), (3,)])
def test_triangular_solves_are_those_of_the_host(columns: tuple[int, ...], lower: bool, unit_diagonal: bool, trans: bool) -> None:
    whole, values = entries(regular(30, 0.1, 2).toarray() + 5 * np.eye(30))
    pattern, values = (diff.tril if lower else diff.triu)(whole, values)
    rng = np.random.default_rng(2)
    arrays = values, rng.standard_normal((30, *columns)), rng.standard_normal((30, *columns))
    v, b, g = _on_device(*arrays)
    op = TriangularSolve(pattern, lower, trans, unit_diagonal)
    expected = op.forward(*arrays[:2]), *vjp(op, arrays[:2], arrays[2])
    found = op.forward(v, b), *vjp(op, (v, b), g)
    for one, other in zip(found, expected, strict=True):
        assert float(np.abs(one.get() - other).max()) <= 1e-11 * np.abs(other).max()


def test_eigenvalues_come_back_to_the_device() -> None:
    import cupy as cp

    pattern, values = entries(poisson(6).toarray() + np.diag(np.arange(36.0)))
    (v,) = _on_device(values)
    w = diff.eigsh(pattern, v, 2, which="LA", devices="host:0")
    assert isinstance(w, cp.ndarray)
    assert np.allclose(w.get(), diff.eigsh(pattern, values, 2, which="LA", devices="host:0"), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("side", [8, 70])
def test_positive_definite_matrices_are_factored_where_they_are(side: int, dtype: Any) -> None:
    """As on the host, with fronts that are factored together and fronts that are not; the same bits every time."""
    pattern, values = entries(csr_array(poisson(side) + 0.1 * eye_array(side**2)))
    arrays = [values.astype(dtype), np.random.default_rng(0).standard_normal((side**2, 2)).astype(dtype)]
    v, z = _on_device(*arrays)

    def everything(v: Any, z: Any) -> list[Any]:
        CACHE.clear()
        return [
            diff.logdet(pattern, v),
            diff.selected_inverse(pattern, v),
            diff.cholesky(pattern, v)[1],
            diff.sample(pattern, v, z),
            vjp(SelectedInverse(pattern), (v,), v)[0],
            vjp(CholeskyFactor(pattern), (v,), diff.cholesky(pattern, v)[1])[0],
        ]

    found, again, expected = everything(v, z), everything(v, z), everything(*arrays)
    for number, (one, other, wanted) in enumerate(zip(found, again, expected, strict=True)):
        assert one.dtype == wanted.dtype == dtype and one.device == v.device
        assert one.get().tobytes() == other.get().tobytes(), number
        off = float(np.abs(one.get() - wanted).max() / np.abs(wanted).max())
        assert off <= (1e-11 if dtype == np.float64 else 1e-5), number


@pytest.mark.parametrize("side", [6, 80])
def test_what_is_not_positive_definite_names_its_row_as_on_the_host(side: int) -> None:
    pattern, values = entries(poisson(side))
    middle = (side // 2) * side + side // 2
    values[pattern.diagonal_places[middle]] = -1.0
    with pytest.raises(NotPositiveDefiniteError) as wanted:
        diff.logdet(pattern, values)
    with pytest.raises(NotPositiveDefiniteError) as told:
        diff.logdet(pattern, *_on_device(values))
    assert told.value.row == wanted.value.row
    assert told.value.pivot == pytest.approx(wanted.value.pivot, rel=1e-6)


def test_torch_on_a_gpu_differentiates_a_log_determinant_there() -> None:
    import torch

    import ooc_chol.diff.torch as sparse

    a = csr_array(poisson(40) + 0.1 * eye_array(1600))
    gradients = []
    for device in ("cpu", "cuda"):
        matrix = sparse.CSR.of(a).to(device).detach().requires_grad_()
        value = sparse.logdet(matrix)
        assert value.device.type == device
        value.backward()
        gradients.append((float(value.detach()), matrix.grad.values.cpu()))
    (one, of_one), (other, of_other) = gradients
    assert one == pytest.approx(other, rel=1e-13)
    assert torch.allclose(of_one, of_other, rtol=1e-11, atol=1e-13)
