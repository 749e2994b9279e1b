"""Answers of a factor with intervals: one visit of L for random vectors, and one pass over A for all that is asked."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ooc_chol.config import real_number
from ooc_chol.dense.execution.executor import opened_for_a_pass
from ooc_chol.dense.factor.refinement import check_finite
from ooc_chol.dense.factor.resident import host_array, resident_tile
from ooc_chol.dense.factor.solves import column_powers, right_hand_side
from ooc_chol.dense.factor.summed import AbstractSummedFactor
from ooc_chol.dense.matrix_norms import STREAMS, MeasuredTiles, measure_tiles
from ooc_chol.dense.programs.layouts import slot_bytes_of
from ooc_chol.dense.stores.source_tier import SourceTier
from ooc_chol.memory.sources import AbstractSource
from ooc_chol.precision.certified import FAILURE
from ooc_chol.precision.certified_answers import (
    CertifiedAnswers,
    CertifiedSolution,
    CertifiedValue,
    Gap,
    Refined,
    Scales,
    Visit,
    measured_gap,
    quadratic_forms,
    solutions,
    upwards,
)
from ooc_chol.precision.norms import PROBES, Probes
from ooc_chol.tasks.tiling import TileGrid, TileIndex

#: Tiles of the pass over A: on the host where those of L are larger, and on GPUs, where each costs a thread 150 microseconds.
_LARGEST_ON_HOST, _ON_GPUS = 2048, 4096
#: Orders of such tiles from which on two streams have enough of them.
_ENOUGH_TILES = 8
#: Where A is multiplied for a factor that no GPU of this process made.
_HOST = ("host:0",)
_LEAST_NORMAL = float(np.finfo(np.float64).tiny)


class AbstractCertifiedFactor(AbstractSummedFactor):
    """Answers of a factor with intervals; the parameters are those of :class:`~ooc_chol.CholeskyFactor`."""

    def certify(self, b: ArrayLike | None = None, *, a: Any = None, confidence: float = 1.0 - FAILURE) -> CertifiedAnswers:
        """Certify the log-determinant of A, and with right-hand sides their quadratic forms and solutions, in one visit.

        Parameters
        ----------
        b : (n,) or (n, m) array_like, optional
            Right-hand sides; not changed.
        a : array, path, object, optional
            The matrix, for a factor that was loaded or that lies over it; else the one that was factored.
        confidence : float
            Probability that all intervals hold what A itself has, over the choice of random vectors; 1 - 1e-9 unless another is
            given, for narrower ones.

        Returns
        -------
        CertifiedAnswers
            ``logdet``, ``quadratic`` and ``solution``, each with its interval.

        Raises
        ------
        TypeError, ValueError
            ``b`` or ``a`` are wrong, as for :meth:`solve`; or no matrix is known, or ``confidence`` is no probability.
        NonFiniteError
            A holds a NaN or an infinity.
        UnsupportedTypeError
            L is of another type than float64.
        TierError
            L or A cannot be read or changes meanwhile, or the factor is closed.

        Notes
        -----
        Cost ``384 n**2`` flops, one reading of L and one of A; right-hand sides are part of both, and take three more readings of
        L. Memory: 5 KiB a row on the host, 3 KiB a row of each device. GPUs that made L multiply by A where it can be made or
        read there, by as many vectors at a time as ``memory_budget`` holds. Intervals rest on random vectors, and on a model of
        rounding errors: :doc:`/certified`.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> answers = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]])).certify(
        ...     np.array([8.0, 12.0])
        ... )
        >>> answers.quadratic[0].lower <= 32.0 <= answers.quadratic[0].upper
        True
        """
        self._refuse_but_float64("certify")
        if not 0.0 < (failure := 1.0 - real_number(confidence, "confidence")) < 1.0:
            raise ValueError(f"confidence is {confidence!r}, but it must be more than 0 and less than 1, such as 0.99")
        self._opened()
        began = time.perf_counter()
        matrix = self._a if a is None else a
        if matrix is None:
            raise ValueError("an interval needs the matrix, which this factor does not know: give it as a=")
        right, shape = (np.zeros((self.n, 0)), (self.n, 0)) if b is None else right_hand_side(host_array(b), self.n, copy=True)
        if not self.n:
            return _nothing(b, right, shape)
        z = Probes.of(self.n).vectors
        # squares of right-hand sides far from 1, in units of rows, would over- or underflow
        powers = column_powers(right, np.frexp(np.asarray(self.diagonal(), np.float64))[1])
        right = np.ldexp(right, -powers)
        with self._matrix(matrix) as source:
            half = np.asarray(self.half_solve(right)) if right.shape[1] else right
            solved, left = self._checked(np.concatenate([z, half], axis=1))
            measured = self._multiplied_by(source, solved)
        assert measured.product is not None
        grid, m = measured.grid, z.shape[1]
        w, x = solved[:, :m], solved[:, m:]
        scales = Scales(grid, measured.tiles, measured.diagonal)
        visit = Visit(z, w, left[:, :m], measured.product[:, :m])
        gap = measured_gap(visit, scales, self._known_bound, failure)
        quadratic: tuple[CertifiedValue, ...] = ()
        solution = None
        if b is not None:
            found = self._refined_once(scales, right, x, measured.product[:, m:])
            in_rows = column_powers(found.b, np.zeros(self.n, np.intc))
            found = Refined(*(np.ldexp(each, -in_rows) for each in found))
            seconds = time.perf_counter() - began
            quadratic = quadratic_forms(gap, found, powers + in_rows, seconds)
            solution = _solution_of(gap, found, powers + in_rows, shape, seconds)
        logdet = gap.logdet(np.asarray(self.diagonal(), dtype=np.float64), time.perf_counter() - began)
        return CertifiedAnswers(logdet, quadratic, solution)

    @overload
    def quadratic(self, b: ArrayLike, *, certified: Literal[False] = False, a: Any = None) -> float | NDArray[np.float64]: ...

    @overload
    def quadratic(
        self, b: ArrayLike, *, certified: Literal[True], a: Any = None
    ) -> CertifiedValue | tuple[CertifiedValue, ...]: ...

    def quadratic(self, b: ArrayLike, *, certified: bool = False, a: Any = None) -> Any:
        """Compute ``b.T @ inv(A) @ b``.

        Parameters
        ----------
        b : (n,) or (n, m) array_like
            Vectors; not changed.
        certified : bool
            Give an interval that holds what A itself has, whatever the precision of L.
        a : array, path, object, optional
            The matrix, as for :meth:`certify`, which says what an interval costs.

        Returns
        -------
        float or (m,) array; with ``certified`` CertifiedValue or tuple of CertifiedValue
            The forms, one for each column.

        Raises
        ------
        TypeError, ValueError, TierError
            As for :meth:`half_solve`; with ``certified`` also what :meth:`certify` raises.

        Notes
        -----
        Without an interval ``n**2 m`` flops and one reading of L.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]])).quadratic(
        ...     np.array([8.0, 12.0])
        ... )
        32.0
        """
        if certified:
            answers = self.certify(b, a=a).quadratic
            return answers[0] if np.ndim(host_array(b)) == 1 else answers
        y = np.asarray(host_array(self.half_solve(b)))
        forms = np.square(np.abs(y)).sum(axis=0)
        return float(forms) if y.ndim == 1 else forms

    def _can_be_on_gpus(self, source: AbstractSource) -> bool:
        """True where the GPUs that made L can have A."""
        can_be_there = source.bytes_per_entry > 0 or source.is_made_on_cuda
        return self.report is not None and can_be_there and self._place.is_on_devices

    def _grid_of_a(self, source: AbstractSource) -> TileGrid:
        """How A is cut for its product with vectors."""
        if self._can_be_on_gpus(source) and self.n >= _ENOUGH_TILES * _ON_GPUS:
            return TileGrid(self.n, _ON_GPUS)
        return TileGrid(self.n, min(self.grid.nb, _LARGEST_ON_HOST))

    @property
    def _known_bound(self) -> float | None:
        """``||A - L L.T||_F / ||A||_F`` at most, of a factor with a threshold that this process made."""
        bound = None if self.report is None else self.report.certified_bound
        return None if bound is None else float(bound)

    def _checked(self, x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``inv(L.T) x`` in its place, and what ``L.T`` times that leaves of ``x``."""
        store = self._opened()
        if resident_tile(store) is not None:
            solved = np.asarray(self.half_solve(x, transposed=True))
            return solved, x - np.asarray(self.matmul(solved, transposed=True))
        with self._passes.running("half solve", x.shape[1]) as run:
            left = self._place.checked_solve(store, x, run)
        return x, left

    def _multiplied_by(self, source: AbstractSource, factor: NDArray[np.float64]) -> MeasuredTiles:
        """``A @ factor`` and the norms of A's tiles, on the GPUs that made L or on the host."""
        grid = self._grid_of_a(source)
        tier, products = SourceTier(source, grid), list[NDArray[np.float64]]()
        names, width = self._room_for(source, grid)
        for start in range(0, factor.shape[1], width):
            columns = np.ascontiguousarray(factor[:, start : start + width])
            with self._passes.running("product with A", columns.shape[1]) as run, opened_for_a_pass(names, grid) as devices:
                measured = measure_tiles(grid, devices, tier, list(grid.tiles()), factor=columns, run=run)
            assert measured.product is not None
            products.append(measured.product)
        if len(products) > 1:
            measured = replace(measured, product=np.concatenate(products, axis=1))
        for index in np.flatnonzero(~np.isfinite(measured.tiles)).tolist():
            i, j = list(grid.tiles())[index]
            tile = np.empty(grid.shape(i, j))
            source.read_block(grid.span(i), grid.span(j), tile)
            check_finite(grid, TileIndex(i, j), tile)
        return measured

    def _room_for(self, source: AbstractSource, grid: TileGrid) -> tuple[tuple[str, ...], int]:
        """The devices of L's plan where they can have A, else the host; and columns that their budget holds beside tiles."""
        if not self._can_be_on_gpus(source):
            return _HOST, self.n + 2 * PROBES
        left = self.plan.budgets[0].budget_bytes - STREAMS * slot_bytes_of(grid)
        return self.plan.devices, max(1, left // (8 * (1 + STREAMS) * self.n))

    def _refined_once(
        self, scales: Scales, b: NDArray[np.float64], x: NDArray[np.float64], product: NDArray[np.float64]
    ) -> Refined:
        """Residuals, and what a step of refinement adds."""
        r = b - product
        v = np.asarray(self.half_solve(r))
        step = np.asarray(self.half_solve(v, transposed=True))
        both = scales.scaled(x), scales.scaled(step)
        return Refined(scales.scaled(b, inverse=True), both[0], scales.scaled(r, inverse=True), v, both[1])


def _nothing(b: ArrayLike | None, x: NDArray[np.float64], shape: tuple[int, ...]) -> CertifiedAnswers:
    """Answers of the matrix of order 0, which are exact."""
    zero = CertifiedValue(0.0, 0.0, 0.0, 0.0)
    if b is None:
        return CertifiedAnswers(zero, (), None)
    solved, columns = x.reshape(shape), np.zeros(x.shape[1])
    error = 0.0 if len(shape) == 1 else columns
    return CertifiedAnswers(zero, (zero,) * x.shape[1], CertifiedSolution(solved, error, error, solved, 0.0))


def _solution_of(gap: Gap, found: Refined, powers: NDArray[np.intc], shape: tuple[int, ...], seconds: float) -> CertifiedSolution:
    """Refined solutions in the units and the shape of right-hand sides, of which ``found`` has columns without these powers."""
    x, errors, norms, widths, rounding = solutions(gap, found)
    units = powers - gap.scales.powers[:, None]
    with np.errstate(over="ignore", invalid="ignore"):
        x, widths = np.ldexp(x, units).reshape(shape), upwards(widths, units).reshape(shape)
        widths = np.where(np.abs(x) < _LEAST_NORMAL, np.nextafter(widths, np.inf), widths)  # x itself is rounded there
        errors, norms = upwards(errors, powers), np.ldexp(norms, powers)
    is_known = np.isfinite(x)  # of what overflows nothing is
    widths = np.where(is_known, widths, np.inf)
    errors = np.where(is_known.reshape(len(x), -1).all(axis=0), errors, np.inf)
    error, norm = (float(errors[0]), float(norms[0])) if len(shape) == 1 else (errors, norms)
    return CertifiedSolution(x, error, norm, widths, gap.bound, gap.threshold, 1.0 - gap.failure, seconds, rounding)
