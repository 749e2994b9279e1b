"""Singular values of a group of slices, lowered on the current CUDA device; what is decided is decided as on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from ooc_chol.hardware.cuda import captured
from ooc_chol.interfaces import AbstractEvent, AbstractStream, Tile, Turns
from ooc_chol.kernels.cuda.batched_products import BatchedProducts
from ooc_chol.kernels.cuda.eigenpairs import BatchedEigenpairs
from ooc_chol.kernels.cuda.handles import cupy_stream
from ooc_chol.kernels.cuda.tensor_sizes import eigen_routine, group_slices
from ooc_chol.kernels.host.thresholds import AMPLIFIED, DEGREE, LEAST_SHARE, PASSES, TOLERANCES, TURNS, Rule, lowered_square
from ooc_chol.kernels.interfaces.tensors import LANES, PANEL_COLUMNS, PanelSlices, Slices, Svt, TensorShape, subspace_columns
from ooc_chol.precision.triples import Precision

_KERNELS = ("widen", "narrow", "add_up", "orthonormalize", "recur", "shrink", "retain", "definite", "certify")
#: Stages of groups that are captured at most: each takes some memory of the device beside the budget.
_MOST_GRAPHS = 256
#: Flag of a slice whose first try failed for want of accuracy or of a proof, until it has had another.
_FAILED = 1


class CudaThresholds:
    """Gram matrices, eigenpairs and products of one group at a time, in arrays of the workspace."""

    def __init__(
        self, shape: TensorShape, precision: Precision, svt: Svt, parts: dict[str, Tile], products: BatchedProducts, module: Any
    ) -> None:
        self._order, self._is_tall_by_itself = shape.order, shape.rows >= shape.columns
        self._is_tall = self._is_tall_by_itself
        self._tolerance = TOLERANCES[precision.storage.name]
        self._parts, self._products = parts, products
        self._kernels = {name: module.get_function(name) for name in _KERNELS}
        workspace = int(parts["eigen"].data.ptr), int(parts["eigen"].nbytes)
        self._columns = subspace_columns(shape.rows, shape.columns) if svt == "subspace" else 0
        most = group_slices(shape)
        orders = sorted({self._order, *([self._columns] if self._columns else [])})
        #: What enqueues a stage of a group, once it has come again; None after the first time.
        self._graphs: dict[tuple[Any, ...], Callable[[], None] | None] = {}
        #: Flags of a group, read while the rest of its first or second try still runs.
        self._told = np.frombuffer(cp.cuda.alloc_pinned_memory(4 * most), np.int32, most)
        self._eigen = {order: BatchedEigenpairs(order, most, eigen_routine(order), *workspace) for order in orders}

    def close(self) -> None:
        """Give cuSOLVER's handles back."""
        for each in self._eigen.values():
            each.close()
        self._graphs.clear()
        self._parts = {}

    def norms(self, stream: AbstractStream, slices: Slices, out: Tile, joined: Sequence[range]) -> Turns:
        """Enqueue the largest singular value of each slice; the eigenvalues are a function, as in :meth:`lower`."""
        self._is_tall = self._is_tall_by_itself
        with cupy_stream(stream):
            self._gram(stream, slices, joined)
        yield partial(self._largest, stream, len(slices), out)

    def _largest(self, stream: AbstractStream, s: int, out: Tile) -> None:
        """Square roots of the largest eigenvalues of the first Gram matrices."""
        values, info = self._part("values", s), self._part("info", s)
        with cupy_stream(stream):
            self._eigen[self._order].run(stream, self._part("gram", s), values, info, vectors=False)
            cp.maximum(values[:, -1], 0.0, out=out)
            cp.sqrt(out, out=out)
            cp.copyto(out, np.nan, where=info != 0)

    def lower(
        self,
        stream: AbstractStream,
        slices: Slices,
        rule: Rule,
        ranks: Tile,
        flags: Tile,
        basis: Tile | None,
        joined: Sequence[range],
        across: bool,
    ) -> Turns:
        """Enqueue the threshold of a group; with a basis in pieces, between which it becomes known which slices need more.

        The stream is CuPy's current one within each piece alone: between two of them it may be that of another device. The full
        route is a function: for large orders cuSOLVER waits for the device inside.
        """
        s, on = len(slices), cupy_stream(stream)
        self._is_tall = self._is_tall_by_itself and not across
        by_subspace = basis is not None and bool(rule.lam)
        if basis is not None and by_subspace and not joined:
            with on:
                key = "turn", self._is_tall, *_place(slices), _at(basis), *basis.strides
                self._replayed(stream, key, partial(self._gram_and_turn, stream, slices, basis))
        else:
            with on:
                self._gram(stream, slices, joined)
                if by_subspace:
                    self._turn(stream, s, basis)
        yield None  # others are fed while the device has something to do
        if by_subspace:
            with on:
                told = self._by_subspace(stream, s, rule, ranks, flags, basis)
            yield told
            failed = np.flatnonzero(self._told[:s] == _FAILED)
            if len(failed):
                with on:
                    told = self._second_try(stream, failed, rule, ranks, flags, basis)
                yield told
            if len(failed := np.flatnonzero(self._told[:s])):
                yield partial(self._again, stream, failed, rule, ranks, flags, basis)
        elif rule.lam:
            yield partial(self._all_at_once, stream, s, rule, ranks, flags)
        with on:
            if not rule.lam:
                self._count(stream, s, ranks, flags)
                cp.copyto(self._part("made", s), self._part("wide", s))
                cp.copyto(self._part("made", s), np.nan, where=(flags < 0)[:, None, None])
            self._copy("narrow", stream, slices, self._part("made", s))

    def _part(self, name: str, count: int) -> Tile:
        """The first so many of an array of the workspace."""
        return self._parts[name][:count]

    def _gram(self, stream: AbstractStream, slices: Slices, joined: Sequence[range]) -> None:
        """Widen the slices and multiply each by itself; the Gram matrix of a run is the sum of those of its slices."""
        wide, gram = self._part("wide", len(slices)), self._part("gram", len(slices))
        self._copy("widen", stream, slices, wide)
        self._products.multiply(stream, wide, wide, gram, first=self._is_tall, second=not self._is_tall)
        for run in joined:
            gram[run.start : run.stop] = gram[run.start : run.stop].sum(axis=0)

    def _count(self, stream: AbstractStream, s: int, ranks: Tile, flags: Tile) -> None:
        """Ranks alone: nothing is lowered."""
        values, info = self._part("values", s), self._part("info", s)
        self._eigen[self._order].run(stream, self._part("gram", s), values, info, vectors=False)
        self._shrink(stream, values, Rule(0.0, "soft"), ranks, flags)

    def _shrink(self, stream: AbstractStream, values: Tile, rule: Rule, ranks: Tile, flags: Tile) -> None:
        """Factors of all eigenvalues."""
        s, d = values.shape
        info, factors = self._part("info", s), self._part("factors", s)
        arguments = (_at(values), np.int32(d), np.int32(d), *_numbers(rule), _at(info), _at(factors), _at(ranks), _at(flags))
        self._launch("shrink", stream, s, arguments)

    def _all_at_once(self, stream: AbstractStream, s: int, rule: Rule, ranks: Tile, flags: Tile) -> None:
        """The full route for a whole group."""
        with cupy_stream(stream):
            cp.copyto(self._part("vectors", s), self._part("gram", s))
            self._by_all(stream, self._part("wide", s), self._part("made", s), rule, ranks, flags)

    def _by_all(self, stream: AbstractStream, wide: Tile, made: Tile, rule: Rule, ranks: Tile, flags: Tile) -> None:
        """``X V diag(f) V.T`` by all eigenpairs of the first matrices of ``vectors``, whose rows become V.T."""
        s = len(wide)
        vectors, values, scaled = self._part("vectors", s), self._part("values", s), self._part("scaled", s)
        self._eigen[self._order].run(stream, vectors, values, self._part("info", s))
        self._shrink(stream, values, rule, ranks, flags)
        cp.multiply(vectors, self._part("factors", s)[:, :, None], out=scaled)
        filtered = self._parts["filtered"][:s]
        self._products.multiply(stream, vectors, scaled, filtered, first=True)
        left, right = (wide, filtered) if self._is_tall else (filtered, wide)
        self._products.multiply(stream, left, right, made)

    def _replayed(self, stream: AbstractStream, key: tuple[Any, ...], enqueue: Callable[[], None]) -> None:
        """Enqueue kernels; what comes again is captured, so that the thread which feeds all devices hardly sees it."""
        known = self._graphs.get(key)
        if known is None:
            if key in self._graphs:
                on = cupy_stream(stream)
                graph = captured(on, enqueue)
                known = self._graphs[key] = enqueue if graph is None else partial(graph.launch, on)
            elif len(self._graphs) < _MOST_GRAPHS:
                self._graphs[key] = None
        (known or enqueue)()

    def _gram_and_turn(self, stream: AbstractStream, slices: Slices, basis: Tile) -> None:
        """Gram matrices of slices that are not joined, and what follows up to the small eigenproblems."""
        self._gram(stream, slices, ())
        self._turn(stream, len(slices), basis)

    def _turn(self, stream: AbstractStream, s: int, basis: Tile) -> None:
        """The basis turned by G, and the small matrices of Rayleigh-Ritz; rows of ``v`` or ``h``, as :meth:`_turned` says."""
        gram, v, h = self._part("gram", s), self._part("v", s), self._part("h", s)
        cp.copyto(v, basis.transpose(0, 2, 1))
        for _ in range(TURNS):  # V.T = orth(V.T G), rows of v
            self._products.multiply(stream, v, gram, h)
            self._orthonormalize(stream, h)
            v, h = h, v
        self._small(stream, gram, v, h)

    def _turned(self, s: int) -> tuple[Tile, Tile]:
        """Rows as :meth:`_turn` leaves them, and their products with G."""
        v, h = self._part("v", s), self._part("h", s)
        return (h, v) if TURNS % 2 else (v, h)

    def _by_subspace(self, stream: AbstractStream, s: int, rule: Rule, ranks: Tile, flags: Tile, basis: Tile) -> AbstractEvent:
        """Rayleigh-Ritz of the turned basis, the certificate, and the result for all slices that pass it.

        Returns the event behind which flags are known, before the result is.
        """
        self._solve_small(stream, s)
        self._replayed(stream, ("rest", s), partial(self._rest, stream, s))
        told = self._certify(stream, s, rule, ranks, flags, basis)
        self._project(stream, self._part("wide", s), self._part("made", s), self._turned(s)[1])
        return told

    def _rest(self, stream: AbstractStream, s: int) -> None:
        """Ritz vectors, what G is without them, and norms of both."""
        gram, norms, (v, h) = self._part("gram", s), self._parts["norms"], self._turned(s)
        self._ritz(stream, v, h)
        self._without(stream, gram, self._part("found", s), h)
        self._squares(stream, gram, norms[0])
        self._squares(stream, self._part("scaled", s), norms[1])

    def _second_try(
        self, stream: AbstractStream, numbers: Any, rule: Rule, ranks: Tile, flags: Tile, basis: Tile
    ) -> AbstractEvent:
        """The same for some slices, side by side: subspaces are filtered, and a factorization proves that no value is missing."""
        count, chosen = len(numbers), cp.asarray(numbers)
        gram, picked, result = self._part("vectors", count), self._parts["picked"][:count], self._parts["beside"][:count]
        v, h, few = (self._part(name, count) for name in ("v", "h", "few"))
        cp.take(self._parts["gram"], chosen, axis=0, out=gram)
        cp.take(self._parts["wide"], chosen, axis=0, out=picked)
        cp.take(self._parts["turned"], chosen, axis=0, out=v)
        cp.take(self._parts["found"], chosen, axis=0, out=few)
        v, h = self._filtered(stream, gram, few, v, h)
        self._rayleigh_ritz(stream, gram, v, h)
        self._launch("retain", stream, count, (_at(self._parts["found"]), *self._sizes, np.float64(rule.lam), _at(few)))
        self._without(stream, gram, few, h)
        square = np.float64(lowered_square(rule.lam, self._order))
        rest, proved = _at(self._parts["scaled"]), _at(self._parts["proved"])
        self._launch("definite", stream, count, (rest, np.int32(self._order), square, proved))
        told = self._certify(stream, count, rule, ranks, flags, basis, places=chosen)
        self._project(stream, picked, result, h)
        self._parts["made"][chosen] = result  # of slices that failed again: nothing yet
        return told

    def _filtered(self, stream: AbstractStream, gram: Tile, values: Tile, v: Tile, h: Tile) -> tuple[Tile, Tile]:
        """Rows turned as on the host, by Chebyshev's polynomials of G; where they are, and where there is room."""
        product = self._part("product", len(v))
        numbers = np.float64(AMPLIFIED), np.float64(LEAST_SHARE)
        for _ in range(PASSES):
            for step in range(DEGREE):
                self._products.multiply(stream, v, gram, product)
                arguments = (_at(values), _at(product), _at(v), _at(h), *self._sizes, np.int32(step), *numbers)
                self._launch("recur", stream, len(v), arguments)
                v, h = h, v
            self._orthonormalize(stream, v)
        return v, h

    def _orthonormalize(self, stream: AbstractStream, v: Tile) -> None:
        """Rows from the last one on."""
        self._launch("orthonormalize", stream, len(v), (_at(v), *self._sizes))

    def _rayleigh_ritz(self, stream: AbstractStream, gram: Tile, v: Tile, h: Tile) -> None:
        """Rayleigh-Ritz of orthonormal rows: ascending ``found``, vectors as rows of ``turned``, their products with G."""
        self._small(stream, gram, v, h)
        self._solve_small(stream, len(v))
        self._ritz(stream, v, h)

    def _small(self, stream: AbstractStream, gram: Tile, v: Tile, h: Tile) -> None:
        """``h = v G`` and ``small = h v.T``."""
        self._products.multiply(stream, v, gram, h)
        self._products.multiply(stream, h, v, self._part("small", len(v)), second=True)

    def _solve_small(self, stream: AbstractStream, s: int) -> None:
        """Eigenvalues of the small matrices, ascending; their rows become the eigenvectors."""
        self._eigen[self._columns].run(stream, self._part("small", s), self._part("found", s), self._part("info", s))

    def _ritz(self, stream: AbstractStream, v: Tile, h: Tile) -> None:
        """Ritz vectors as rows of ``turned``, and their products with G."""
        s = len(v)
        small = self._part("small", s)
        self._products.multiply(stream, small, v, self._part("turned", s))
        self._products.multiply(stream, small, h, self._part("product", s))

    def _without(self, stream: AbstractStream, gram: Tile, values: Tile, h: Tile) -> None:
        """``scaled = G - sum t v v.T`` for the values given; h is used."""
        turned, scaled = self._part("turned", len(gram)), self._part("scaled", len(gram))
        cp.multiply(turned, values[:, :, None], out=h)
        cp.copyto(scaled, gram)
        self._products.subtract(stream, turned, h, scaled, first=True)

    def _certify(
        self, stream: AbstractStream, s: int, rule: Rule, ranks: Tile, flags: Tile, basis: Tile, places: Tile | None = None
    ) -> AbstractEvent:
        """Factors, ranks, flags and the basis, of the group or in the second try of those at ``places``; flags are read."""
        parts, norms = self._parts, self._parts["norms"]
        pairs = (_at(parts[name]) for name in ("found", "turned", "product", "norms", "info"))
        numbers = np.int32(norms.shape[1]), *self._sizes, *_numbers(rule), np.float64(self._tolerance)
        tries = np.int32(places is not None), _at(parts["proved"]), _at(parts["proved"] if places is None else places)
        self._launch("certify", stream, s, (*pairs, *numbers, *tries, _at(parts["few"]), _at(basis), _at(ranks), _at(flags)))
        on, kind = cupy_stream(stream), cp.cuda.runtime.memcpyDeviceToHost
        cp.cuda.runtime.memcpyAsync(self._told.ctypes.data, _at(flags), flags.nbytes, kind, on.ptr)
        return stream.record()

    def _project(self, stream: AbstractStream, wide: Tile, made: Tile, lowered: Tile) -> None:
        """``X V (f V.T)``, or ``V f (V.T X)`` where slices are wide, with ``lowered`` as room for ``f V.T``."""
        s, v = len(wide), self._part("turned", len(wide))
        cp.multiply(v, self._part("few", s)[:, :, None], out=lowered)
        other = wide.shape[1] if self._is_tall else wide.shape[2]
        projected = self._parts["projected"][:s]
        if self._is_tall:
            self._products.multiply(stream, wide, v, projected, second=True)
            self._products.multiply(stream, projected, lowered, made)
        else:
            across = projected.reshape(s, self._columns, other)
            self._products.multiply(stream, v, wide, across)
            self._products.multiply(stream, lowered, across, made, first=True)

    def _again(self, stream: AbstractStream, numbers: Any, rule: Rule, ranks: Tile, flags: Tile, basis: Tile) -> None:
        """The full route for some slices, side by side, and their leading eigenvectors for the next step."""
        with cupy_stream(stream):
            count, chosen = len(numbers), cp.asarray(numbers)
            picked, result = self._parts["picked"][:count], self._parts["beside"][:count]
            cp.take(self._parts["gram"], chosen, axis=0, out=self._part("vectors", count))
            cp.take(self._parts["wide"], chosen, axis=0, out=picked)
            found, told = cp.empty(count, np.int32), cp.empty(count, np.int32)
            self._by_all(stream, picked, result, rule, found, told)
            self._parts["made"][chosen] = result
            ranks[chosen], flags[chosen] = found, told
            basis[chosen] = self._part("vectors", count)[:, -self._columns :].transpose(0, 2, 1)

    @property
    def _sizes(self) -> tuple[np.int32, np.int32]:
        """Columns c of subspaces and the order d, as kernels take them."""
        return np.int32(self._columns), np.int32(self._order)

    def _squares(self, stream: AbstractStream, matrices: Tile, out: Tile) -> None:
        """Squares of Frobenius norms."""
        count = matrices[0].size
        self._launch("add_up", stream, len(matrices), (_at(matrices), np.int64(count), np.int32(1), _at(out)))

    def _copy(self, name: str, stream: AbstractStream, slices: Slices, wide: Tile) -> None:
        """Copy slices, however they lie, to float64 one behind the other, or back."""
        width = wide[0].size
        if not isinstance(slices, PanelSlices):
            slices = PanelSlices(slices.reshape(-1), len(slices), width, 0, len(slices))
        chunk = min(slices.columns, PANEL_COLUMNS)
        sizes = (np.int64(each) for each in (slices.rows, slices.first, width, slices.columns, chunk))
        self._launch(name, stream, len(slices) * -(-width // chunk), (_at(slices.memory), *sizes, _at(wide)))

    def _launch(self, name: str, stream: AbstractStream, blocks: int, arguments: tuple[Any, ...]) -> None:
        """Thread blocks of :data:`LANES` threads, one for each slice or more."""
        self._kernels[name]((blocks,), (LANES,), arguments, stream=cupy_stream(stream))


def _at(array: Tile) -> int:
    return int(array.data.ptr)


def _place(slices: Slices) -> tuple[int, ...]:
    """Place of slices, which tells them from all others."""
    if isinstance(slices, PanelSlices):
        return _at(slices.memory), slices.rows, slices.columns, slices.first, slices.count
    return _at(slices), len(slices)


def _numbers(rule: Rule) -> tuple[np.float64, np.int32]:
    """A rule as kernels take it."""
    return np.float64(rule.lam), np.int32(rule.shrinkage == "garrote")
