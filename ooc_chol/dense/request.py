"""One call of ``cholesky`` or ``plan``: its arguments, checked, and what follows from them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.progress import Progress
from ooc_chol.config import parse_bytes
from ooc_chol.dense.fingerprint import Fingerprint, fingerprint_of
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner import Problem, make_plan
from ooc_chol.dense.planner.file_tier import stays_out_of_cache, without_file_tier
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.planner.problem import SURELY_FREE, format_asked, precision_asked
from ooc_chol.dense.planner.whole import is_for_host, whole_device
from ooc_chol.dense.programs.cost import Rates
from ooc_chol.dense.rates.folders import disk_rates_of
from ooc_chol.dense.rates.lookup import known_rates, rates_for
from ooc_chol.dense.stores.places import ON_DEVICE, Place, is_file
from ooc_chol.files.inputs import check_name
from ooc_chol.files.zarr_names import is_url, is_zarr, local_path
from ooc_chol.formats import COMPLEX128, FP64, PrecisionFormat
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.memory.host_memory import HostMemory
from ooc_chol.memory.sources.base import AbstractSource
from ooc_chol.memory.sources.file import NpySource
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.runtime.passes import Passes
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.tiling import TileGrid

#: Bytes per second between two places in a GPU's memory: three quarters of what an H200 reads and writes.
_DEVICE_RATE = 1.5e12
#: Share of a GPU's budget that an L may take that stays there without being asked to.
_KEPT_SHARE = 0.5
#: Bytes of that budget that go to workspaces and tiles in transit, as a round number.
_WORKSPACE = 256 << 20
#: What is said where a plan or its call has a threshold, and the other has none.
_ONE_IS_MIXED = "one of the plan and the call is in mixed precision: give precision_threshold to both, or to neither"


#: Order of matrices of which the widest is surely free.
_MOST_SMALL = math.isqrt(SURELY_FREE // COMPLEX128.itemsize)


class _Facts(NamedTuple):
    """Facts of A that decide on the place and the device of a small L."""

    n: int
    bytes_per_entry: int
    source: str
    home: str | None
    fmt: PrecisionFormat


class _Small(NamedTuple):
    """Problem and device of a call for a small A."""

    problem: Problem
    device: str | None  #: On which it is factored as one tile; None where it is cut


@lru_cache(maxsize=64)
def _settled_small(facts: _Facts, options: FactorOptions, names: tuple[str, ...] | None) -> _Small:
    """Settle it once for all such calls; ``names`` are the machine's devices, None where the host is taken unasked."""
    machine = Machine(names, must_exist=False)
    problem = Problem(facts.n, facts.bytes_per_entry, facts.source, home=facts.home, fmt=facts.fmt)
    problem = _placed(problem, options, machine, None, overwrite=False)
    return _Small(problem, whole_device(problem, options, machine))


@dataclass(frozen=True)
class Request:
    """Request of a call; nothing in it changes while it runs."""

    a: Any  #: A as it was given
    source: AbstractSource  #: A as it is read
    options: FactorOptions
    machine: Machine  #: The devices of the options, or of the plan
    store: Place = None
    checkpoint: bool = False  #: Whether the unfinished file at ``store`` is kept, and gone on from
    replaces: bool = False  #: Whether whatever file is at ``store`` goes
    overwrite: bool = False
    plan: Plan | None = None  #: A plan to take, in place of one by ``options``
    like: Plan | None = None  #: The plan of a matrix like this one, whose formats are kept where they are wide enough
    progress: Progress = None
    trace: bool = False
    asked: tuple[float, str] | None = None  #: Threshold and rule of the call, also where it is answered in FP64

    def __post_init__(self) -> None:
        if self.like is not None:
            check_order(self.like.grid.n, self.source.n)
            check_thresholds(self.like.asked, precision_asked(self.options))
            _check_call(self.like, self.source, self.options, self.problem)
        if self.plan is not None:
            _check_plan(self.plan, self.source, self.options, self.problem)
            object.__setattr__(self, "plan", self._whole(self.plan))

    @property
    def threshold_asked(self) -> tuple[float, str] | None:
        """Threshold and rule of the call; None where it gave none."""
        return self.asked or precision_asked(self.options)

    @property
    def leaves_precision_open(self) -> bool:
        """True where seconds may decide on FP64 or mixed: nothing narrow, fewest bytes or a checkpoint is asked for."""
        asked = self.options
        return not (self.checkpoint or asked.moduli is not None or asked.half_products or asked.objective == "bytes")

    def in_fp64(self) -> Request:
        """The same call without a threshold, for which FP64 is good enough, and as fast as anything."""
        options = replace(self.options, precision_threshold=None, precision_rule=FactorOptions.precision_rule, half_products=None)
        if self.like is not None and self.like.precision is None and self.like.moduli is None:
            options = replace(
                options, fp64="native" if options.fp64 == "residue" else options.fp64
            )  # it had no room for residues
        return replace(self, options=options, like=None, asked=precision_asked(self.options))

    def _whole(self, plan: Plan) -> Plan:
        """``plan`` for a store that is empty, whatever its own run went on from, and of this call's place."""
        if plan.given:
            return make_plan(self.problem, options_of_plan(plan, self.options), self.rates_at, self.machine)
        plan = without_file_tier(plan, in_file=self.problem.in_file)
        kept = self.problem.kept_on(len(plan.devices))
        return plan if plan.kept_bytes == kept else replace(plan, kept_bytes=kept)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of A."""
        return fingerprint_of(self.source, self.problem.fmt, self.machine.names)

    @cached_property
    def passes(self) -> Passes:
        """Passes beside the factorization, for report and trace."""
        return Passes(is_traced=self.trace)

    @cached_property
    def problem(self) -> Problem:
        """Problem for the planner: A, and where L goes."""
        if self._small is not None:
            return self._small.problem
        problem = Problem.of(self.source, self.options)
        return _placed(problem, self.options, self.machine, self.store, overwrite=self.overwrite, plan=self.plan)

    @property
    def whole_device(self) -> str | None:
        """The device on which the matrix is best factored as one tile; None where it is better cut."""
        if self._small is not None:
            return self._small.device
        return whole_device(self.problem, self.options, self.machine)

    @cached_property
    def _small(self) -> _Small | None:
        """Problem and device of a matrix so small that no free memory is asked for; None for others."""
        source, options = self.source, self.options
        if self.store is not None or self.overwrite or self.plan is not None or options.memory_budget is not None:
            return None
        if source.n > _MOST_SMALL:
            return None
        facts = _Facts(source.n, source.bytes_per_entry, source.name, source.home, format_asked(options, source.dtype))
        return _settled_small(facts, options, None if is_for_host(facts, options) else self.machine.names)

    @property
    def memory(self) -> HostMemory | None:
        """The caller's memory for L; None where it goes elsewhere, or to host memory of its own."""
        return self.store if isinstance(self.store, HostMemory) else None

    def problem_of(self, precision: PrecisionMap | None, *, keeps: bool | None = None) -> Problem:
        """Problem in a map of formats, whose bytes say where an L goes that has no place yet, unless ``keeps`` does."""
        problem = replace(self.problem, precision=precision)
        if keeps is None:
            may_stay = problem.keeps_on_device or problem.may_be_whole
            keeps = may_stay and keeps_on_device(problem, self.options, self.machine, self.store)
        return replace(problem, keeps_on_device=keeps)

    @cached_property
    def _rates(self) -> dict[tuple[bool, TileGrid], Rates | None]:
        """Those that were asked for."""
        return {}

    def rates_at(self, grid: TileGrid) -> Rates | None:
        """Rates for tiles of ``grid``, on the devices and for the store that are asked for."""
        return self.rates_of(self.problem, grid)

    def rates_of(self, problem: Problem, grid: TileGrid) -> Rates | None:
        """The same for a problem of this call whose L may go elsewhere."""
        key = problem.keeps_on_device, grid
        if key not in self._rates:
            self._rates[key] = rates_of_request(problem, self.options, self.machine, self.store, self.source, grid)
        return self._rates[key]


def check_lower(lower: object) -> None:
    """Refuse what does not choose a triangle."""
    if not (lower is None or isinstance(lower, bool)):
        raise TypeError(f"lower is a {type(lower).__name__}; give True for the lower triangle of A, False for its upper one")


def check_overwrite(overwrite: bool, store: Place, threshold: float | None) -> None:
    """Refuse what cannot go together with an L over A."""
    if overwrite and store is not None:
        raise ValueError("store and overwrite=True are two places for L; give one of them")
    if overwrite and threshold is not None:
        raise ValueError("overwrite=True keeps L in FP64 over A, which a failed pivot needs again; leave it or the threshold out")


def check_kind_of_store(store: object) -> None:
    """Refuse what is no place for L."""
    if not (store is None or isinstance(store, str | os.PathLike | HostMemory)):
        raise TypeError(f"store is a {type(store).__name__}; give the path of a file, or a HostMemory")
    if isinstance(store, str | os.PathLike):
        check_name(store, "store")


def _leaves_open(store: Place) -> bool:
    """True where nobody asked for L in a place of its own."""
    return store is None or (isinstance(store, HostMemory) and store.is_spare)


def problem_of_order(n: int, options: FactorOptions, machine: Machine, store: Place, *, overwrite: bool = False) -> Problem:
    """Problem for the planner of an array of order ``n`` that need not be there, and of where L would go."""
    fmt = format_asked(options, FP64.dtype)
    return _placed(Problem(n, fmt.itemsize, "array", fmt=fmt), options, machine, store, overwrite=overwrite)


def _placed(
    problem: Problem, options: FactorOptions, machine: Machine, store: Place, *, overwrite: bool, plan: Plan | None = None
) -> Problem:
    """``problem`` with the place where L goes."""
    in_file = is_file(store)
    has_own = not (in_file or overwrite)
    keeps = has_own and keeps_on_device(problem, options, machine, store, plan)
    return replace(problem, may_be_whole=has_own, keeps_on_device=keeps, in_file=in_file)


def keeps_on_device(problem: Problem, options: FactorOptions, machine: Machine, store: Place, plan: Plan | None = None) -> bool:
    """Tell whether L stays on the GPUs that make it: asked to, or where ``store`` leaves it open and it is half of the budget."""
    if store == ON_DEVICE:
        return True
    if not _leaves_open(store) or options.policy != FactorOptions.policy:
        return False
    if is_for_host(problem, options) or machine.kind.is_in_host_memory:
        return False
    if plan is not None:
        return plan.kept_bytes > 0
    kept = problem.most_kept_on(len(machine.names))
    if options.memory_budget is None and kept <= SURELY_FREE:
        return True
    return kept <= _KEPT_SHARE * (machine.steady_budget_bytes - _WORKSPACE)


def place_of_checkpoint(
    store: Place, checkpoint: str | os.PathLike[str] | bool | None, *, overwrite: bool, policy: str
) -> tuple[Place, bool]:
    """Where L goes, and whether its unfinished file is kept: ``checkpoint`` names the file, or says that ``store`` does."""
    check_kind_of_store(store)
    if checkpoint is None or checkpoint is False:
        return store, False
    if overwrite:
        raise ValueError("overwrite=True keeps L over A, of which nothing is left to go on from; leave it or checkpoint out")
    if policy in ("sync", "async"):
        raise ValueError(
            f"policy {policy!r} stores half-updated tiles, from which no run can go on; take another, or no checkpoint"
        )
    if checkpoint is True:
        if not is_file(store):
            raise ValueError("checkpoint=True goes on from the file that store names: give store=path, or checkpoint=path")
        return store, True
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint is a {type(checkpoint).__name__}; give the path of a file, or True for the one that store names"
        )
    check_name(checkpoint, "checkpoint")
    if store is None:
        return checkpoint, True
    if not is_file(store):
        raise ValueError("a checkpoint is the unfinished file of L: leave store out, and L is in the file that checkpoint names")
    if _place_name(store) != _place_name(checkpoint):
        text = f"store ({os.fspath(store)!r}) and checkpoint ({os.fspath(checkpoint)!r}) are two files for one L"
        raise ValueError(f"{text}: a checkpoint is the unfinished file of L; give one of them, or checkpoint=True")
    return store, True


def _place_name(place: str | os.PathLike[str]) -> str:
    """Equal for two names of one file or group."""
    path = local_path(place) if is_zarr(place) else os.path.realpath(place)
    return os.fspath(place).rstrip("/") if path is None else path


def rates_of_request(
    problem: Problem, options: FactorOptions, machine: Machine, store: Place, source: AbstractSource | None, grid: TileGrid
) -> Rates | None:
    """Measured or nominal rates for tiles of ``grid``, of arrays where there is no ``source``.

    None for several host devices, which share the cores that were measured for one.
    """
    if len(machine.names) > 1 and machine.kind.shares_processor:
        return None
    kind = "file" if is_file(store) else "memory"  # L over A moves as in memory
    fmt = format_asked(options, FP64.dtype if source is None else source.dtype)
    rates = known_rates(grid, "array", kind, machine, fmt) if source is None else rates_for(source, grid, kind, machine, fmt)
    if rates is not None and problem.keeps_on_device:
        return replace(rates, fetch=_DEVICE_RATE, write=_DEVICE_RATE)
    if rates is None or not is_file(store) or is_url(store):  # a disk of this machine has no part in it
        return rates
    if not stays_out_of_cache(options, compulsory_bytes(grid, fmt.itemsize) + (0 if source is None else source.file_bytes)):
        return rates
    files = source.files if source is not None and source.name == NpySource.name else ()
    # A tile that is not all of A is one piece of the file for each of its rows, or columns.
    row_bytes = None if source is None or grid.nb >= source.n else grid.nb * source.bytes_per_entry
    return replace(rates, disk=disk_rates_of(store, files, row_bytes=row_bytes))


def options_of_plan(plan: Plan, options: FactorOptions) -> FactorOptions:
    """The options that a plan stands for, so that all or what is left of its work can be planned anew."""
    return replace(
        options,
        tile_size=plan.grid.nb,
        devices=plan.devices,
        memory_budget=plan.memory_budget,
        policy=plan.policy.name,
        objective=plan.objective,
        fp64="native" if plan.moduli is None else "residue",
        moduli=plan.moduli,
    )


def options_beside(plan: Plan, options: FactorOptions) -> FactorOptions:
    """Options of a call in mixed precision, of which those that are left out are as in ``plan``."""
    names = ("devices", "memory_budget", "policy", "objective", "fp64")
    of_plan = {name: getattr(options_of_plan(plan, options), name) for name in names}
    if not (plan.precision is None and plan.grid.nt == plan.budgets[0].n_slots == 1):  # else it is whole as no order is given
        of_plan["tile_size"] = plan.grid.nb
    if plan.precision is not None and plan.moduli != plan.precision.moduli and plan.moduli is not None:
        of_plan["moduli"] = plan.moduli  # more than its formats need
    left_out = {row.name for row in fields(options) if getattr(options, row.name) == row.default}
    return replace(options, **{name: value for name, value in of_plan.items() if name in left_out})


def _check_plan(plan: Plan, source: AbstractSource, options: FactorOptions, problem: Problem) -> None:
    """Raise ``ValueError`` unless ``plan`` is in FP64, of such a matrix, here, and no option asks for another one."""
    if plan.asked is not None or plan.precision is not None or options.precision_threshold is not None:
        raise ValueError(_ONE_IS_MIXED)
    _check_call(plan, source, options, problem)


def _check_call(plan: Plan, source: AbstractSource, options: FactorOptions, problem: Problem) -> None:
    """Raise ``ValueError`` unless ``plan`` is of such a matrix, here, and no option asks for another one."""
    given = _options_given(options, counts_host=plan.in_file and problem.in_file)
    for name in () if plan.asked is None else _left_by_mixed(plan):
        given.pop(name, None)
    if given.get("memory_budget") == plan.budget_bytes:  # what a whole L takes of the GPU on which it stays is no part of it
        del given["memory_budget"]
    for name, value in given.items():
        if value != (planned := _planned(plan, name)):
            raise ValueError(f"the plan is for {name}={planned!r}, but {value!r} is asked for: leave {name} out, or plan with it")
    if plan.grid.n != source.n or plan.source != source.name:
        raise ValueError(
            f"the plan is of order {plan.grid.n} from a source of kind {plan.source!r}, but the matrix has order {source.n} and "
            f"comes from one of kind {source.name!r}: plan it with oc.plan(A)"
        )
    check_type(plan.fmt, problem.fmt)
    resolve_devices(plan.devices)


def _options_given(options: FactorOptions, *, counts_host: bool) -> dict[str, Any]:
    """The options of planning that a call has beside its plan, each in one form; that of host memory where it ``counts_host``."""
    given = {row.name: value for row in fields(options) if (value := getattr(options, row.name)) != row.default}
    for name in ("strict", "dtype", *(() if counts_host else ("host_budget",))):
        given.pop(name, None)
    if "devices" in given:
        given["devices"] = resolve_devices(options.devices)
    return given | {name: parse_bytes(given[name], name) for name in ("memory_budget", "host_budget") if name in given}


def _left_by_mixed(plan: Plan) -> tuple[str, ...]:
    """Options that the plan of a call with a threshold does not show, or may answer otherwise."""
    others = ("precision_threshold", "precision_rule", "half_products")
    if plan.moduli is not None:
        return others
    # the devices' own arithmetic needs no moduli, and FP64 runs in it where residues have no room
    return (*others, "moduli") if plan.precision is not None else (*others, "moduli", "fp64")


def _planned(plan: Plan, name: str) -> object:
    """The value of an option in a plan in FP64; None for those that FP64 does not have."""
    decided: dict[str, object] = {
        "tile_size": plan.grid.nb,
        "devices": plan.devices,
        "memory_budget": plan.memory_budget,
        "host_budget": plan.host_budget_bytes,
        "policy": plan.policy.name,
        "objective": plan.objective,
        "fp64": "native" if plan.moduli is None else "residue",
        "moduli": plan.moduli,
    }
    return decided.get(name)


def check_order(planned: int, n: int) -> None:
    """Refuse the plan of a matrix of another order."""
    if planned != n:
        raise ValueError(f"the plan is of order {planned}, but the matrix has order {n}: leave plan out")


def check_thresholds(planned: tuple[float, str] | None, asked: tuple[float, str] | None) -> None:
    """Refuse the plan of a call with another ``precision_threshold`` or ``precision_rule``."""
    if planned == asked:
        return
    if planned is None or asked is None:
        raise ValueError(_ONE_IS_MIXED)
    raise ValueError(
        f"the plan is for precision_threshold {planned[0]:g} by the rule {planned[1]!r}, but "
        f"{asked[0]:g} by {asked[1]!r} is asked for: leave plan out"
    )


def check_type(planned: PrecisionFormat, fmt: PrecisionFormat) -> None:
    """Refuse the plan of a factor of another type."""
    if planned != fmt:
        raise ValueError(
            f"the plan is for {planned.dtype}, but {fmt.dtype} is to be computed: give "
            f"dtype={planned.dtype.name!r}, or plan with the type"
        )
