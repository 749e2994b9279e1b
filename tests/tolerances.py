"""Every tolerance of the tests: backward-error bounds with the unit roundoff of the format, each with its source.

A bound here is a promise: raising a constant needs a reason in the commit that raises it. A bound holds for the exact residual:
compute it in ``np.longdouble``, or in float64 for float32 tiles. Theorem and equation numbers are those of Higham, *Accuracy and
Stability of Numerical Algorithms*, 2nd edition, 2002.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

#: Bound on a sampled entry of the residual, in units of ``sqrt(n) u sqrt(A_ii A_jj)``.
FACTOR_ENTRY_C = 4.0

#: How much larger than LAPACK's the Frobenius norm of our residual may be, for n up to 16384.
FACTOR_NORM_RATIO = 2.0

#: Order below which the norm of a residual is a handful of roundings, and its ratio to LAPACK's is chance.
FACTOR_NORM_LEAST_N = 64

#: Factor on the bounds of TRSM and POTRF, which hold for substitution: blocked kernels multiply by reciprocals.
KERNEL_C = 2.0

#: Bound on a solve's residual, in units of ``n u ||A|| ||x||``.
SOLVE_C = 4.0

#: Bound on ``max |V.T V - I|`` of eigenvectors, in unit roundoffs of the type in which they are stored, and what a restart adds.
EIGENVECTORS_C, EIGENVECTORS_RESTART_C = 64.0, 2.0


def unit_roundoff(dtype: DTypeLike) -> float:
    """Largest relative error of rounding to nearest in ``dtype``: 2**-53 for float64, 2**-24 for float32."""
    return float(np.finfo(np.dtype(dtype)).eps) / 2


def gamma(k: int, dtype: DTypeLike = np.float64) -> float:
    """``k u / (1 - k u)``, the relative error of ``k`` roundings in a row (Lemma 3.1)."""
    ku = k * unit_roundoff(dtype)
    return ku / (1 - ku)


def sum_bound(terms: ArrayLike, dtype: DTypeLike = np.float64) -> float:
    """Error of summing ``terms`` in any order: ``gamma(m) sum |terms|`` (eq. 4.4)."""
    magnitudes = np.abs(np.asarray(terms, dtype=np.longdouble))
    return gamma(magnitudes.size, dtype) * float(magnitudes.sum())


def product_bound(a: NDArray[np.floating], b: NDArray[np.floating], dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """Error of each entry of ``a @ b``, summed in any order: ``gamma(k) |a| @ |b|`` (eq. 3.13)."""
    k = a.shape[-1]
    return gamma(k, dtype) * (np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble))


def update_bound(
    a_ij: NDArray[np.floating], l_ik: NDArray[np.floating], l_jk: NDArray[np.floating], dtype: DTypeLike = np.float64
) -> NDArray[np.floating]:
    """Error of each entry of ``a_ij - l_ik @ l_jk.T`` (GEMM and SYRK).

    ``gamma(k + 1) (|a_ij| + |l_ik| @ |l_jk|.T)``: the inner product and one more addition, in any order (eq. 3.13).
    """
    products = np.abs(l_ik).astype(np.longdouble) @ np.abs(l_jk).astype(np.longdouble).T
    return gamma(l_ik.shape[1] + 1, dtype) * (np.abs(a_ij) + products)


def trsm_bound(x: NDArray[np.floating], l_kk: NDArray[np.floating], dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """Residual of each entry of ``x @ l_kk.T - a_ik`` after TRSM: ``C nb u |x| @ |l_kk|.T`` (row-wise, Thm 8.5)."""
    products = np.abs(x).astype(np.longdouble) @ np.abs(np.tril(l_kk)).astype(np.longdouble).T
    return KERNEL_C * gamma(l_kk.shape[0], dtype) * products


def potrf_bound(l_kk: NDArray[np.floating], dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """Residual of each entry of ``a_kk - l_kk @ l_kk.T`` after POTRF: ``C (nb + 1) u |l_kk| @ |l_kk|.T`` (Thm 10.3)."""
    magnitudes = np.abs(np.tril(l_kk)).astype(np.longdouble)
    return KERNEL_C * gamma(l_kk.shape[0] + 1, dtype) * (magnitudes @ magnitudes.T)


def factor_entry_bound(n: int, a_ii: ArrayLike, a_jj: ArrayLike, dtype: DTypeLike = np.float64) -> NDArray[np.floating]:
    """Bound on a sampled entry ``|R_ij|`` of ``R = A - L L.T``: ``4 sqrt(n) u sqrt(A_ii A_jj)``.

    Parameters
    ----------
    n : int
        Order of the matrix.
    a_ii, a_jj : array_like
        Diagonal entries of A of the sampled rows and columns; broadcast against each other, as ``a[:, None], a[None, :]``.
    dtype : dtype
        Format of the factor.

    Notes
    -----
    ``|L| |L|.T <= sqrt(A_ii A_jj)`` entry by entry (Cauchy-Schwarz on the rows of L), so that Thm 10.3 gives
    ``gamma(n + 1) sqrt(A_ii A_jj)`` for certain. Independent roundings add up like ``sqrt(n)`` instead of ``n`` (section 2.8).
    """
    # Two roots, since A_ii A_jj overflows for rows scaled by 1e150.
    scale = np.sqrt(np.asarray(a_ii, dtype=np.longdouble)) * np.sqrt(np.asarray(a_jj, dtype=np.longdouble))
    return np.asarray(FACTOR_ENTRY_C * np.sqrt(n) * unit_roundoff(dtype) * scale)


def factor_norm_bound(n: int, lapack_norm: float, a_norm: float, dtype: DTypeLike = np.float64) -> float:
    """Bound on ``||A - L L.T||_F``: twice LAPACK's on the same matrix.

    Parameters
    ----------
    n : int
        Order of the matrix; the comparison is meant for n up to 16384.
    lapack_norm : float
        ``||A - L L.T||_F`` of the factor that LAPACK's POTRF computes.
    a_norm : float
        ``||A||_F``. Used below order 64 only, where LAPACK may be exact by chance: there ``u ||A||_F`` passes too.
    dtype : dtype
        Format of the factor.
    """
    bound = FACTOR_NORM_RATIO * lapack_norm
    return max(bound, unit_roundoff(dtype) * a_norm) if n < FACTOR_NORM_LEAST_N else bound


def residue_entry_bound(n: int, bits: int, a_ii: ArrayLike, a_jj: ArrayLike) -> NDArray[np.floating]:
    """Bound on an entry of ``A - L L.T`` of a factor through residues: ``(2 sqrt(n) 2**-bits + 4 sqrt(n) u) sqrt(A_ii A_jj)``.

    Parameters
    ----------
    n : int
        Order of the matrix.
    bits : int
        Bits of the scaled rows, :attr:`ooc_chol.precision.moduli.ResidueBasis.bits`.
    a_ii, a_jj : array_like
        Diagonal entries of A of the rows and columns.

    Notes
    -----
    Scaled rows have norms of at least ``2**(bits - 1)`` and entries rounded by at most 1/2, which is ``2**-bits sqrt(A_ii)``. Two
    such errors meet rows of one-norms up to ``sqrt(n A_jj)``: the first term holds for certain, the second is native FP64's.
    """
    scale = np.sqrt(np.asarray(a_ii, dtype=np.longdouble)) * np.sqrt(np.asarray(a_jj, dtype=np.longdouble))
    return np.asarray(2 * np.sqrt(n) * 2.0**-bits * scale + factor_entry_bound(n, a_ii, a_jj))


def solve_bound(n: int, a_norm: float, x_norm: float, dtype: DTypeLike = np.float64) -> float:
    """Bound on ``||b - A x||`` after a solve with the factor: ``4 n u ||A|| ||x||``, with consistent norms.

    Notes
    -----
    Thm 10.4: the computed ``x`` solves ``(A + E) x = b`` with ``|E| <= gamma(3n + 1) |L| |L|.T``. The norm of
    ``|L| |L|.T`` may exceed that of A by up to n, which no test matrix comes near; 4 is 3n + 1 rounded up.
    """
    return SOLVE_C * n * unit_roundoff(dtype) * a_norm * x_norm


def logdet_bound(diagonal: ArrayLike, error_norm: float, inverse_norm: float) -> float:
    """Bound on the difference of two log-determinants ``2 sum log L_ii`` of factors whose residuals have this Frobenius norm.

    Parameters
    ----------
    diagonal : (n,) array_like
        Diagonal of either factor.
    error_norm : float
        ``||E||_F``, E the difference of the two matrices that the factors are exact for.
    inverse_norm : float
        ``||inv(A)||_F``, or more.

    Notes
    -----
    The derivative of ``log det A`` along E is ``tr(inv(A) E)``, at most ``||inv(A)||_F ||E||_F``; twice that leaves room for what
    is of second order. The sums of logarithms are rounded (eq. 4.4), the logarithms themselves to a unit or two.
    """
    logarithms = 2 * np.log(np.asarray(diagonal, dtype=float))
    return 2 * error_norm * inverse_norm + 4 * sum_bound(logarithms)


#: Bound on the backward error of a refined solution, in units of ``sqrt(n) u``: roundings of a residual add up so (section 2.8).
REFINED_C = 4.0

#: How much larger than LAPACK's, or than ``u``, the backward error of a refined solution may be: refinement aims at ``u / 2``.
REFINED_RATIO = 2.0


def refined_bound(n: int, lapack_error: ArrayLike = 0.0) -> NDArray[np.floating]:
    """Bound on the normwise backward error of a refined solution: twice LAPACK's (or ``u``), and at most ``4 sqrt(n) u``.

    Parameters
    ----------
    n : int
        Order of the matrix.
    lapack_error : float or array
        Backward errors of LAPACK's solve on the same problem.
    """
    u = unit_roundoff(np.float64)
    return np.minimum(REFINED_RATIO * np.maximum(lapack_error, u), REFINED_C * np.sqrt(n) * u)


#: How much larger than the measured error the certified bound of a covariance matrix may be.
CERTIFIED_RATIO = 100.0

#: A bound of so many ``n u`` leaves room for the error of a residual that is computed in float64 (eq. 3.13, and far less).
FLOAT64_RESIDUAL_N = 100.0

#: Largest error of a log-likelihood of order 2048 at a threshold of 1e-8 and weak correlation.
LIKELIHOOD_ERROR = 1e-3

#: Relative difference of norms of a tile, whose squares are added in any order: far below what decides on a format.
NORM_RTOL = 1e-12

#: Relative difference of what a sample of a matrix tells, where host and device make its entries by functions of their own.
SAMPLE_RTOL = 1e-8

#: Bound on an entry of a sparse product, in units of ``sqrt(d) u (|A| |x|)`` with d entries in the row.
SPARSE_PRODUCT_C = 8.0


def sparse_product_bound(
    entries: ArrayLike, magnitudes: ArrayLike, compute: DTypeLike, result: ArrayLike = 0.0, storage: DTypeLike = np.float64
) -> NDArray[np.floating]:
    """Bound on each entry of a sparse product: ``8 sqrt(d) u (|A| |x|)``, and one rounding to a narrower type of storage.

    Parameters
    ----------
    entries : array_like
        Entries d of each row, those of diagonals that are added among them.
    magnitudes : array_like
        ``|A| |x|``, exactly or nearly so.
    compute, storage : dtype
        Types of computing and of what is stored.
    result : array_like
        The exact product.

    Notes
    -----
    Roundings of a sum that are independent add up to ``sqrt(d) u`` (section 2.8). Rows of up to 64 entries obey it for certain
    (eq. 3.5); long ones are summed in segments of 4,096, so that a bias cannot grow with the length of the row.
    """
    of_sum = SPARSE_PRODUCT_C * np.sqrt(np.asarray(entries)) * unit_roundoff(compute) * np.asarray(magnitudes)
    narrowed = 0.0 if np.dtype(storage) == np.dtype(compute) else unit_roundoff(storage) * np.abs(np.asarray(result))
    return np.asarray(of_sum + narrowed)


def eigenvector_deviation(dtype: DTypeLike, restarts: int) -> float:
    """Bound on ``max |V.T V - I|`` of eigenvectors after so many restarts: ``(64 + 2 restarts) u``, whatever their residuals.

    Notes
    -----
    They are rotations of a basis that is orthogonalized twice, to a small multiple of u (Giraud, Langou, Rozloznik and van den
    Eshof 2005). A restart rounds each entry, and the coefficients of which it is a sum.
    """
    return (EIGENVECTORS_C + EIGENVECTORS_RESTART_C * restarts) * unit_roundoff(dtype)
