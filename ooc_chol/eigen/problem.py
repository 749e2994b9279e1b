"""The matrix of an eigenproblem, whatever it is: what it multiplies with, and where Krylov methods work on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.linalg import LinearOperator

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.report import CallBytes
from ooc_chol.eigen.asked import Sizes
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.elsewhere import AbstractElsewhere, DevicesElsewhere
from ooc_chol.eigen.key import packed_key, product_key
from ooc_chol.eigen.operator_space import OperatorSpace, Product
from ooc_chol.eigen.plan import EigshPlan
from ooc_chol.eigen.planning import Posed, exact_products
from ooc_chol.eigen.powers import scaled_product
from ooc_chol.eigen.report import EigshMoves
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.eigen.traced import ProductTrace
from ooc_chol.errors import NonFiniteError, UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.files.outputs import AnyPath
from ooc_chol.hardware.arrays import device_of
from ooc_chol.kernels.host.blas import blas_threads
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.keeping import host_room, with_kept_blocks
from ooc_chol.sparse.key import blocks_key
from ooc_chol.sparse.multiplier import Multiplier, multiplier_of
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.pack import block_csr
from ooc_chol.sparse.plan import MultiplyPlan
from ooc_chol.sparse.planning import Devices, Known, known_of, packed_operator
from ooc_chol.sparse.sources.others import is_dense, plain_matrix
from ooc_chol.tracing.trace import Trace

#: What would do for what is no matrix.
_ADVICE = (
    "give a sparse matrix, what oc.block_csr or oc.laplacian returns, a file of one, a square array, or a "
    "scipy.sparse.linalg.LinearOperator((n, n), matvec=...)"
)


class AbstractProblem(ABC):
    """A symmetric matrix A, as eigensolvers see it."""

    posed: Posed  #: What plans know of it
    power = 0  #: A is the caller's times this power of two

    @property
    def n(self) -> int:
        """Rows and columns."""
        return self.posed.n

    def keep_blocks(self, plan: EigshPlan, host_budget: int | str | None, stack: ExitStack) -> None:  # noqa: B027 - few have any
        """Let blocks of a file that devices do not keep stay in host memory, as far as there is room; ``stack`` gives it back."""

    @abstractmethod
    def space(self, plan: EigshPlan, stack: ExitStack, *, trace: bool = False) -> AbstractSpace:
        """A space with room for the basis of a plan; ``stack`` closes it."""

    @abstractmethod
    def exact(self, stack: ExitStack, plan: MultiplyPlan | None = None) -> Product:
        """Products in float64, of at most 8 columns at once."""

    def moved(self) -> tuple[CallBytes, EigshMoves] | None:
        """Bytes of exact products until now; None where there were none on devices."""
        return None

    def trace(self) -> Trace | None:
        """Trace of exact products; None where that was not requested, or they are not on devices."""
        return None

    @abstractmethod
    def csc(self) -> csc_array | None:
        """A in float64, to be factored; None where all that is known of it are its products."""

    @abstractmethod
    def key(self) -> dict[str, Any]:
        """Key of the matrix, in an arithmetic key, with a checksum of its contents."""

    @abstractmethod
    def bare_key(self) -> dict[str, Any]:
        """The same without any contents."""

    @abstractmethod
    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """``2^power A``, for numbers whose squares underflow or overflow; ``stack`` closes what it opens."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that compute."""
        return self.posed.machine.names

    @property
    def files(self) -> list[tuple[str, AnyPath | None]]:
        """Files that are read, behind the arguments that name them."""
        return []


@final
class GivenProblem(AbstractProblem):
    """A ``LinearOperator`` or an array, which multiplies on the host by itself."""

    def __init__(
        self, product: Product, posed: Posed, array: NDArray[Any] | None = None, *, records: ProductTrace | None = None
    ) -> None:
        self._product = product if records is None else records.watched(product)
        self.posed, self._array, self._records = posed, array, records

    def space(self, plan: EigshPlan, stack: ExitStack, *, trace: bool = False) -> AbstractSpace:
        """NumPy's arrays; a trace is of products alone."""
        return _host_space(self._product, plan, stack)

    def exact(self, stack: ExitStack, plan: MultiplyPlan | None = None) -> Product:
        """Its own product: it is given float64."""
        return self._product

    def csc(self) -> csc_array | None:
        """Entries of an array that are not zero."""
        return None if self._array is None else csc_array(self._array, dtype=np.float64)

    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """Another array, or the same products between two powers of two."""
        if self._array is None:
            found = GivenProblem(scaled_product(self._product, power), self.posed)
            found._records = self._records
        else:
            found = _of_array(np.ldexp(self._array, power), self.posed.machine, self._records)
        found.power = power
        return found

    def key(self) -> dict[str, Any]:
        """By what it makes of random vectors."""
        return product_key(self._product, self.n, self.posed.dtype)

    def trace(self) -> Trace | None:
        """Products of the caller's operator."""
        return None if self._records is None else self._records.trace(rows=self.n, devices="host:0")

    def bare_key(self) -> dict[str, Any]:
        """Shape and type."""
        return {"shape": [self.n, self.n], "dtype": self.posed.dtype.name}


def _host_space(product: Product, plan: EigshPlan, stack: ExitStack) -> OperatorSpace:
    """The basis of a plan in host memory; ``stack`` closes it."""
    n, precision = plan.problem.n, plan.problem.precision
    what = f"a basis of {plan.capacity * plan.block} vectors of {n} numbers"
    check_room(plan.peak_bytes, what, "give a smaller ncv, or fewer eigenpairs")
    space = OperatorSpace(product, n, block=plan.block, capacity=plan.capacity, precision=precision)
    stack.callback(space.close)
    return space


@final
class PackedProblem(AbstractProblem):
    """A packed matrix, or an operator of one, which is multiplied on devices."""

    def __init__(
        self,
        operator: Operator,
        known: Known,
        machine: Machine,
        *,
        trace: bool = False,
        elsewhere: AbstractElsewhere | None = None,
    ) -> None:
        self._operator, self._is_traced, self._elsewhere = operator, trace, elsewhere
        self._multiplied = operator  # the same, with blocks that are kept
        self.posed = Posed(operator.shape[0], known.dtype, machine, known, there=None if elsewhere is None else elsewhere.devices)
        self._exact: list[Multiplier] = []

    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """Packed once more, in host memory, with the diagonals of the operator."""
        nbytes = 16 * self._operator.matrix.nnz
        check_room(nbytes, f"a copy of A times 2^{power}", f"multiply A by that first, and eigenvalues by 2^{-power}")
        packed = stack.enter_context(block_csr(self._times_power(power).astype(self.posed.dtype)))
        how: dict[str, Any] = {"trace": self._is_traced, "elsewhere": self._elsewhere}
        found = PackedProblem(Operator(packed), known_of(packed), self.posed.machine, **how)
        found.posed = found.posed._replace(why=self.posed.why)
        found.power = power
        return found

    def key(self) -> dict[str, Any]:
        """By all its contents."""
        return packed_key(self._operator)

    def bare_key(self) -> dict[str, Any]:
        """Shape, entries, and which diagonals there are."""
        known = self.posed.known
        assert known is not None
        return blocks_key(known.blocks, known.diagonals)

    @property
    def files(self) -> list[tuple[str, AnyPath | None]]:
        """The packed file."""
        return [("A", self._operator.matrix.path)]

    def keep_blocks(self, plan: EigshPlan, host_budget: int | str | None, stack: ExitStack) -> None:
        products = plan.products if plan.basis is None else plan.basis.products
        if products is not None and self._elsewhere is None:
            room = host_room(host_budget, plan.host_bytes, self.posed.machine)
            self._multiplied = with_kept_blocks(self._operator, products, room, stack)

    def space(self, plan: EigshPlan, stack: ExitStack, *, trace: bool = False) -> AbstractSpace:
        """Vectors on devices, or NumPy's arrays as planned."""
        if plan.is_small:
            stack.enter_context(blas_threads(1))  # of so few numbers several threads wait for each other, and go on spinning
            return _host_space(self._times_power(0).__matmul__, plan, stack)
        if self._elsewhere is not None:
            space = self._elsewhere.space(self._operator, partial(_planned_there, plan))
            stack.callback(space.close)
            return space
        return stack.enter_context(DeviceSpace(self._multiplied, plan.space, trace=trace))

    def exact(self, stack: ExitStack, plan: MultiplyPlan | None = None) -> Product:
        """A multiplier, or what multiplies elsewhere."""
        if self._elsewhere is not None:
            return self._elsewhere.product(self._operator, Precision.DDD, PANEL_COLUMNS[-1])
        planned = plan or exact_products(self.posed)
        assert planned is not None
        self._exact.append(stack.enter_context(multiplier_of(self._multiplied, planned, trace=self._is_traced)))
        return self._exact[-1]

    def moved(self) -> tuple[CallBytes, EigshMoves] | None:
        """Bytes of all multipliers."""
        reports = [each.report for each in self._exact]
        if not reports:
            return None
        planned, executed = Counter[str](), Counter[str]()
        for report in reports:
            planned.update(report.bytes.planned)
            executed.update(report.bytes.executed)
        sums = (sum(getattr(each, name) for each in reports) for name in ("exchanged_bytes", "brought_bytes", "returned_bytes"))
        return CallBytes(dict(planned), dict(executed)), EigshMoves(sum(each.scans for each in reports), *sums)

    def trace(self) -> Trace | None:
        """Records of all multipliers."""
        traces = [found for each in self._exact if (found := each.trace) is not None]
        records = tuple(record for found in traces for record in found.records)
        return Trace(records, metadata=traces[-1].metadata) if traces else None

    def csc(self) -> csc_array:
        """Its blocks, with the diagonals of the operator."""
        return csc_array(self._times_power(0))

    def _times_power(self, power: int) -> csr_array:
        """``2^power A`` in float64."""
        operator = self._operator
        a = csr_array(operator.matrix.tocsr(), dtype=np.float64)
        if power:
            a.data = np.ldexp(a.data, power)
        if operator.right is None and np.all(operator.left == 1.0) and not np.any(operator.shift):
            return a
        a = diags_array(np.broadcast_to(np.asarray(operator.left), self.n)) @ a
        if operator.right is not None:
            a = a @ diags_array(operator.right)
        return csr_array(a + diags_array(np.broadcast_to(np.ldexp(operator.shift, power), self.n)))


def _planned_there(plan: EigshPlan, there: DevicesElsewhere) -> SpacePlan:
    """The basis of a plan on devices of other processes, those that are there."""
    return plan.problem.on(there).space(Sizes(plan.block, plan.capacity - 1), plan.kept_panels or plan.capacity // 2)


class Where(NamedTuple):
    """Where a call computes, and where it keeps A."""

    devices: Devices = None
    memory_budget: int | str | None = None
    packed: AnyPath | None = None
    replace: bool = False
    trace: bool = False
    elsewhere: AbstractElsewhere | None = None


def problem_of(A: Any, where: Where, stack: ExitStack) -> AbstractProblem:
    """The problem that A poses.

    Raises ``TypeError``, ``UnsupportedTypeError``, ``ValueError`` and ``NonFiniteError``.
    """
    given = _given_problem(A, where)
    if given is not None:
        return given
    machine = Machine(where.devices, where.memory_budget)
    operator, known = stack.enter_context(packed_operator(A, where.packed, where.replace))
    check_shape(operator.shape)
    return PackedProblem(operator, known, machine, trace=where.trace, elsewhere=where.elsewhere)


def posed_of(A: Any, where: Where) -> Posed:
    """Facts for plans of A, or of facts of a matrix that need not be there; devices may be elsewhere."""
    given = None if isinstance(A, tuple) else _given_problem(A, where)
    if given is not None:
        return given.posed
    known = known_of(A, where.packed)
    check_shape(known.blocks.shape)
    there = None if where.elsewhere is None else where.elsewhere.devices
    machine = Machine(where.devices, where.memory_budget, must_exist=False)
    return Posed(known.blocks.shape[0], known.dtype, machine, known, there=there)


def _given_problem(A: Any, where: Where) -> GivenProblem | None:
    """The problem of what multiplies by itself; None of what is packed."""
    records = ProductTrace() if where.trace else None
    if isinstance(A, LinearOperator):
        return _of_operator(A, _host_of(where, "a LinearOperator"), records)
    if is_dense(A) and device_of(A) is None:
        return _of_array(A, _host_of(where, "an array"), records)
    if callable(A) and not isinstance(A, BlockCSR | Operator):
        raise TypeError(
            f"A is a {type(A).__name__}, whose size is not known: give scipy.sparse.linalg.LinearOperator((n, n), matvec=A)"
        )
    return None


def _host_of(where: Where, what: str) -> Machine:
    """The host, for what is no sparse matrix, which multiplies there; GPUs are refused."""
    if where.elsewhere is not None:
        raise TypeError(f"client shares out sparse matrices, but {what} multiplies in this process: leave client out")
    machine = Machine("host:0" if where.devices is None else where.devices, where.memory_budget)
    if not machine.kind.is_in_host_memory:
        raise TypeError(
            f"devices is {where.devices!r:.80}, but {what} multiplies on the host: leave devices out, or give a sparse matrix"
        )
    if where.packed is not None:
        raise ValueError(f"packed is the file for a sparse matrix, but A is {what}: leave it out")
    return Machine("host:0", where.memory_budget)


def _of_operator(a: LinearOperator, machine: Machine, records: ProductTrace | None) -> GivenProblem:
    check_shape(a.shape)
    _check_real(a.dtype)

    def product(x: NDArray[Any]) -> NDArray[Any]:
        found = plain_array("A @ x", a.matmat(x))
        if found.dtype.kind in "cmM":
            _check_real(found.dtype)
        return found

    dtype = np.dtype(np.float32 if a.dtype == np.float32 else np.float64)
    return GivenProblem(product, Posed(a.shape[0], dtype, machine), records=records)


def _of_array(given: Any, machine: Machine, records: ProductTrace | None) -> GivenProblem:
    a = plain_matrix(given)
    if a.ndim != 2:
        raise TypeError(f"A is a {type(given).__name__} of {a.ndim} dimensions: {_ADVICE}")
    check_shape(a.shape)
    _check_real(a.dtype)
    if not np.isfinite(a).all():
        row, column = np.argwhere(~np.isfinite(a))[0]
        raise NonFiniteError(int(row), int(column), None)
    dtype = np.dtype(np.float32 if a.dtype.kind == "f" and a.dtype.itemsize <= 4 else np.float64)
    kept = np.ascontiguousarray(a, dtype=dtype)

    @np.errstate(over="ignore", invalid="ignore")  # what is too large for float32 is found where products are read
    def product(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(kept.astype(x.dtype, copy=False) @ x)

    return GivenProblem(product, Posed(len(kept), dtype, machine, is_array=True), kept, records=records)


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` unless a matrix is square and not empty."""
    if len(shape) != 2 or shape[0] != shape[1]:
        text = " x ".join(str(size) for size in shape)
        raise ValueError(f"A is {text}, but only square matrices have eigenvalues: give a symmetric one, or take oc.svds")
    if shape[0] < 1:
        raise ValueError("A is empty, and has no eigenvalues")


def _check_real(dtype: Any) -> None:
    """Raise unless these are real numbers; None, which LinearOperators may have, is a promise of float64."""
    if dtype is None:
        return
    if np.dtype(dtype).kind == "c":
        advice = "give a complex Hermitian matrix as a NumPy array, a SciPy matrix or a LinearOperator of that dtype"
        raise UnsupportedTypeError("eigsh", np.dtype(dtype).name, advice)
    if np.dtype(dtype).kind not in "biuf" or np.dtype(dtype).itemsize > 8:
        raise UnsupportedTypeError("eigsh", np.dtype(dtype).name, "give real numbers up to float64")
