"""Singular values of a batch of slices, lowered: by Gram matrices in float64, by subspaces with a certificate, and by SVD.

Slices are seen with their shorter side as columns: (s, m, d) with ``m >= d``. Whatever is decided is decided for each slice by
itself, and products are those of one slice: a slice becomes the same whatever is beside it.
"""

from __future__ import annotations

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
UNIT_ROUNDOFF = 2.0**-53


class Rule(NamedTuple):
    """How singular values are lowered."""

    lam: float
    shrinkage: Shrinkage

    def factors(self, squares: Floats) -> Floats:
        """What is left of singular values above lambda, whose squares are given, as shares of them."""
        if self.shrinkage == "garrote":
            return 1 - self.lam * self.lam / squares
        factors: Floats = 1 - self.lam / np.sqrt(squares)
        return factors


def by_svd(slices: NDArray[Any], rule: Rule, ranks: Counts, flags: Counts) -> None:
    """The reference: all singular values and vectors, in float64."""
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


def by_gram(slices: NDArray[Any], rule: Rule, ranks: Counts, flags: Counts, basis: Floats | None, tolerance: float) -> None:
    """By eigenpairs of Gram matrices: no more than needed where there is a basis, else all."""
    lam = rule.lam
    wide, gram, sizes = _gram(slices)
    lost = ~np.isfinite(sizes)
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


def norms(slices: NDArray[Any]) -> Floats:
    """Largest singular value of each slice; NaN where that is no number."""
    _, gram, sizes = _gram(slices)
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


def _by_subspace(batch: _Batch, numbers: NDArray[np.intp], rule: Rule, basis: Floats, tolerance: float) -> NDArray[np.intp]:
    """By the basis, where there is one and its certificate holds; the slices for which it does not."""
    begun = basis[numbers].any(axis=(1, 2))
    tried = numbers[begun]
    if not len(tried):
        return numbers
    gram, v = batch.gram[tried], basis[tried]
    for _ in range(TURNS):
        v = np.linalg.qr(gram @ v)[0]
    product = gram @ v
    ascending, turn = np.linalg.eigh(_symmetric(v.transpose(0, 2, 1) @ product))
    values, turn = ascending[:, ::-1], np.ascontiguousarray(turn[:, :, ::-1])
    v, product = v @ turn, product @ turn
    kept = _kept(ascending, rule.lam, gram.shape[1])[:, ::-1]
    is_proved = _is_certified(gram, values, v, product, kept, rule.lam, tolerance)
    good = np.flatnonzero(is_proved)
    batch.keep(tried[good], values[good], v[good], kept[good], rule)
    basis[tried[good]] = v[good]
    return np.sort(np.concatenate([numbers[~begun], tried[~is_proved]]))


def _is_certified(
    gram: Floats, values: Floats, v: Floats, product: Floats, kept: NDArray[np.bool_], lam: float, tolerance: float
) -> NDArray[np.bool_]:
    """Whether the pairs kept are accurate enough, and no value above ``lam`` can be missing.

    A residual r of a pair (t, v) that is kept moves the result by at most about ``|r| / sqrt(t)``: by either rule the factor of t
    is at most ``(t - lam**2) / t``, and what is not kept has eigenvalues below ``lam**2``. By Weyl's inequality what is
    not kept has eigenvalues up to the norm of G without the pairs kept: of the rest of the subspace and of what lies outside.
    """
    residuals = ((product - v * values[:, None, :]) ** 2).sum(axis=1)
    moved = np.where(kept, residuals / np.where(kept, values, 1.0), 0.0).sum(axis=1)
    outside = _norms(gram - (v * values[:, None, :]) @ v.transpose(0, 2, 1))
    others = np.where(kept, 0.0, np.abs(values))
    bound = np.minimum(np.sqrt(outside**2 + (others**2).sum(axis=1)), outside + others.max(axis=1))
    certified: NDArray[np.bool_] = (moved <= tolerance**2 * values[:, 0]) & (bound < lam * lam)
    return certified


def _gram(slices: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """Slices in float64 with the shorter side as columns, Gram matrices, and their norms; those that are not finite become 0."""
    tall = slices if _is_tall(slices) else slices.transpose(0, 2, 1)
    wide = tall.astype(np.float64, order="C")
    gram = wide.transpose(0, 2, 1) @ wide
    sizes = _norms(gram)
    gram[~np.isfinite(sizes)] = 0
    return wide, gram, sizes


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
