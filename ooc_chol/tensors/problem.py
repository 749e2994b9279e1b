"""Checks of a caller's arguments of impute, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ooc_chol.config import whole_number
from ooc_chol.errors import NonFiniteTensorError
from ooc_chol.files.inputs import plain_array
from ooc_chol.kernels.interfaces.tensors import Svt, TensorShape, resolve_svt
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room
from ooc_chol.process.team import map_in_threads
from ooc_chol.sparse.planning import precision_of
from ooc_chol.sparse.values import MOST_WHOLE
from ooc_chol.tensors.fourier import GraphFourier, order_of
from ooc_chol.tensors.share import MaskKind, TensorProblem

#: Entries that a thread looks at in one go, and threads: with one alone this was some 20 s of a call on 42 GB.
_ENTRIES, _THREADS = 1 << 20, 16
#: Slices that a message names, and parts of slices.
_NAMED, _TOLD = 6, 3
#: A tensor whose largest entry is between 1 / that and that is imputed as it is: fourth powers of its singular values, and of
#: their roundings, are numbers of float64.
_SAFE = 2.0**100
#: A slice whose estimate has a smaller share than the root of that of what it should be is told of.
_FAINT = 1e-10
#: A mean that is so many times its standard error is more than chance.
_CHANCE = 4.0


#: Whether the mean of what is observed is taken off before, and added again.
Center: TypeAlias = bool | Literal["auto"]


class Given(NamedTuple):
    """A tensor, what of it is observed, and the precision."""

    tensor: NDArray[Any]  #: (N, m, n), as it was given
    observed: NDArray[Any]  #: The same of the type of storage, row-major, divided by ``2**power``
    mask: NDArray[np.bool_]  #: (N,) or (N, m, n)
    precision: Precision
    power: int  #: Zero for all but very small and very large entries
    center: float = 0.0  #: In units of :attr:`observed`: what is taken off all of it

    def scaled(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """Numbers in the units of the caller in those of :attr:`observed`, row-major and of the type of storage."""
        with np.errstate(over="ignore"):  # what is not observed may be anything
            if not self.power:
                return np.ascontiguousarray(tensor, self.precision.storage)
            return _divided(tensor, self.power, self.precision)

    def centred(self) -> Given:
        """The same with the mean of what is observed as :attr:`center`."""
        return self._replace(center=_mean_of(self.observed, self.mask)[0])

    def centred_where_it_tells(self) -> Given:
        """The same, but where that mean is no more than what chance makes of that of slices."""
        center, error = _mean_of(self.observed, self.mask)
        return self._replace(center=center) if abs(center) > _CHANCE * error else self

    def told(self, tensor: NDArray[Any]) -> NDArray[Any]:
        """Numbers of a run, which are less :attr:`center`, in units of the caller, in place: what was observed as it was."""
        if self.center:
            tensor += self.center
        if self.power:
            np.ldexp(tensor, self.power, out=tensor)
        if self.power or self.center:
            where = self.mask if self.mask.ndim == 3 else self.mask[:, None, None]
            np.copyto(tensor, self.tensor, where=where, casting="same_kind")
        return tensor

    @property
    def mask_kind(self) -> MaskKind:
        """Parts of the tensor that the mask tells of."""
        return "slices" if self.mask.ndim == 1 else "entries"

    def shape_over(self, n_components: int) -> TensorShape:
        """Sizes of the tensor, and of a transform of so many slices."""
        vertices, rows, columns = self.observed.shape
        return TensorShape(vertices, n_components, rows, columns)

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

    def untold(self, fourier: GraphFourier) -> Iterator[str]:
        """Slices, rows and columns, in words, that nothing observed tells of: their estimate is the center."""
        if len(unreached := self.unreached(fourier)):
            yield f"{named('slice', unreached)}: no path in the graph leads to anything that is observed"
        unspanned = self.incomplete[~fourier.basis[self.incomplete].any(axis=1)]
        if len(unspanned := np.setdiff1d(unspanned, unreached)):
            yield f"{named('slice', unspanned)}: none of the {fourier.n_components} eigenvectors reaches them (n_components)"
        if len(faint := np.setdiff1d(self._faint(fourier), np.append(unreached, unspanned))):
            yield f"{named('slice', faint)}: edges are too weak, or eigenvectors too few, to lead to anything that is observed"
        unseen = [
            f"{what} of {'every slice' if len(slices) == len(self.mask) else named('slice', np.sort(slices))}"
            for what, slices in self._unseen(fourier.labels).items()
        ]
        if unseen:
            rest = ", and others" if len(unseen) > _TOLD else ""
            yield f"{'; '.join(unseen[:_TOLD])}{rest}: no chain of observed entries leads there from any other"

    def _faint(self, fourier: GraphFourier) -> NDArray[np.intp]:
        """Missing slices of whose eigenvectors those that reach observed ones have next to nothing there."""
        begun = self.mask.reshape(len(self.mask), -1).any(axis=1)
        basis, gone = fourier.basis, fourier.basis[~begun]
        if not len(gone):
            return np.empty(0, np.intp)
        # sum over eigenvalues of |P[k, observed]|^2, P their projections: for simple ones of u_k^2 (u, u)
        shares = np.einsum("i,ij,ij->j", begun.astype(np.float64), basis, basis)
        for space in fourier.eigenspaces:
            shares[space] = 0
        weights = np.einsum("ij,ij,j->i", gone, gone, shares)
        for space in fourier.eigenspaces:
            columns = slice(space.start, space.stop)
            seen, own = basis[begun, columns], gone[:, columns]
            weights += np.einsum("ij,ij->i", own @ (seen.T @ seen), own)
        faint: NDArray[np.intp] = np.flatnonzero(~begun)[weights < _FAINT]
        return faint

    def _unseen(self, labels: NDArray[np.int32]) -> dict[str, NDArray[np.intp]]:
        """Parts of slices of which nothing observed in their component of the graph tells, and these slices."""
        found: dict[str, NDArray[np.intp]] = {}
        order = np.argsort(labels, kind="stable") if self.mask.ndim > 1 else np.empty(0, np.intp)
        for slices in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
            seen = np.asarray(self.mask[slices].any(axis=0))
            if seen.any() and not seen.all():
                for what in _apart(seen):
                    found[what] = np.append(found.get(what, slices[:0]), slices)
        return found


def given_of(X: Any, mask: Any, precision: Precision | str | None, center: Center) -> Given:
    """A tensor and its mask, once all is known to make sense."""
    check_center(center)
    as_given = plain_array("X", X, gaps_as_nan=True)
    tensor = _floats("X", as_given)
    observed_where = observed_mask(X) if mask is None else _mask_of(mask, tensor.shape)
    _check_whole("X", as_given, observed_where)
    triple = precision_of(precision, Precision.FDF if tensor.dtype == np.float32 else Precision.DDD)
    if not observed_where.any():
        what = "X is NaN" if mask is None else "mask is False"
        raise ValueError(f"nothing is observed: {what} everywhere; a slice, or an entry, must be known")
    advice = f"mend it, or set {'it to NaN' if mask is None else 'mask to False there'}: what is missing may hold NaN"
    most = check_finite("X", tensor, observed_where, triple, advice)
    power = _power_of(tensor, observed_where, triple, most)
    given = Given(tensor, tensor, np.ascontiguousarray(observed_where), triple, power)
    given = given._replace(observed=given.scaled(tensor))
    return given.centred_where_it_tells() if center == "auto" else given.centred() if center else given


def check_center(center: object) -> None:
    """Refuse what is no way to take a mean off."""
    if not (isinstance(center, bool) or center == "auto"):
        raise ValueError(f"center={center!r:.40}: give 'auto', True or False")


def problem_of(X: Any, mask: Any, graph: Any, precision: Precision | str | None, svt: Svt) -> TensorProblem:
    """The problem of a tensor, or of its shape alone; no entry is looked at but for NaN where there is no mask."""
    tensor = None if isinstance(X, Sequence) and not isinstance(X, str | bytes) and len(np.shape(X)) <= 1 else _floats("X", X)
    shape = _shape_of(X) if tensor is None else tensor.shape
    kind: MaskKind
    if isinstance(mask, str):
        if mask not in ("slices", "entries"):
            raise ValueError(f"mask={mask!r:.40}: a mask is of 'slices' or 'entries', or an array")
        kind = "slices" if mask == "slices" else "entries"
    elif mask is None:
        kind = "slices" if tensor is None or observed_mask(X).ndim == 1 else "entries"
    else:
        kind = "slices" if _mask_of(mask, shape).ndim == 1 else "entries"
    triple = precision_of(precision, Precision.DDD if tensor is not None and tensor.dtype == np.float64 else Precision.FDF)
    sizes = TensorShape(shape[0], _components_of(graph, shape), *shape[1:])
    problem = TensorProblem(sizes, triple, resolve_svt(svt, *shape[1:]), kind)
    return problem.beside(graph.eigenspaces) if isinstance(graph, GraphFourier) else problem


def _shape_of(shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise ValueError(f"X is {shape!r:.80}, but the shape of a tensor has three numbers: slices, and rows and columns of each")
    vertices, rows, columns = (_count("X", each) for each in shape)
    return vertices, rows, columns


def _components_of(graph: Any, shape: tuple[int, ...]) -> int:
    """Eigenvectors of a transform or of a graph; those that are counted; or all."""
    if graph is None:
        return shape[0]
    if isinstance(graph, int | np.integer | float):
        return _count("graph", graph, shape[0])
    count: int = graph.n_components if isinstance(graph, GraphFourier) else order_of(graph)
    check_order(graph.n_vertices if isinstance(graph, GraphFourier) else count, shape)
    return count


def _count(name: str, value: Any, most: int | None = None) -> int:
    number = whole_number(value, name)
    if number < 1 or (most is not None and number > most):
        raise ValueError(f"{name} has {number}; give at least 1{'' if most is None else f', at most {most}'}")
    return number


def real_tensor(name: str, given: Any) -> NDArray[Any]:
    """An array of float32 or float64 with three axes, as :func:`~ooc_chol.impute` takes it.

    Parameters
    ----------
    name : str
        Name at the caller's.
    given : (N, m, n) array_like
        float32, float64, or whole numbers, which become float64; none of the axes is empty.

    Returns
    -------
    (N, m, n) array
        Array in the byte order of the machine, NaN where entries are masked.

    Raises
    ------
    ValueError
        It has not three axes, or a whole number beyond 2^53, which float64 would round.
    TypeError
        It holds other numbers.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.real_tensor("X", [[[1, 2]]]).dtype.name
    'float64'
    """
    tensor = plain_array(name, given, gaps_as_nan=True)
    _check_whole(name, tensor, np.ones(tensor.shape[:1], np.bool_))
    return _floats(name, tensor)


def _check_whole(name: str, tensor: NDArray[Any], mask: NDArray[np.bool_]) -> None:
    """Refuse whole numbers that float64 would round, where ``mask``."""
    if tensor.dtype.kind not in "iu" or not tensor.size or max(int(tensor.max()), -int(tensor.min())) <= MOST_WHOLE:
        return
    beyond = (tensor > MOST_WHOLE) | (tensor < -MOST_WHOLE)
    beyond &= mask.reshape(*mask.shape, *(1,) * (tensor.ndim - mask.ndim))
    if beyond.any():
        place = tuple(map(int, np.argwhere(beyond)[0]))
        problem = f"{name}[{', '.join(map(str, place))}] is {tensor[place]}, a whole number beyond 2^53"
        raise ValueError(f"{problem}, which float64 does not hold exactly; take a constant off, or give {name} as float64")


def _floats(name: str, given: Any) -> NDArray[Any]:
    """The same, but that numbers are not looked at."""
    tensor = plain_array(name, given, gaps_as_nan=True)
    if tensor.dtype.kind in "iu":
        check_room(8 * tensor.size, f"{name} in float64", f"give float32, such as {name}.astype(numpy.float32)")
        tensor = tensor.astype(np.float64)
    if not tensor.dtype.isnative:
        check_room(tensor.nbytes, f"a copy of {name}", "give it in the byte order of this machine")
        tensor = tensor.astype(tensor.dtype.newbyteorder("="))
    if tensor.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} holds {tensor.dtype}; give float32 or float64, such as {name}.astype(numpy.float32)")
    if tensor.ndim != 3 or not tensor.size:
        raise ValueError(f"{name} has shape {tensor.shape}; give (N, m, n): an m x n slice for each of N vertices")
    return tensor


def observed_mask(X: Any) -> NDArray[np.bool_]:
    """A mask of what is observed where NaN stands for what is missing, as :func:`~ooc_chol.impute` has it without a mask.

    Parameters
    ----------
    X : (N, m, n) array_like
        Floating-point numbers; a memory-mapped file is read through once.

    Returns
    -------
    (N,) or (N, m, n) bool array
        True where observed: a value for each slice where none is missing in part, else one for each entry.

    Raises
    ------
    ValueError
        X has not three axes.
    TypeError
        X holds no floating-point numbers, so that NaN cannot stand there.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> x = np.zeros((3, 2, 2))
    >>> x[1] = np.nan
    >>> oc.toolbox.observed_mask(x).tolist()
    [True, False, True]
    """
    tensor = plain_array("X", X, gaps_as_nan=True)
    if tensor.ndim != 3 or not tensor.size:
        raise ValueError(f"X has shape {tensor.shape}; give (N, m, n): an m x n slice for each of N vertices")
    if tensor.dtype.kind != "f":
        raise TypeError(f"X holds {tensor.dtype}, in which nothing marks what is missing: give float32 or float64, or a mask")
    step = max(1, _ENTRIES // tensor[0].size)
    parts = [~np.isnan(tensor[at : at + step]) for at in range(0, len(tensor), step)]
    by_entry: NDArray[np.bool_] = np.concatenate(parts) if len(parts) > 1 else parts[0]
    flat = by_entry.reshape(len(by_entry), -1)
    begun, whole = np.asarray(flat.any(axis=1)), np.asarray(flat.all(axis=1))
    return whole if np.array_equal(begun, whole) else by_entry


def _mask_of(mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A mask by slice or by entry."""
    given = plain_array("mask", mask)
    if given.dtype != np.bool_:
        raise TypeError(f"mask holds {given.dtype}; give bool, True where observed, such as mask.astype(bool)")
    if given.shape not in {shape, shape[:1]}:
        raise ValueError(
            f"mask has shape {given.shape}, but X has {shape}: give ({shape[0]},), a value for each slice, or {shape}, one for "
            "each entry"
        )
    return given


def check_finite(name: str, tensor: NDArray[Any], mask: NDArray[np.bool_], precision: Precision, advice: str) -> float:
    """Raise for what is not finite where ``mask``, or is not once it is stored.

    The largest magnitude there, or something up to :data:`_SAFE` where that is no larger.
    """
    limit = min(float(np.finfo(each).max) for each in (precision.storage, tensor.dtype))
    step = max(1, _ENTRIES // tensor[0].size)

    def look(at: int) -> tuple[float, tuple[int, int, int] | None]:
        part, given = _piece(tensor, mask, at, step)
        with np.errstate(invalid="ignore"):
            most = max(float(part.max()), -float(part.min()))
            if most <= _SAFE:  # which NaN is not, and what is missing may well be
                return most, None
            magnitudes = np.abs(np.where(given, part, 0))
            bad = ~(magnitudes <= limit)
        if not bad.any():
            return float(magnitudes.max()), None
        k, i, j = (int(each) for each in np.argwhere(bad)[0])
        return most, (at + k, i, j)

    largest = 0.0
    for most, found in map_in_threads(look, range(0, len(tensor), step), threads=_THREADS):
        if found is not None:
            value = float(tensor[found])
            held = f"{value:g}" + (f", more than {precision.value} stores" if np.isfinite(value) else "")
            raise NonFiniteTensorError(f"{name}[{', '.join(map(str, found))}]", held, advice)
        largest = max(largest, most)
    return largest


def _mean_of(observed: NDArray[Any], mask: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean of what is observed, a number of the type of storage, and its standard error by the means of slices."""
    k = int(mask.reshape(len(mask), -1).any(axis=1).argmax())
    some = observed[k].reshape(-1)[int(mask[k].argmax())]  # so that the mean of numbers that are all the same is exact
    step = max(1, _ENTRIES // observed[0].size)

    def add(at: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        part, given = _piece(observed, mask, at, step)
        if mask.ndim == 1:  # slices as a whole: the arithmetic behind a mask takes twice as long
            seen = mask[at : at + step]
            with np.errstate(all="ignore"):  # what is missing may be anything
                sums = np.subtract(part, some, dtype=np.float64).sum(axis=(1, 2))
            return np.where(seen, sums, 0.0), np.where(seen, part[0].size, 0)
        away = np.subtract(part, some, out=np.zeros(part.shape), where=given, dtype=np.float64)
        return away.sum(axis=(1, 2)), np.count_nonzero(given, axis=(1, 2))

    parts = list(map_in_threads(add, range(0, len(observed), step), threads=_THREADS))
    sums, counts = (np.concatenate(each) for each in zip(*parts, strict=True))
    mean, of_slices = sums.sum() / counts.sum(), sums[counts > 0] / counts[counts > 0]
    error = of_slices.std(ddof=1) / math.sqrt(len(of_slices)) if len(of_slices) > 1 else 0.0
    return float(observed.dtype.type(some + mean)), float(error)


def _piece(tensor: NDArray[Any], mask: NDArray[np.bool_], at: int, step: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Some slices, and where they are observed."""
    part = tensor[at : at + step]
    return part, mask[at : at + step].reshape(-1, *((1, 1) if mask.ndim == 1 else part.shape[1:]))


def _power_of(tensor: NDArray[Any], mask: NDArray[np.bool_], precision: Precision, most: float) -> int:
    """Power of two by which all is divided, where the largest entry observed asks for it; ``most`` is of :func:`check_finite`."""
    if most <= _SAFE:
        step = max(1, _ENTRIES // tensor[0].size)
        pieces = (_piece(tensor, mask, at, step) for at in range(0, len(tensor), step))
        most = 0.0
        for part, given in pieces:
            with np.errstate(invalid="ignore"):
                most = max(most, float(np.abs(np.where(given, part, 0)).max()))
            if most >= 1 / _SAFE:
                return 0
    if not most:
        return 0
    facts = np.finfo(precision.storage)
    if most < float(facts.tiny) and tensor.dtype != precision.storage:
        raise ValueError(f"the largest entry observed is {most:g}, less than {precision.value} stores; take precision='DDD'")
    if most > float(facts.max) / math.sqrt(tensor.size):
        advice = "scale the tensor, so that the norm of all of it is a finite number"
        raise NonFiniteTensorError("the largest entry observed", f"{most:g}", advice)
    return math.frexp(most)[1]


def _divided(tensor: NDArray[Any], power: int, precision: Precision) -> NDArray[Any]:
    """A copy, divided by ``2**power``."""
    check_room(tensor.size * precision.storage.itemsize, "a copy of X that is scaled", "scale it by a power of two before")
    out = np.empty(tensor.shape, precision.storage)
    step = max(1, _ENTRIES // tensor[0].size)
    for at in range(0, len(tensor), step):
        out[at : at + step] = np.ldexp(tensor[at : at + step], -power)
    return out


def _apart(seen: NDArray[np.bool_]) -> Iterator[str]:
    """Part of a slice, observed at ``seen``, of which nothing tells: rows and columns that no chain of entries joins."""
    for noun, axis in (("row", 1), ("column", 0)):
        if not (begun := seen.any(axis=axis)).all():
            yield named(noun, np.flatnonzero(~begun))
    rows, columns = np.nonzero(seen)
    order, ones = sum(seen.shape), np.ones(len(rows), bool)
    labels = connected_components(coo_array((ones, (rows, len(seen) + columns)), shape=(order, order)), directed=False)[1]
    numbers, sizes = np.unique(labels[rows], return_counts=True)
    for block in np.delete(numbers, sizes.argmax())[:_TOLD]:
        inside = labels[rows] == block
        own, theirs = named("row", np.unique(rows[inside])), named("column", np.unique(columns[inside]))
        yield f"{own} outside of {theirs}, and {theirs} outside of {own},"


def check_order(n_vertices: int, shape: tuple[int, ...]) -> None:
    """Raise where the graph is not that of the tensor."""
    if n_vertices != shape[0]:
        raise ValueError(
            f"the graph has {n_vertices} vertices, but X has {shape[0]} slices (shape {tuple(shape)}): its first axis is over "
            "the vertices of the graph"
        )


def named(noun: str, numbers: NDArray[np.intp]) -> str:
    """Slices, rows or columns in words, not too many of them."""
    some = ", ".join(map(str, numbers[:_NAMED].tolist()))
    rest = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"{noun}{'s' * (len(numbers) != 1)} {some}{rest}"
