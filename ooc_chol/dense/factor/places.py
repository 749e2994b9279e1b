"""Where a factor computes: in this process, on its threads or its GPUs, or on the workers of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.dense.factor.conditioning import row_norms
from ooc_chol.dense.factor.device_sweeps import DeviceSolver
from ooc_chol.dense.factor.host_sweeps import HostSolver
from ooc_chol.dense.factor.inverse import inverse_diagonal, inverse_panels, panel_width
from ooc_chol.dense.factor.solves import multiply, multiply_on_device, solve, solve_there_and_back
from ooc_chol.dense.factor.sweeps import AbstractSolver
from ooc_chol.dense.factor.trace_sums import HalfSolveSums, InverseTraces, half_solve_sums, inverse_traces
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.memory.sources.function import FunctionSource
from ooc_chol.runtime.passes import Pass, Passes


class AbstractPlace(ABC):
    """Interface to all of L, on whole right-hand sides that are checked and of the type of L.

    All else that a factor answers reads single tiles of its store.
    """

    @property
    @abstractmethod
    def is_quick_to_read(self) -> bool:
        """True if a reading of L takes little beside its factorization, so that a first solve may look how A is conditioned."""

    @property
    @abstractmethod
    def of_updated(self) -> AbstractPlace:
        """Where a factor computes that :meth:`ooc_chol.CholeskyFactor.update` makes of this one."""

    @property
    def is_on_devices(self) -> bool:
        """True where GPUs of this process made L and answer for it."""
        return False

    def distributed(self, title: str, b: Any, transposed: Sequence[bool], *, flips: bool, passes: Passes) -> Any:
        """Solutions as an array of the kind of ``b`` where that lies on a cluster; None for what this process holds.

        ``flips`` solves with the conjugates of the systems.
        """
        return None

    @abstractmethod
    def diagonal(self, store: AbstractStore) -> NDArray[Any]:
        """The diagonal of L, real."""

    @abstractmethod
    def row_norms(self, store: AbstractStore, run: Pass) -> NDArray[np.float64]:
        """Norms of the rows of L."""

    @abstractmethod
    def solve(self, store: AbstractStore, x: NDArray[Any], *, transposed: Sequence[bool], run: Pass) -> None:
        """Solve ``L y = x``, or with the adjoint of L, one after the other, in place of ``x``."""

    def checked_solve(self, store: AbstractStore, x: NDArray[Any], run: Pass) -> NDArray[Any]:
        """Solve ``L.H y = x`` in place of ``x``, and give ``x - L.H y``."""
        before = x.copy()
        self.solve(store, x, transposed=(True,), run=run)
        before -= self.multiply(store, x, run, transposed=True)
        return before

    @abstractmethod
    def goes_there_and_back(self, store: AbstractStore, columns: int) -> bool:
        """Tell whether :meth:`there_and_back` is for so many columns; else two solves are."""

    @abstractmethod
    def there_and_back(self, store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass) -> None:
        """Solve ``L y = y`` in place, then ``L.H x = [y, x]``, where the first columns of ``x`` are room for ``y``."""

    @abstractmethod
    def multiply(self, store: AbstractStore, z: NDArray[Any], run: Pass, *, transposed: bool) -> NDArray[Any]:
        """Multiply ``L @ z``, or ``L.H @ z``."""

    @abstractmethod
    def inverse_panels(
        self, store: AbstractStore, width: int | None, passes: Passes
    ) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
        """Panels ``inv(A)[j0:, j0:j1]``, one after the other."""

    @abstractmethod
    def inverse_diagonal(self, store: AbstractStore, width: int | None, run: Pass) -> NDArray[np.float64]:
        """The diagonal of ``inv(A)``."""

    @abstractmethod
    def inverse_traces(
        self, store: AbstractStore, matrices: Sequence[FunctionSource], *, vectors: NDArray[np.float64], run: Pass
    ) -> InverseTraces:
        """``tr(inv(A) @ D)``, and ``v' @ D @ v`` of vectors."""

    @abstractmethod
    def half_solve_sums(
        self,
        store: AbstractStore,
        matrix: FunctionSource,
        columns: range,
        *,
        vectors: NDArray[np.float64],
        width: int | None,
        run: Pass,
    ) -> HalfSolveSums:
        """Sums over ``inv(L) @ B`` of columns of a matrix."""


@final
@dataclass(frozen=True)
class LocalPlace(AbstractPlace):
    """The calling process: its threads, and for what is worth it the GPUs that factored."""

    solver: DeviceSolver | None = None  #: Solves on these GPUs; None where the host does all

    @property
    def is_quick_to_read(self) -> bool:
        """On the host only: its reading may take longer than a factorization on GPUs."""
        return self.solver is None

    @property
    def is_on_devices(self) -> bool:
        """True where there is a solver."""
        return self.solver is not None

    @property
    def of_updated(self) -> AbstractPlace:
        """The same."""
        return self

    def diagonal(self, store: AbstractStore) -> NDArray[Any]:
        """One diagonal tile after the other."""
        grid = store.grid
        diagonal = np.empty(grid.n, store.fmt.real_dtype)
        for k in range(grid.nt):
            store.read_diagonal(k, diagonal[grid.start(k) :][: grid.size(k)])
        return diagonal

    def row_norms(self, store: AbstractStore, run: Pass) -> NDArray[np.float64]:
        """On the host."""
        return row_norms(store, run)

    def solve(self, store: AbstractStore, x: NDArray[Any], *, transposed: Sequence[bool], run: Pass) -> None:
        """On the GPUs where so many columns are for them."""
        solve(self._solver_for(store, x), store, x, transposed=transposed, run=run)

    def checked_solve(self, store: AbstractStore, x: NDArray[Any], run: Pass) -> NDArray[Any]:
        """Block by block, as each is solved for."""
        left = np.empty_like(x)
        solve(self._solver_for(store, x), store, x, transposed=(True,), run=run, left=left)
        return left

    def goes_there_and_back(self, store: AbstractStore, columns: int) -> bool:
        """On GPUs, which keep tiles from one solve to the next."""
        return self.solver is not None and self.solver.takes(store, columns)

    def there_and_back(self, store: AbstractStore, y: NDArray[Any], x: NDArray[Any], run: Pass) -> None:
        """In one visit of the GPUs."""
        solve_there_and_back(self._solver(), store, y, x, run)

    def multiply(self, store: AbstractStore, z: NDArray[Any], run: Pass, *, transposed: bool) -> NDArray[Any]:
        """On a GPU where L lies on one."""
        if self.solver is not None and store.devices:
            return multiply_on_device(self.solver, store, z, run, transposed=transposed)
        return multiply(store, z, run, transposed=transposed)

    def inverse_panels(
        self, store: AbstractStore, width: int | None, passes: Passes
    ) -> Generator[tuple[range, NDArray[np.float64]], None, None]:
        """On the host, where the caller wants them."""
        return inverse_panels(HostSolver(), store, panel_width(store.grid, width), passes)

    def inverse_diagonal(self, store: AbstractStore, width: int | None, run: Pass) -> NDArray[np.float64]:
        """On the GPUs, where there are some."""
        return inverse_diagonal(self._solver(), store, width, run)

    def inverse_traces(
        self, store: AbstractStore, matrices: Sequence[FunctionSource], *, vectors: NDArray[np.float64], run: Pass
    ) -> InverseTraces:
        """On the GPUs, where all matrices can be made there."""
        solver = self._solver(on_device=all(matrix.is_made_on_cuda for matrix in matrices))
        return inverse_traces(solver, store, matrices, vectors=vectors, run=run)

    def half_solve_sums(
        self,
        store: AbstractStore,
        matrix: FunctionSource,
        columns: range,
        *,
        vectors: NDArray[np.float64],
        width: int | None,
        run: Pass,
    ) -> HalfSolveSums:
        """On the GPUs, where the matrix can be made there."""
        solver = self._solver(on_device=matrix.is_made_on_cuda)
        return half_solve_sums(solver, store, matrix, columns, vectors=vectors, width=width, run=run)

    def _solver_for(self, store: AbstractStore, x: NDArray[Any]) -> AbstractSolver:
        """The GPUs, where so many columns are for them; else the host."""
        return self._solver(on_device=self.solver is not None and self.solver.takes(store, x.shape[1]))

    def _solver(self, *, on_device: bool = True) -> AbstractSolver:
        """The GPUs, where there are some and this may be there; else the host."""
        return self.solver if self.solver is not None and on_device else HostSolver()
