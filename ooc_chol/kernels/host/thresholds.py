"""Singular values of a batch of slices, lowered: by Gram matrices in float64, by subspaces with a certificate, and by SVD.

Slices are seen with their shorter side as columns: (s, m, d) with ``m >= d``. Whatever is decided is decided for each slice by
itself, and products are those of one slice: a slice becomes the same whatever is beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.kernels.interfaces.tensors import Shrinkage

Floats = NDArray[np.float64]
Counts = NDArray[np.int32]

#: By type of storage: what residuals of the pairs kept may cost the result, as a share of the slice's largest singular value.
TOLERANCES = {"float32": 2.0**-27, "float64": 2.0**-34}
#: Products with G that turn the basis before the one of Rayleigh-Ritz.
TURNS = 2
#: Of the second try: how often the basis is filtered, the largest degree of a filter, and what it amplifies values by at most.
PASSES, DEGREE, AMPLIFIED = 2, 3, 2.0**26
#: Where filters begin at least, as a share of the largest eigenvalue.
LEAST_SHARE = 2.0**-40
UNIT_ROUNDOFF = 2.0**-53


class Rule(NamedTuple):
    """How singular values are lowered."""

    lam: float
    shrinkage: Shrinkage

    def factors(self, squares: Floats) -> Floats:
        """Shares that thresholding leaves of singular values above lambda, whose squares are given."""
        if self.shrinkage == "garrote":
            return 1 - self.lam * self.lam / squares
        factors: Floats = 1 - self.lam / np.sqrt(squares)
        return factors


def lowered_square(lam: float, order: int) -> float:
    """``lam**2``, lowered by what roundings of a Cholesky factorization may hide."""
    return lam * lam * (1 - 4 * order * order * UNIT_ROUNDOFF)


def by_svd(slices: NDArray[Any], rule: Rule, ranks: Counts, flags: Counts, joined: Sequence[range]) -> None:
    """The reference: all singular values and vectors, in float64."""
    together = [_joined(slices[run.start : run.stop].astype(np.float64)) for run in joined]
    _by_svd(slices, rule, ranks, flags)
    for run, matrix in zip(joined, together, strict=True):
        own = slice(run.start, run.stop)
        rank, flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
        _by_svd(matrix[None], rule, rank, flag)
        ranks[own], flags[own] = rank, flag
        slices[own] = _apart(matrix, slices[own].shape)


def _joined(slices: Floats) -> Floats:
    """Slices as one matrix, their shorter sides put together."""
    tall = slices if _is_tall(slices) else slices.transpose(0, 2, 1)
    return np.ascontiguousarray(tall).reshape(-1, tall.shape[2])


def _apart(matrix: Floats, shape: tuple[int, ...]) -> Floats:
    """The other way round."""
    count, rows, columns = shape
    if rows >= columns:
        return matrix.reshape(shape)
    return matrix.reshape(count, columns, rows).transpose(0, 2, 1)


def _by_svd(slices: NDArray[Any], rule: Rule, ranks: Counts, flags: Counts) -> None:
    """Each slice by itself."""
    wide = slices.astype(np.float64)
    lost = ~np.isfinite(wide).all(axis=(1, 2))
    wide[lost] = 0
    left, values, right = np.linalg.svd(wide, full_matrices=False)
    order = values.shape[1]
    ranks[...] = np.count_nonzero(values > np.maximum(rule.lam, np.sqrt(order * UNIT_ROUNDOFF) * values[:, :1]), axis=1)
    flags[...] = np.where(lost, -1, 1)
    if rule.lam:
        lowered = np.where(values > rule.lam, values * rule.factors(np.square(np.maximum(values, rule.lam))), 0)
        slices[...] = (left * lowered[:, None, :]) @ right
    slices[lost] = np.nan


def by_gram(
    slices: NDArray[Any],
    rule: Rule,
    ranks: Counts,
    flags: Counts,
    basis: Floats | None,
    tolerance: float,
    joined: Sequence[range],
) -> None:
    """By eigenpairs of Gram matrices: no more than needed where there is a basis, else all."""
    lam = rule.lam
    wide, gram, sizes = _gram(slices)
    lost = ~np.isfinite(sizes)
    _add_up(gram, joined)
    sizes = _norms(gram) if joined else sizes
    if lam:
        # No value is above lam where even the norm of all of them together is not: s_1**2 <= ||G||_F.
        left = np.flatnonzero((sizes > lam * lam) & ~lost)
        batch = _Batch(wide, gram, np.zeros_like(wide), ranks)
        ranks[...], flags[...] = 0, 0
        if basis is not None and len(left):
            left = _by_subspace(batch, left, rule, basis, tolerance)
        if len(left):
            flags[left] = 1
            _by_all(batch, left, rule, basis)
        slices[...] = batch.made if _is_tall(slices) else batch.made.transpose(0, 2, 1)
    else:
        ranks[...] = _kept(np.linalg.eigvalsh(gram), 0.0, gram.shape[1]).sum(axis=1)
        flags[...] = 1
    flags[lost], slices[lost] = -1, np.nan


def norms(slices: NDArray[Any], joined: Sequence[range]) -> Floats:
    """Largest singular value of each slice; NaN where that is no number."""
    _, gram, sizes = _gram(slices)
    _add_up(gram, joined)
    largest: Floats = np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[:, -1], 0))
    largest[~np.isfinite(sizes)] = np.nan
    return largest


class _Batch(NamedTuple):
    """Slices, their Gram matrices, and what they become."""

    wide: Floats  #: (s, m, d) in float64
    gram: Floats  #: (s, d, d)
    made: Floats  #: (s, m, d), zero so far
    ranks: Counts  #: (s,)

    def keep(self, numbers: NDArray[np.intp], values: Floats, vectors: Floats, kept: NDArray[np.bool_], rule: Rule) -> None:
        """``X V diag(f(s)) V.T`` of some slices, for pairs in descending order; slices of one rank together."""
        counts = kept.sum(axis=1)
        self.ranks[numbers] = counts
        for rank in np.unique(counts[counts > 0]):
            chosen = np.flatnonzero(counts == rank)
            v = np.ascontiguousarray(vectors[chosen, :, :rank])
            factors = rule.factors(values[chosen, :rank])
            self.made[numbers[chosen]] = ((self.wide[numbers[chosen]] @ v) * factors[:, None, :]) @ v.transpose(0, 2, 1)


def _by_all(batch: _Batch, numbers: NDArray[np.intp], rule: Rule, basis: Floats | None) -> None:
    """By all eigenpairs, of which the leading ones become the basis."""
    ascending, columns = np.linalg.eigh(batch.gram[numbers])
    values, vectors = ascending[:, ::-1], columns[:, :, ::-1]
    batch.keep(numbers, values, vectors, _kept(ascending, rule.lam, values.shape[1])[:, ::-1], rule)
    if basis is not None:
        basis[numbers] = vectors[:, :, : basis.shape[2]]


class _Pairs(NamedTuple):
    """Rayleigh-Ritz pairs of some Gram matrices, in descending order, and which of them are kept."""

    values: Floats  #: (s, c), t
    v: Floats  #: (s, d, c)
    product: Floats  #: (s, d, c), G V
    kept: NDArray[np.bool_]  #: (s, c)

    def where(self, chosen: NDArray[np.bool_]) -> _Pairs:
        """Those of some slices."""
        return _Pairs(self.values[chosen], self.v[chosen], self.product[chosen], self.kept[chosen])

    def without(self, gram: Floats, values: Floats) -> Floats:
        """``G - sum t v v.T`` for the values given."""
        rest: Floats = gram - (self.v * values[:, None, :]) @ self.v.transpose(0, 2, 1)
        return rest


def _by_subspace(batch: _Batch, numbers: NDArray[np.intp], rule: Rule, basis: Floats, tolerance: float) -> NDArray[np.intp]:
    """By the basis, where there is one and a certificate holds at the first or the second try; the slices for which none does."""
    begun = basis[numbers].any(axis=(1, 2))
    left = numbers[begun]
    if not len(left):
        return numbers
    gram, v = batch.gram[left], basis[left]
    for _ in range(TURNS):
        v = np.linalg.qr(gram @ v)[0]
    for is_last in (False, True):
        pairs = _rayleigh_ritz(gram, v, rule.lam)
        is_proved = _is_accurate(pairs, tolerance) & (_is_definite if is_last else _is_small)(gram, pairs, rule.lam)
        good, found = left[is_proved], pairs.where(is_proved)
        batch.keep(good, found.values, found.v, found.kept, rule)
        basis[good] = found.v
        left, gram = left[~is_proved], gram[~is_proved]
        if is_last or not len(left):
            break
        v = _filtered(gram, pairs.where(~is_proved))
    return np.sort(np.concatenate([numbers[~begun], left]))


def _rayleigh_ritz(gram: Floats, v: Floats, lam: float) -> _Pairs:
    """The pairs of orthonormal columns."""
    product = gram @ v
    ascending, turn = np.linalg.eigh(_symmetric(v.transpose(0, 2, 1) @ product))
    turn = np.ascontiguousarray(turn[:, :, ::-1])
    return _Pairs(ascending[:, ::-1], v @ turn, product @ turn, _kept(ascending, lam, gram.shape[1])[:, ::-1])


def _filtered(gram: Floats, pairs: _Pairs) -> Floats:
    """``orth(T_m(2 G / b - I) V)``, :data:`PASSES` times, b being the least value of the subspace and T_m Chebyshev's polynomial.

    What lies outside of the subspace has eigenvalues from 0 to about b, where ``|T_m| <= 1``; beyond b it grows faster than any
    other polynomial. The degree m of each slice is the largest up to :data:`DEGREE` that turns no vector by more than roundings
    allow: the largest eigenvalue is amplified by at most :data:`AMPLIFIED`, but m is at least 1.
    """
    v, largest = pairs.v, pairs.values[:, :1]
    least = np.maximum(pairs.values[:, -1:], LEAST_SHARE * largest)
    scale = np.where(largest > 0, 2 / least, 0.0)
    degrees = _degrees(scale * largest - 1)[:, None]
    for _ in range(PASSES):
        before, y = v, scale[:, None] * (gram @ v) - v
        for step in range(1, DEGREE):
            after = 2 * (scale[:, None] * (gram @ y) - y) - before
            goes_on = step < degrees
            before, y = np.where(goes_on, y, before), np.where(goes_on, after, y)
        v = np.linalg.qr(y)[0]
    return v


def _degrees(x: Floats) -> NDArray[np.intp]:
    """The largest m, from 1 to :data:`DEGREE`, with ``T_m(x) <= AMPLIFIED``."""
    before, value, degrees = np.ones_like(x), x, np.ones(x.shape, np.intp)
    for _ in range(1, DEGREE):
        before, value = value, 2 * x * value - before
        degrees += value <= AMPLIFIED
    return degrees


def _is_accurate(pairs: _Pairs, tolerance: float) -> NDArray[np.bool_]:
    """Tell whether the pairs kept are accurate enough.

    A residual r of a pair (t, v) that is kept moves the result by at most about ``|r| / sqrt(t)``: by either rule the factor of t
    is at most ``(t - lam**2) / t``, and what is not kept has eigenvalues below ``lam**2``.
    """
    values, kept = pairs.values, pairs.kept
    residuals = ((pairs.product - pairs.v * values[:, None, :]) ** 2).sum(axis=1)
    moved = np.where(kept, residuals / np.where(kept, values, 1.0), 0.0).sum(axis=1)
    accurate: NDArray[np.bool_] = moved <= tolerance**2 * values[:, 0]
    return accurate


def _is_small(gram: Floats, pairs: _Pairs, lam: float) -> NDArray[np.bool_]:
    """Tell whether no value above ``lam`` can be missing: Frobenius' norm of what is not kept is below ``lam**2``.

    By Weyl's inequality what is not kept has eigenvalues up to the norm of G without the pairs kept: of the rest of the subspace
    and of what lies outside.
    """
    outside = _norms(pairs.without(gram, pairs.values))
    others = np.where(pairs.kept, 0.0, np.abs(pairs.values))
    bound = np.minimum(np.sqrt(outside**2 + (others**2).sum(axis=1)), outside + others.max(axis=1))
    small: NDArray[np.bool_] = bound < lam * lam
    return small


def _is_definite(gram: Floats, pairs: _Pairs, lam: float) -> NDArray[np.bool_]:
    """Tell whether no value above ``lam`` can be missing: ``lam**2 I - R`` has a Cholesky factor, R being what is not kept of G.

    Many values below ``lam`` have a large norm together, which says nothing of the largest. Roundings of the factorization are
    those of a change of the matrix by at most ``d (d + 1) u`` of its largest entry, by which ``lam**2`` is lowered.
    """
    rest = pairs.without(gram, np.where(pairs.kept, pairs.values, 0.0))
    shifted = np.diag(np.full(gram.shape[1], lowered_square(lam, gram.shape[1]))) - rest
    if _has_factors(shifted):
        return np.ones(len(gram), np.bool_)
    return np.array([_has_factors(each) for each in shifted], np.bool_)


def _has_factors(matrices: Floats) -> bool:
    """Tell whether all of some matrices have a Cholesky factor."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return True


def _gram(slices: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """Slices in float64 with the shorter side as columns, Gram matrices, and their norms; those that are not finite become 0."""
    tall = slices if _is_tall(slices) else slices.transpose(0, 2, 1)
    wide = tall.astype(np.float64, order="C")
    gram = wide.transpose(0, 2, 1) @ wide
    sizes = _norms(gram)
    gram[~np.isfinite(sizes)] = 0
    return wide, gram, sizes


def _add_up(gram: Floats, joined: Sequence[range]) -> None:
    """Each Gram matrix becomes the sum of those of its run."""
    for run in joined:
        gram[run.start : run.stop] = gram[run.start : run.stop].sum(axis=0)


def _is_tall(slices: NDArray[Any]) -> bool:
    return bool(slices.shape[1] >= slices.shape[2])


def _kept(ascending: NDArray[Any], lam: float, order: int) -> NDArray[np.bool_]:
    """Eigenvalues above ``lam**2``, and above what rounding makes of zero."""
    kept: NDArray[np.bool_] = ascending > np.maximum(lam * lam, order * UNIT_ROUNDOFF * ascending[:, -1:])
    return kept


def _norms(matrices: Floats) -> Floats:
    """Frobenius norms."""
    count = len(matrices)
    flat = matrices.reshape(count, 1, -1)
    found: Floats = np.sqrt((flat @ flat.transpose(0, 2, 1)).reshape(count))
    return found


def _symmetric(matrices: Floats) -> Floats:
    return (matrices + matrices.transpose(0, 2, 1)) / 2
