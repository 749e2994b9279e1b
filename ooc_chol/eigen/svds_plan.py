"""Plan of singular triplets: the basis in host memory, products with A and its transpose on devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.config import format_bytes
from ooc_chol.display.prints import brief_repr
from ooc_chol.eigen.asked import MOST_DENSE, Sizes, sizes_of
from ooc_chol.eigen.planning import SMALL_COLUMNS
from ooc_chol.errors import BudgetError
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.elsewhere import worker_lines
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, Known, check_plan_of, planned

#: LAPACK takes all n triplets of m x n where k is at least n over the first, and where m n^2 is no more than the second, or than
#: the third where SciPy multiplies.
_MANY, _MOST_PACKED, _MOST_SMALL = 5, 100_000_000, 20_000_000


@dataclass(frozen=True)
class SidePlans:
    """Products with B and with its transpose, each with half of the budget; B is A or its transpose, m >= n."""

    forward: MultiplyPlan
    adjoint: MultiplyPlan

    __repr__ = brief_repr

    @property
    def peak_bytes(self) -> int:
        """Most bytes of both on any device."""
        return self.forward.peak_bytes + self.adjoint.peak_bytes


@dataclass(frozen=True, repr=False)
class SvdsPlan(AbstractPlan):
    """How singular triplets are looked for; it holds no matrix data and no device.

    Its unit is a pass: a product with one panel of B, the one of A and its transpose that has no more columns than rows, and one
    with the transpose of B.

    Parameters
    ----------
    shape : (int, int)
        Shape of A.
    k : int
        Triplets.
    precision : Precision
        Types of vectors, products and sums.
    method : str
        ``"lanczos"``, or ``"dense"`` where the basis would be the whole space.
    sizes : Sizes
        Columns of a panel, and panels of the basis.
    devices : tuple of str
        Names of the devices that take part.
    budget_bytes : int
        Most bytes on each device.
    sides, exact : SidePlans or None
        Products in that precision, and in float64; None where A multiplies by itself.
    packed_bytes : int
        Bytes of host memory that the call packs A and its transpose in.
    cluster : tuple of MultiplyPlan
        Products with B and with its transpose on the workers of a cluster, where there is one.
    why : str
        Why it is the host, in a clause, where no device was named and no GPU is to be used.
    """

    call: ClassVar[str] = "svds"
    unit: ClassVar[str] = "pass"

    shape: tuple[int, int]
    k: int
    precision: Precision
    method: str
    sizes: Sizes
    devices: tuple[str, ...]
    budget_bytes: int
    sides: SidePlans | None = None
    exact: SidePlans | None = None
    packed_bytes: int = 0
    cluster: tuple[MultiplyPlan, ...] = ()
    why: str = ""

    @property
    def is_small(self) -> bool:
        """True if SciPy multiplies a matrix that was packed."""
        return self.sides is None and self.packed_bytes > 0

    @property
    def squared(self) -> str:
        """The square that is worked on, the smaller one: ``"A.T A"`` or ``"A A.T"``; ``"none"`` where LAPACK takes all of A."""
        return "none" if self.method == "dense" else "A.T A" if self.shape[0] >= self.shape[1] else "A A.T"

    @property
    def block(self) -> int:
        """Columns of a panel."""
        return self.sizes.block

    @property
    def ncv(self) -> int:
        """Columns of the basis."""
        return self.sizes.columns

    @property
    def basis_numbers(self) -> int:
        """Numbers of the basis, or of all of A as a dense matrix."""
        return self.shape[0] * self.shape[1] if self.method == "dense" else self.ncv * min(self.shape)

    @property
    def basis_bytes(self) -> int:
        """Bytes of the basis, or of all of A as a dense matrix and of its triplets."""
        if self.method == "dense":
            return 3 * 8 * self.shape[0] * self.shape[1]
        return (self.ncv + 2 * self.block) * min(self.shape) * self.precision.storage.itemsize

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        if self.sides is None or self.exact is None:
            return self.basis_bytes
        return max(self.sides.peak_bytes, self.exact.peak_bytes)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory for the triplets, for what is packed, and for the basis of a packed A."""
        triplets = 8 * self.k * sum(self.shape)
        return triplets + self.packed_bytes + (0 if self.sides is None else self.basis_bytes)

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes of blocks over each link in the first pass."""
        if self.sides is None:
            return {}
        return dict(Counter(self.sides.forward.bytes) + Counter(self.sides.adjoint.bytes))

    @property
    def seconds(self) -> float | None:
        """None: vectors are orthogonalized on the host, whose rates for that are not measured."""
        return None

    def figures(self) -> Mapping[str, object]:
        """The problem, the method and the basis."""
        return {
            "shape": list(self.shape),
            "k": self.k,
            "precision": self.precision.value,
            "method": self.method,
            "squared": self.squared,
            "block": self.block,
            "ncv": self.ncv,
            "basis_bytes": self.basis_bytes,
            "packed_bytes": self.packed_bytes,
            "why_devices": self.why,
        }

    def facts(self) -> Mapping[str, object]:
        """The problem, the method and the basis."""
        facts: dict[str, object] = {"shape": self.shape, "k": self.k, "precision": self.precision.value, "method": self.method}
        return facts | {"ncv": self.ncv, "block": self.block, "devices": self.devices, "peak": format_bytes(self.peak_bytes)}

    def lines(self) -> Iterator[Line]:
        """The method, memory, and what moves."""
        rows, columns = self.shape
        triplets = f"{self.k} singular triplet{'s' * (self.k != 1)}"
        yield "", f"Plan: {triplets} of a {rows} x {columns} matrix in {self.precision.value}"
        if self.method == "dense":
            yield "method", f"LAPACK, all {min(rows, columns)} triplets"
        else:
            yield "method", f"block Lanczos on {self.squared}, blocks of {self.block}, basis of {self.ncv} columns"
        if self.why:
            yield "devices", f"{', '.join(self.devices)}, {self.why}"
        for side in self.cluster:
            yield from worker_lines(side)
        if not self.cluster:
            where = f"{format_bytes(self.budget_bytes)} on each of {', '.join(self.devices)}"
            yield "memory", f"{format_bytes(self.peak_bytes)} of {where}"
            for link, nbytes in self.bytes.items():
                yield "moves", f"{link}: {format_bytes(nbytes)} the first pass"
        yield "host", f"{format_bytes(self.host_bytes)} of host memory, {format_bytes(self.basis_bytes)} of the basis among it"
        yield "passes", "unknown: they depend on the singular values; the report counts them"


def _is_for_lapack(shape: tuple[int, int], k: int, most: int) -> bool:
    """Tell whether all triplets by LAPACK are predicted to take no more time than some by Lanczos, on the host."""
    m, n = max(shape), min(shape)
    return 8 * m * n <= MOST_DENSE and (_MANY * k >= n or m * n * n <= most)


def plan_triplets(
    shape: tuple[int, int],
    k: int,
    precision: Precision,
    machine: Machine,
    known: tuple[Known, Known] | None,
    *,
    ncv: int | None = None,
    block: int | None = None,
    is_open: bool = False,
    small: Known | None = None,
    why: str = "",
) -> SvdsPlan:
    """The plan for B and its transpose, or for an A that multiplies by itself, on the host.

    ``is_open`` lets LAPACK take all triplets where that is predicted to be faster; ``small`` is an A that SciPy multiplies, and
    ``why`` tells why it does.

    Raises ``BudgetError`` and ``ValueError``.
    """
    n = min(shape)
    if k > n:
        raise ValueError(f"k is {k}, but the smaller side of A is {n}: ask for at most {n}")
    # Passes over A cost more than columns do from files, and on GPUs.
    is_cheap = known is None or (machine.kind.is_in_host_memory and all(each.tier == "memory" for each in known))
    ncv = ncv if small is None else k + SMALL_COLUMNS
    sizes, widest = sizes_of(ncv, block, k, n), 2 if is_cheap else 8
    if block is None and sizes.block > widest:
        sizes = sizes_of(ncv, widest, k, n)
    is_dense = is_open and is_cheap and _is_for_lapack(shape, k, _MOST_SMALL if small else _MOST_PACKED if known else 0)
    is_dense = is_dense and 3 * 8 * shape[0] * shape[1] <= machine.budget_bytes
    method = "dense" if is_dense or sizes.columns + sizes.block > n else "lanczos"
    if known is None:
        unpacked = 0 if small is None else small.packed_bytes + 16 * small.blocks.n_entries
        plan = SvdsPlan(shape, k, precision, method, sizes, ("host:0",), machine.budget_bytes, packed_bytes=unpacked, why=why)
    else:
        sides, exact = (_sides(known, sizes.block, each, machine) for each in (precision, Precision.DDD))
        devices = max((sides.forward.devices, sides.adjoint.devices), key=len)
        packed = sum(each.packed_bytes for each in known)
        plan = SvdsPlan(shape, k, precision, method, sizes, devices, machine.budget_bytes, sides, exact, packed)
    if plan.peak_bytes > plan.budget_bytes:
        advice = "give a larger one, or ask for fewer triplets (k), or a smaller ncv"
        raise BudgetError(f"memory_budget of {plan.devices[0]}", plan.peak_bytes, plan.budget_bytes, advice)
    return plan


def _sides(known: tuple[Known, Known], block: int, precision: Precision, machine: Machine) -> SidePlans:
    """Products with both, each with half of the budget; the error says what both need."""
    plans, errors = [], []
    for each in known:
        try:
            plans.append(planned(each, block, precision, machine, budget_bytes=machine.budget_bytes // 2))
        except BudgetError as error:
            errors.append(error)
    if errors:
        worst = max(errors, key=lambda error: error.needed_bytes)
        what = f"memory_budget, of which A and its transpose have half each: {worst.what}"
        raise BudgetError(what, 2 * worst.needed_bytes, machine.budget_bytes, worst.advice)
    return SidePlans(*plans)


def check_plan(
    plan: SvdsPlan,
    shape: tuple[int, int],
    k: int,
    precision: Precision,
    known: tuple[Known, Known] | None,
    *,
    ncv: int | None,
    block: int | None,
    devices: Devices,
) -> None:
    """Raise ``ValueError`` unless a plan is of such a call."""
    if devices is not None and not set(plan.devices) <= set(Machine(devices).names):
        raise ValueError(f"the plan is for {', '.join(plan.devices)}, but devices is {devices!r:.80}: leave one of them out")
    asked: dict[str, tuple[object, object]] = {"shape": (plan.shape, shape), "k": (plan.k, k)}
    asked["precision"] = plan.precision.value, precision.value
    asked |= {} if block is None else {"block": (plan.block, block)}
    asked |= {} if ncv is None else {"ncv": (plan.ncv, -(-ncv // plan.block) * plan.block)}
    for name, (one, other) in asked.items():
        if one != other:
            raise ValueError(f"the plan is of another problem, {name}: {one} there, {other} here; leave plan out, or plan again")
    if (plan.sides is None) != (known is None):
        raise ValueError("the plan is of a packed matrix, or A is one, but not both: leave plan out, or plan again")
    if plan.sides is not None and known is not None:
        for side, each in zip((plan.sides.forward, plan.sides.adjoint), known, strict=True):
            check_plan_of(side, each, plan.block, precision)
