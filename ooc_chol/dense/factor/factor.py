"""The Cholesky factor that the user gets: solves, products, sums over the inverse and updates of a stored factor."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, final

from numpy.typing import ArrayLike

from ooc_chol.calls.progress import progress_reporter
from ooc_chol.dense.factor.certifying import AbstractCertifiedFactor
from ooc_chol.dense.factor.resident import host_array
from ooc_chol.dense.factor.residual import ResidualSample, blocks_worth_a_factorization, sample_residual, source_blocks
from ooc_chol.dense.factor.saving import check_target
from ooc_chol.dense.factor.solves import right_hand_side
from ooc_chol.dense.factor.updating import first_lost_row, store_for, sweep
from ooc_chol.dense.stores.array import OverwriteStore
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.choice import check_not_open, open_kept
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.dense.stores.places import Place, is_file
from ooc_chol.errors import DowndateError, TierError
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources import AbstractSource

if TYPE_CHECKING:
    from ooc_chol.calls.progress import Progress


@final
class CholeskyFactor(AbstractCertifiedFactor):
    """The lower triangular ``L`` with ``A = L @ L.T``, for a complex A ``A = L @ L.H``, wherever it is stored.

    Parameters
    ----------
    grid : TileGrid
        How L is cut into tiles: its order, and that of a tile.
    store : AbstractStore
        Holds every tile of L, complete; the factor closes it.
    arithmetic_key : mapping, or callable that makes one
        Everything that the bits of L depend on, as a JSON object; a callable is asked when somebody asks for it.
    report : FactorReport, or callable that makes one, optional
        Report of the run that made L, to which solves with L add; None for a loaded factor.
    trace : Trace, optional
        Every operation of that run, if it was asked for.
    passes : Passes, optional
        Where solves with L are counted, those of ``report``.
    a : object, optional
        The matrix that was factored, as ``cholesky`` took it, for refined solves.
    solver : DeviceSolver or AbstractPlace, optional
        A device for solves with many right-hand sides or large factors, and for sums over the inverse; or the workers of a
        cluster, for all that reads all of L. Else the host does all.
    files : sequence of path, or callable that makes one
        Files that hold ``a``, or that L lies over, so that the factor is never saved into one of them.
    lower : bool or None
        True if the lower triangle of ``a`` was factored, False if its upper: later methods read the same one. None where that is
        not known: they read the lower one, and warn where a sample of the other differs.

    Raises
    ------
    TypeError, ValueError
        ``arithmetic_key`` holds something that JSON cannot hold; a callable's, once it is asked.

    Notes
    -----
    After a factorization on GPUs these do sums over the inverse, and solves with 32 right-hand sides or more, within the plan's
    budget. Where L lies on them or has 4 GiB they do any solve. All else, and all for a loaded factor, runs on the host.
    Methods read each tile of a file once per triangular sweep, the next tile while the current one computes; they need memory for
    the right-hand sides and two to three tiles. Several threads may call them at once; none may be running while it is closed.
    A factor keeps the matrix that was given to ``cholesky``, for ``solve(b, refine=True)``, as long as it lives.
    """

    def update(
        self, v: ArrayLike, *, store: str | os.PathLike[str] | HostMemory | None = None, overwrite: bool = False
    ) -> CholeskyFactor:
        """The factor of ``A + V @ V.T``, of a complex A ``A + V @ V.conj().T``, far cheaper than factoring that.

        Parameters
        ----------
        v : (n,) or (n, k) array_like
            Vectors that are added; not changed.
        store : path, HostMemory, "device", "host" or None
            Where the new L goes, in this one's type, as for :func:`ooc_chol.cholesky`. None keeps it in host memory, or on the
            GPUs on which this L lies.
        overwrite : bool
            Let the new L take the place of this one, which is closed then. Not for an L in a file or in mixed precision.

        Returns
        -------
        CholeskyFactor
            The new factor, without a ``report``; this one stays as it is unless it was overwritten.

        Raises
        ------
        TypeError, ValueError
            V is no array of finite numbers with ``n`` rows, complex ones for a complex L only, or L cannot be overwritten.
        BudgetError
            There is no memory for a second L.
        TierError
            L cannot be read or written, or the factor is closed. What was overwritten is lost then.

        Notes
        -----
        Cost ``4 n**2 k`` flops on the host, ``36 n**2`` at least, one reading and one writing of L, and memory for a copy of V
        and three tiles. Orthogonal transformations: the new factor is as accurate as one of ``A + V @ V.T``, whatever the
        condition. Of a complex L four times the flops.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> larger = factor.update([2.0, 1.0])
        >>> (larger @ (larger.T @ np.eye(2))).round(12)
        array([[8., 4.],
               [4., 6.]])
        """
        return self._updated(v, store, downdate=False, overwrite=overwrite)

    def downdate(
        self, v: ArrayLike, *, store: str | os.PathLike[str] | HostMemory | None = None, overwrite: bool = False
    ) -> CholeskyFactor:
        """The factor of ``A - V @ V.T``, of a complex A ``A - V @ V.conj().T``: takes away what :meth:`update` adds.

        Parameters
        ----------
        v : (n,) or (n, k) array_like
            Vectors that are taken away; not changed.
        store : path, HostMemory, "device", "host" or None
            Where the new L goes, as for :meth:`update`.
        overwrite : bool
            Let the new L take the place of this one, as for :meth:`update`.

        Returns
        -------
        CholeskyFactor
            The new factor, without a ``report``; this one stays as it is unless it was overwritten.

        Raises
        ------
        DowndateError
            ``A - V @ V.T`` is not positive definite; ``minor`` says where. This factor is as it was.
        TypeError, ValueError, BudgetError, TierError
            As for :meth:`update`.

        Notes
        -----
        Cost as for :meth:`update`; where L is overwritten one more reading and ``n**2 k`` flops, to refuse before anything is
        lost. An orthogonal method, backward stable: the new factor is that of a matrix within some ``u sqrt(A_ii A_jj)`` of
        ``A - V @ V.T``, which may be much beside what is left of A.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> factor = oc.cholesky(np.array([[8.0, 4.0], [4.0, 6.0]]))
        >>> smaller = factor.downdate([2.0, 1.0])
        >>> (smaller @ (smaller.T @ np.eye(2))).round(12)
        array([[4., 2.],
               [2., 5.]])
        """
        return self._updated(v, store, downdate=True, overwrite=overwrite)

    def _updated(self, v: ArrayLike, place: Place, *, downdate: bool, overwrite: bool) -> CholeskyFactor:
        """The factor of ``A + V @ V.T``, or of ``A - V @ V.T``."""
        store = self._opened()
        columns, _ = right_hand_side(host_array(v), self.n, copy=True, fmt=self._fmt)
        changes = [*self.arithmetic_key.get("updates", []), {"rank": columns.shape[1], "sign": -1 if downdate else 1}]
        key = {**self.arithmetic_key, "updates": changes}
        with ExitStack() as owned:
            if overwrite:
                self._check_overwriting(store, place)
                if downdate and (minor := first_lost_row(self.half_solve(columns))):
                    raise DowndateError(minor, (tile := (minor - 1) // self.grid.nb, tile))
                owned.callback(self.close)
                owned.callback(store.discard)
                target = store
            else:
                if is_file(place):
                    check_target(store, place, self._known_files(), replace=False)
                    check_not_open(place, replace=False, ask="saving the new factor (replace=True)", option="store")
                target = store_for(store, place, key, owned)
            with self._passes.running("downdate" if downdate else "update", columns.shape[1]) as run:
                sweep(store, target, columns, downdate=downdate, run=run)
            target.complete()
            owned.pop_all()
        if overwrite:
            self._store, self._dense = None, None  # the new factor has it, and closes it
        over = self._files if isinstance(target, OverwriteStore) else ()
        return CholeskyFactor(self.grid, target, key, solver=self._place.of_updated, files=over, lower=self._lower)

    def _check_overwriting(self, store: AbstractStore, place: object) -> None:
        """Refuse to update in place what must stay as it is."""
        if place is not None:
            raise ValueError("store and overwrite=True are two places for the new L; give one of them")
        if isinstance(store, AbstractKeptStore):
            raise ValueError("an L in a file stays as it is: leave overwrite=True out, and give another file as store=")
        if store.formats is not None:
            raise ValueError("an L in mixed precision cannot be updated in place, in FP64: leave overwrite=True out")
        if len(self._holders) > 1:
            raise ValueError("this L has copies (copy.copy) that would change too: close them, or leave overwrite=True out")

    def residual(self, a: Any, *, blocks: int | None = None, seed: int = 0, progress: Progress = None) -> ResidualSample:
        """Compute ``A - L @ L.T`` on sampled 64 x 64 sub-blocks, far more accurately than L was.

        Parameters
        ----------
        a : array, path, object or callable
            The matrix that was factored, as anything that ``cholesky`` takes; or a function ``a(rows, cols)`` that gives the
            sub-block of two slices. Only the lower triangle counts.
        blocks : int, optional
            Blocks to sample; a matrix with no more is computed as a whole. When not given, 200 from order 7100 on, and below as
            many as take no longer than a factorization on the host, at least 8.
        seed : int
            Seed of the sample.
        progress : bool or callable
            True shows a bar on the standard error stream; a callable receives ``(flops_done, flops_total, seconds)``.

        Returns
        -------
        ResidualSample
            ``max_scaled_over_sqrt_n`` is at most 4 for a factor that is right.

        Raises
        ------
        TypeError, FileNotFoundError
            ``a`` cannot be read as a matrix, see ``cholesky``.
        ValueError
            ``a`` has another shape, or its diagonal is not positive.
        NonFiniteError
            ``a`` holds a NaN or an infinity.
        TierError
            L or ``a`` cannot be read, or ``a`` changes meanwhile, or the factor is closed.

        Notes
        -----
        Per block at most ``50_000 n`` flops and ``1024 n`` bytes read. All cores share the blocks, each with as many bytes of
        memory; ``a`` is read by the calling thread.
        """
        self._opened()
        chosen = blocks_worth_a_factorization(self.n) if blocks is None else blocks
        with progress_reporter(progress, "residual") as report:
            if callable(a) and not isinstance(a, AbstractSource):
                return sample_residual(a, self, blocks=chosen, seed=seed, report=report)
            with self._matrix(a) as source:
                return sample_residual(source_blocks(source), self, blocks=chosen, seed=seed, report=report)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the path of the file: a new factor over it, without ``report`` and ``trace``, closed on its own.

        What is in the file then must be what is in it now: another factor at that path is refused with a ``TierError``.

        Raises
        ------
        TypeError
            The factor is not in a file, or that has another one by now.
        """
        store = self._opened()
        if not isinstance(store, AbstractKeptStore) or not store.is_there():
            raise TypeError(
                "a factor is pickled as the file that it is in, but this one is in none, or that is elsewhere now; "
                "save it with L.save(path), and open it with ooc_chol.load(path) where it is needed"
            )
        return reopened, (store.path, store.identity, self._lower)


def load(path: str | os.PathLike[str], *, lower: bool | None = None) -> CholeskyFactor:
    """Open the factor in a file or a Zarr group, for use in this process; :func:`ooc_chol.load` says the rest."""
    store = open_kept(path)
    return CholeskyFactor(store.grid, store, store.arithmetic_key, lower=lower)


def reopened(path: str, identity: str, lower: bool | None = None) -> CholeskyFactor:
    """Open the file of a factor that was pickled; ``TierError`` if another one has that name now."""
    factor = load(path, lower=lower)
    store = factor._opened()
    if isinstance(store, AbstractKeptStore) and store.identity != identity:
        factor.close()
        raise TierError(f"{path} is another factor than the one that was pickled: save each under its own name, pickle it anew")
    return factor
