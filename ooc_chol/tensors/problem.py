"""What a caller of impute gave, looked at before anything is done."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.planning import precision_of
from ooc_chol.team import map_in_threads
from ooc_chol.tensors.errors import NonFiniteTensorError
from ooc_chol.tensors.fourier import GraphFourier

#: Entries that a thread looks at in one go, and threads: with one alone this was some 20 s of a call on 42 GB.
_ENTRIES, _THREADS = 1 << 22, 8
#: Slices that a message names.
_NAMED = 6


class Given(NamedTuple):
    """A tensor, what of it is observed, and the precision."""

    observed: NDArray[Any]  #: (N, m, n) of the type of storage, row-major
    mask: NDArray[np.bool_]  #: (N,) or (N, m, n)
    precision: Precision

    @property
    def share(self) -> float:
        """Share of entries that are observed."""
        return float(np.count_nonzero(self.mask) / self.mask.size)

    @property
    def incomplete(self) -> NDArray[np.intp]:
        """Slices of which something is missing."""
        return np.flatnonzero(~self.mask.reshape(len(self.mask), -1).all(axis=1))

    def unreached(self, fourier: GraphFourier) -> NDArray[np.intp]:
        """Slices that no path connects to one of which something is observed."""
        begun = self.mask.reshape(len(self.mask), -1).any(axis=1)
        reached = np.bincount(fourier.labels, weights=begun) > 0
        return np.flatnonzero(~reached[fourier.labels])


def given_of(X: Any, mask: Any, precision: Precision | str | None) -> Given:
    """A tensor and its mask, once all is known to make sense."""
    tensor = real_tensor("X", X)
    observed_where = _mask_of(mask, tensor.shape)
    triple = precision_of(precision, Precision.FDF if tensor.dtype == np.float32 else Precision.DDD)
    if not observed_where.any():
        raise ValueError("nothing is observed: mask is False everywhere; it is True where a slice, or an entry, is known")
    advice = "mend it, or set mask to False there: what is missing may hold NaN"
    check_finite("X", tensor, observed_where, triple, advice)
    with np.errstate(over="ignore"):  # what is not observed may be anything
        return Given(np.ascontiguousarray(tensor, triple.storage), np.ascontiguousarray(observed_where), triple)


def real_tensor(name: str, given: Any) -> NDArray[Any]:
    """An array of float32 or float64 with three axes, none of which is empty."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; give {name}.data, and mask=~{name}.mask")
    tensor = np.asarray(given)
    if tensor.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} holds {tensor.dtype}; give float32 or float64, such as {name}.astype(numpy.float32)")
    if tensor.ndim != 3 or not tensor.size:
        raise ValueError(f"{name} has shape {tensor.shape}; give (N, m, n): an m x n slice for each of N vertices")
    return tensor


def _mask_of(mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A mask by slice or by entry."""
    given = np.asarray(mask)
    if given.dtype != np.bool_:
        raise TypeError(f"mask holds {given.dtype}; give bool, True where observed, such as mask.astype(bool)")
    if given.shape not in {shape, shape[:1]}:
        raise ValueError(
            f"mask has shape {given.shape}, but X has {shape}: give ({shape[0]},), a value for each slice, or {shape}, one for "
            "each entry"
        )
    return given


def check_finite(name: str, tensor: NDArray[Any], mask: NDArray[np.bool_], precision: Precision, advice: str) -> None:
    """Raise for what is not finite where ``mask``, or is not once it is stored."""
    limit = min(float(np.finfo(each).max) for each in (precision.storage, tensor.dtype))
    step = max(1, _ENTRIES // tensor[0].size)

    def look(at: int) -> tuple[int, int, int] | None:
        part = tensor[at : at + step]
        given = mask[at : at + step].reshape(-1, *((1, 1) if mask.ndim == 1 else part.shape[1:]))
        with np.errstate(invalid="ignore"):
            if part.max() <= limit and part.min() >= -limit:  # which NaN is not, and what is missing may well be
                return None
            bad = given & ~(np.abs(part) <= limit)
        if not bad.any():
            return None
        k, i, j = (int(each) for each in np.argwhere(bad)[0])
        return at + k, i, j

    for found in map_in_threads(look, range(0, len(tensor), step), threads=_THREADS):
        if found is not None:
            value = float(tensor[found])
            held = f"{value:g}" + (f", more than {precision.value} stores" if np.isfinite(value) else "")
            raise NonFiniteTensorError(f"{name}[{', '.join(map(str, found))}]", held, advice)


def check_order(fourier: GraphFourier, tensor: NDArray[Any]) -> None:
    """Raise where the graph is not that of the tensor."""
    if fourier.n_vertices != len(tensor):
        raise ValueError(
            f"the graph has {fourier.n_vertices} vertices, but X has {len(tensor)} slices (shape {tensor.shape}): its first axis "
            "is over the vertices of the graph"
        )


def named(slices: NDArray[np.intp]) -> str:
    """Slices in words, not too many of them."""
    some = ", ".join(map(str, slices[:_NAMED].tolist()))
    rest = f" and {len(slices) - _NAMED} more" if len(slices) > _NAMED else ""
    return f"slice{'s' * (len(slices) != 1)} {some}{rest}"
