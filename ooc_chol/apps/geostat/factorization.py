"""The one place where the application factors: a matrix from its tile function, out of core, closed and cleaned up afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.accounts import AbstractFactoringPlan, Account
from ooc_chol.apps.geostat.covariances.coincidence import check_places, least_pivot, unfactored
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows
from ooc_chol.apps.geostat.kept_factor import KeptFactor, key_of

#: ``callable(done, total, seconds)``, called while a factorization runs.
FactorProgress = Callable[[int, int, float], None]


#: Why a factor that is there already is not replaced by one that is removed after use: words for the message.
SCRATCH = "and what is kept there is removed at the end"


#: Orders whose factor, some tens of megabytes, is made without asking what is free.
_SURELY_FITS = 2_000


@dataclass(frozen=True, kw_only=True)
class FactorSettings(oc.FactorOptions):
    """How every factorization of a fit or prediction runs: the options of ``ooc_chol.FactorOptions``, and where factors go.

    With a ``precision_threshold`` a fit certifies its log-likelihood, and goes on at smaller ones where it is not known closely.

    Parameters
    ----------
    store : path, optional
        A file that holds the factor while it is needed, in place of memory. It must not exist; it is removed afterwards.
    replace : bool
        Let ``store`` replace whatever file has its name.
    memory : ooc_chol.HostMemory, optional
        Memory that holds one factor after the other, where there is no ``store``; by default L stays on GPUs where it fits there.
    kept : KeptFactor, optional
        Where the last factor stays open, so that the next call for the same matrix does not factor it again; in its memory, and
        not together with a ``store``.
    planned : ooc_chol.Plan, optional
        The plan of an earlier factorization of this order with these settings, see :meth:`reusing`; None where they change. On a
        cluster that of as many workers.
    client : distributed.Client or str, optional
        The Dask cluster that factors, as a client or the address of its scheduler; devices and budgets are those of each worker.
        Factors stay in the workers' memory, and ``store``, ``memory`` and ``host_budget`` are left out.
    account : Account, optional
        Where each factorization is counted, for the report of a call, and traced; a call has one of its own.
    """

    store: Path | None = None
    replace: bool = False
    memory: oc.HostMemory | None = None
    kept: KeptFactor | None = None
    planned: oc.Plan | None = None
    client: Any = None
    account: Account | None = None

    __repr__ = oc.FactorOptions.__repr__

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in (None, "float64"):
            raise ValueError(f"dtype is {self.dtype}, but covariances are made and factored in float64: leave it out")
        if self.kept is not None and (self.store is not None or self.memory not in (None, self.kept.memory)):
            raise ValueError("kept has a factor in its own memory: leave out store and memory")
        if self.client is not None and (self.store is not None or self.memory is not None or self.host_budget is not None):
            raise ValueError("on a cluster factors are in the memory of its workers: leave out store, memory and host_budget")
        if self.store is None:
            return
        if not isinstance(self.store, (str, os.PathLike)):
            raise TypeError(f"store is a {type(self.store).__name__}; give a path, or a HostMemory as memory")
        object.__setattr__(self, "store", Path(self.store))

    def __deepcopy__(self, memo: dict[int, Any]) -> FactorSettings:
        """Copy, for estimators that are cloned: on the same cluster, which is no value, and in the same memory."""
        return replace(self)

    @property
    def here(self) -> dict[str, Any]:
        """Devices and budget of what runs in this process beside factorizations: those of a cluster are its workers'."""
        names = ("devices", "memory_budget")
        return {name: None if self.client is not None else getattr(self, name) for name in names}

    def in_fp64(self) -> FactorSettings:
        """These settings without a threshold, and with as many moduli as FP64 takes.

        Returns
        -------
        FactorSettings
            These themselves where they have no threshold.
        """
        return self.at_threshold(None)

    def at_threshold(self, threshold: float | None) -> FactorSettings:
        """These settings with another threshold, and with as many moduli as that takes.

        Parameters
        ----------
        threshold : float or None
            Share of the norm of the matrix by which rounding may change it; None for FP64.

        Returns
        -------
        FactorSettings
            These themselves where that is their threshold.
        """
        if threshold == self.precision_threshold:
            return self
        return replace(self, precision_threshold=threshold, moduli=None, planned=None)

    def reusing(self, plan: oc.Plan) -> FactorSettings:
        """These settings with a plan that they gave, so that factorizations of the same order are not planned again.

        Parameters
        ----------
        plan : ooc_chol.Plan
            The plan of a factor made with these settings.

        Returns
        -------
        FactorSettings
            With the plan. In mixed precision its formats are kept as long as they are wide enough, and what ended in FP64 begins
            in FP64. On a cluster these settings themselves: a fit goes on there with the workers that are left, for whom the
            plan would not be.
        """
        return self if self.client is not None else replace(self, planned=plan)

    def plan(self, source: Any) -> oc.Plan:
        """Plan the factorization of a matrix that these settings give.

        Parameters
        ----------
        source : int, array, path or source of tiles
            The matrix, such as :func:`covariance_source` makes it, or the order of one that is in memory. Where rates are
            measured, two tiles are made, to see how fast this machine makes them; with a threshold all are, for their norms.

        Returns
        -------
        ooc_chol.Plan
            To be printed; on a cluster that of all its workers.

        Raises
        ------
        BudgetError
            The memory budget does not hold three tiles.
        """
        return oc.plan(source, **self.keywords(), **self._where)

    def refusal(self, source: Any) -> oc.BudgetError | None:
        """Why a matrix cannot be factored here, as the plan and what is free say beforehand.

        Parameters
        ----------
        source : as for :meth:`plan`
            The matrix.

        Returns
        -------
        BudgetError or None
            None where nothing speaks against it; in mixed precision always, where only a factorization tells how much its factor
            takes, and on a cluster, whose plan says what its workers need.
        """
        if self.client is not None or self.precision_threshold is not None:
            return None
        try:
            return self.shortage(self.plan(source))
        except oc.BudgetError as error:
            return error

    def shortage(self, plan: oc.Plan) -> oc.BudgetError | None:
        """Why the factor of a plan has no room here, as what is free says; None where it has, and for small ones."""
        if self.client is not None or plan.grid.n <= _SURELY_FITS or plan.kept_bytes:
            return None
        free, what, advice = _room_of(self, plan)
        return None if plan.stored_bytes <= free else oc.BudgetError(what, plan.stored_bytes, max(0, free), advice)

    def factoring_facts(self, source: Any) -> dict[str, Any]:
        """Facts of the plan of a call that factors matrices such as ``source``, or none where that is None.

        In mixed precision the factorization is planned in FP64, whose room for L is not asked for.
        """
        self.check_store()
        devices = tb.resolve_devices(self.here["devices"])  # a plan may be for those of another machine
        is_mixed = self.precision_threshold is not None
        how = replace(self.in_fp64(), host_budget=None) if is_mixed else self
        factorization, refusal = None, None
        try:
            if source is not None:
                factorization = how.plan(source)
                refusal = None if is_mixed else self.shortage(factorization)
        except oc.BudgetError as error:
            refusal = None if is_mixed else error
        return {
            "devices": devices if factorization is None else tuple(factorization.devices),
            "options": self.keywords(),
            "factorization": factorization,
            "refusal": refusal,
        }

    def planned_by(self, plan: AbstractFactoringPlan | None) -> FactorSettings:
        """These settings with the options of a plan of a call, and its factorization where that is of no matrix in particular.

        Raises
        ------
        ValueError
            An option is given here, and is another one than in the plan.
        """
        if plan is None:
            return self
        given = {name: value for name, value in self.keywords().items() if value != getattr(oc.FactorOptions, name)}
        if other := [name for name, value in given.items() if value != plan.options[name]]:
            raise ValueError(f"plan was made with other settings: {', '.join(other)} differ; plan with these, or leave them out")
        settings = replace(self, **plan.options)
        return settings if plan.factorization is None or plan.is_mixed else settings.reusing(plan.factorization)

    def check_store(self) -> None:
        """Raise ``OutputError`` where the store exists already, and ``MissingFolderError`` where its folder does not."""
        store = tb.Output("store", self.store, tb.FACTOR_FILES, why=SCRATCH)
        tb.check_outputs([store], replace=self.replace, ask="replace=True")

    @property
    def place(self) -> Path | oc.HostMemory | None:
        """Where factors go, as ``ooc_chol.cholesky`` takes it."""
        if self.client is not None:
            return None
        if self.kept is not None and not self.kept.is_lent:
            return self.kept.memory
        return self.memory if self.store is None else self.store

    @property
    def _where(self) -> dict[str, Any]:
        """Where factors are made and kept, as keywords."""
        return {"store": self.place} if self.client is None else {"client": self.client}

    def factor(self, source: Any, progress: FactorProgress | None, trace: bool) -> oc.CholeskyFactor:
        """``ooc_chol.cholesky`` of ``source`` with these settings.

        Parameters
        ----------
        source : array, path or source of tiles
            Symmetric positive definite matrix, as ``ooc_chol.cholesky`` takes it.
        progress : callable or None
            Called with flops done, flops in all and seconds.
        trace : bool
            Record a trace of the factorization.

        Returns
        -------
        CholeskyFactor
            An open factor, which the caller closes.
        """
        how = self.keywords()
        if self.planned is not None and (self.client is not None or self.precision_threshold is not None):
            how["plan"] = self.planned
        elif self.planned is not None:
            how = {"plan": self.planned, "host_budget": self.host_budget}
        how |= {"replace": self.replace, **self._where}
        is_traced = trace or (self.account is not None and self.account.is_traced)
        factor = oc.cholesky(source, progress=progress, trace=is_traced, **how)
        if self.account is not None:
            self.account.add(factor)
        return factor


def chosen_settings(settings: FactorSettings | None) -> FactorSettings:
    """The settings that are given, or the defaults; ``TypeError`` for what is none."""
    if settings is not None and not isinstance(settings, FactorSettings):
        raise TypeError(f"settings is a {type(settings).__name__}; give FactorSettings(...), or None for the defaults")
    return settings or FactorSettings()


def _room_of(settings: FactorSettings, plan: oc.Plan) -> tuple[int, str, str]:
    """Bytes that are free where the factor of a plan goes, what they are of, and what to do for more."""
    if settings.store is not None:
        folder = Path(os.path.realpath(settings.store)).parent
        return shutil.disk_usage(folder).free, f"the disk of {folder} for L", "name a file on another disk (store=, --store)"
    host = next(device for device in oc.devices().devices if device.name.startswith("host"))
    memory = settings.memory if settings.kept is None else settings.kept.memory
    held = 0 if memory is None else memory.nbytes
    arenas = len(plan.devices) * plan.layout.arena_bytes if plan.devices[0].startswith("host") else 0
    return host.free_bytes + held - arenas, "host memory for L", "keep it in a file (store=, --store)"


@contextmanager
def factored(
    model: AbstractCovariance,
    coordinates: NDArray[np.float64],
    settings: FactorSettings,
    *,
    noise: NDArray[np.float64] | None = None,
    rows: Rows | None = None,
    is_solved_with: bool = True,
    progress: FactorProgress | None = None,
    trace: bool = False,
) -> Iterator[oc.CholeskyFactor]:
    """Cholesky factor of the covariance matrix of ``model`` at ``coordinates``, open inside the ``with`` block.

    ``rows`` are what errors call the rows of the matrix; they are sites in the order given where it is left out. Products with
    the factor bear pivots of rounding errors; who solves with it (``is_solved_with``) does not.
    """
    settings.check_store()
    source = covariance_source(model, coordinates, noise)
    named = counted_rows(len(coordinates), "site") if rows is None else rows
    errors = model.nugget + (np.zeros(len(coordinates)) if noise is None else noise)
    check_places(model, coordinates, errors, named)
    kept = None if settings.kept is None or settings.kept.is_lent or trace else settings.kept
    with ExitStack() as owned:
        try:
            if kept is not None:
                key = key_of(model, coordinates, noise, settings.keywords())
                factor = owned.enter_context(kept.lent(key, lambda: settings.factor(source, progress, trace)))
            else:
                factor = owned.enter_context(settings.factor(source, progress, trace))
            if settings.store is not None:
                # The open factor reads it all the same, and a process that is killed leaves nothing that the next would refuse.
                Path(os.path.realpath(settings.store)).unlink(missing_ok=True)
            if is_solved_with:
                _check_pivots(factor, model.site_variances(coordinates), errors)
        except oc.NotPositiveDefiniteError as error:
            raise unfactored(model, coordinates, named, error.minor, "those before it in the matrix") from error
        yield factor


def _check_pivots(factor: oc.CholeskyFactor, variances: NDArray[np.float64], errors: NDArray[np.float64]) -> None:
    """Raise ``NotPositiveDefiniteError`` for the first pivot that is made of rounding errors."""
    least = least_pivot(len(errors)) * variances
    if errors.min() > least.max():
        return  # no pivot is smaller than the error of its observation
    weak = factor.diagonal() ** 2 <= least
    if weak.any():
        raise oc.NotPositiveDefiniteError(int(np.argmax(weak)) + 1, (0, 0))
