"""Sums over segments of gathered products, in a fixed order: by gathers and dense sums, since scatters have none on GPUs."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

#: Segments up to this length are summed with others of the same length; longer ones with those of the same power of two.
_EXACT = 16


class _Bucket(NamedTuple):
    """Segments that are summed together, as rows of equal width: what is multiplied, and what of it belongs to the segment."""

    of_a: NDArray[np.int32]
    of_b: NDArray[np.int32]
    belongs: NDArray[np.bool_] | None


class SegmentSums:
    """``out[c] = sum of a[of_a[t]] * b[of_b[t]]`` over t in ``[ends[c], ends[c + 1])``, for static ends and places."""

    def __init__(self, ends: NDArray[np.integer], of_a: NDArray[np.integer], of_b: NDArray[np.integer]) -> None:
        ends = np.asarray(ends, np.int64)
        lengths = np.diff(ends)
        widths = np.where(lengths <= _EXACT, lengths, 2 ** np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64))
        self.n = lengths.size
        self.buckets: list[_Bucket] = []
        order, empty = [], np.flatnonzero(lengths == 0)
        for width in np.unique(widths[lengths > 0]):
            segments = np.flatnonzero(widths == width)
            places = ends[segments, None] + np.arange(width)
            belongs = places < ends[segments + 1, None]
            places = np.minimum(places, ends[segments + 1, None] - 1)
            kept = None if belongs.all() else belongs
            self.buckets.append(_Bucket(of_a[places].astype(np.int32), of_b[places].astype(np.int32), kept))
            order.append(segments)
        self.n_empty = int(empty.size)
        #: Where each segment is in the results of all buckets, one behind the other, the empty ones last.
        self.where = np.empty(self.n, np.int32)
        self.where[np.concatenate([*order, empty])] = np.arange(self.n, dtype=np.int32)
        self.in_order = bool(np.array_equal(self.where, np.arange(self.n)))

    def __call__(self, a: Array, b: Array, *, wide: bool) -> Array:
        """Sums of a (n_a,) and b (n_b, k), as (n, k), in the type of a, with float64 between where they are wide."""
        sums = [_bucket_sums(a, b, bucket, wide) for bucket in self.buckets]
        if self.n_empty or not sums:
            sums.append(jnp.zeros((self.n_empty, b.shape[1]), a.dtype))
        joined = jnp.concatenate(sums) if len(sums) > 1 else sums[0]
        return joined if self.in_order else taken(joined, self.where)


def _bucket_sums(a: Array, b: Array, bucket: _Bucket, wide: bool) -> Array:
    """Sums of segments of about one length."""
    width = bucket.of_a.shape[1]
    if width <= _EXACT:
        terms = (_products(a, b, bucket.of_a[:, t], bucket.of_b[:, t], wide) for t in range(width))
        return reduce(jnp.add, terms).astype(a.dtype)
    products = _products(a, b, bucket.of_a.T.ravel(), bucket.of_b.T.ravel(), wide).reshape(width, len(bucket.of_a), b.shape[1])
    if bucket.belongs is not None:
        products = jnp.where(bucket.belongs.T[:, :, None], products, 0)
    return jnp.sum(products, axis=0).astype(a.dtype)


def _products(a: Array, b: Array, of_a: NDArray[np.int32], of_b: NDArray[np.int32], wide: bool) -> Array:
    """``a[of_a] * b[of_b]`` for a (n_a,) and b (n_b, k)."""
    return widened(taken(a, of_a), wide)[:, None] * widened(taken(b, of_b), wide)


def taken(values: Array, places: NDArray[np.int32]) -> Array:
    """``values[places]`` along the first axis, of places that are known to be in range."""
    return jnp.take(values, places, axis=0, mode="clip")


def widened(values: Array, wide: bool) -> Array:
    """The values as float64 where they are wide."""
    return values.astype(jnp.float64) if wide else values
