"""The matrix of an eigenproblem, whatever it is: what it multiplies with, and where Krylov methods work on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, diags_array
from scipy.sparse.linalg import LinearOperator

from ooc_chol.eigen.asked import Sizes, sizes_of
from ooc_chol.eigen.device_space import DeviceSpace
from ooc_chol.eigen.key import packed_key, product_key
from ooc_chol.eigen.operator_space import OperatorSpace, Product
from ooc_chol.eigen.plan import EigshPlan, EigshProblem
from ooc_chol.eigen.planning import planned_eigsh
from ooc_chol.eigen.powers import scaled_product
from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.space_plan import SpacePlan
from ooc_chol.eigen.wanted import Wanted
from ooc_chol.errors import NonFiniteError, UnsupportedTypeError
from ooc_chol.files.inputs import plain_array
from ooc_chol.files.outputs import AnyPath
from ooc_chol.hardware.arrays import device_of
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision
from ooc_chol.process.address_space import check_room
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.multiplier import Store, multiplier
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.pack import block_csr
from ooc_chol.sparse.planning import Devices, diagonals_of

#: Columns of a panel where a LinearOperator or an array multiplies: many multiply a column at a time, and wider panels need fewer
#: products but more columns.
_HOST_BLOCK = 2
#: What would do for what is no matrix.
_ADVICE = (
    "give a sparse matrix, what oc.block_csr or oc.laplacian returns, a file of one, a square array, or a "
    "scipy.sparse.linalg.LinearOperator((n, n), matvec=...)"
)


class Layout(NamedTuple):
    """How large a basis is, and what devices hold."""

    sizes: Sizes
    plan: EigshPlan | None  #: None on the host, where A multiplies by itself


class AbstractProblem(ABC):
    """A symmetric matrix A, as eigensolvers see it."""

    n: int  #: Rows and columns
    dtype: np.dtype[Any]  #: float32 or float64: type of its entries, or of what it returns
    power = 0  #: A is the caller's times this power of two

    @abstractmethod
    def layout(self, wanted: Wanted, precision: Precision, ncv: int | None, block: int | None) -> Layout | None:
        """How large the basis is, by what the caller asked and memory holds; None where it would be the whole space."""

    @abstractmethod
    def space(
        self,
        block: int,
        capacity: int,
        precision: Precision,
        stack: ExitStack,
        *,
        plan: SpacePlan | None = None,
        trace: bool = False,
    ) -> AbstractSpace:
        """A space with room for a basis, laid out as planned where there is a plan; ``stack`` closes it."""

    @abstractmethod
    def exact(self, stack: ExitStack) -> Product:
        """Products in float64, of at most 8 columns at once."""

    @abstractmethod
    def csc(self) -> csc_array | None:
        """A in float64, to be factored; None where all that is known of it are its products."""

    @abstractmethod
    def key(self) -> dict[str, Any]:
        """Key of the matrix, in an arithmetic key."""

    @abstractmethod
    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """``2^power A``, for numbers whose squares underflow or overflow; ``stack`` closes what it opens."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that compute."""
        return ("host:0",)

    @property
    def files(self) -> list[tuple[str, AnyPath | None]]:
        """Files that are read, behind the arguments that name them."""
        return []


@final
class GivenProblem(AbstractProblem):
    """A ``LinearOperator`` or an array, which multiplies on the host by itself."""

    def __init__(self, product: Product, n: int, dtype: np.dtype[Any], array: NDArray[Any] | None = None) -> None:
        self._product, self.n, self.dtype, self._array = product, n, dtype, array

    def layout(self, wanted: Wanted, precision: Precision, ncv: int | None, block: int | None) -> Layout | None:
        """By what the caller asked: memory of the host is not planned."""
        sizes = sizes_of(ncv, block, wanted.k, self.n, usual_block=_HOST_BLOCK)
        return None if sizes.columns + sizes.block > self.n else Layout(sizes, None)

    def space(
        self,
        block: int,
        capacity: int,
        precision: Precision,
        stack: ExitStack,
        *,
        plan: SpacePlan | None = None,
        trace: bool = False,
    ) -> AbstractSpace:
        """NumPy's arrays, of which there is no trace."""
        nbytes = (capacity + 1) * block * self.n * precision.storage.itemsize
        check_room(
            nbytes, f"a basis of {capacity * block} vectors of {self.n} numbers", "give a smaller ncv, or fewer eigenpairs"
        )
        space = OperatorSpace(self._product, self.n, block=block, capacity=capacity, precision=precision)
        stack.callback(space.close)
        return space

    def exact(self, stack: ExitStack) -> Product:
        """Its own product: it is given float64."""
        return self._product

    def csc(self) -> csc_array | None:
        """Entries of an array that are not zero."""
        return None if self._array is None else csc_array(self._array, dtype=np.float64)

    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """Another array, or the same products between two powers of two."""
        if self._array is None:
            found = GivenProblem(scaled_product(self._product, power), self.n, self.dtype)
        else:
            found = _of_array(np.ldexp(self._array, power))
        found.power = power
        return found

    def key(self) -> dict[str, Any]:
        """By what it makes of random vectors."""
        return product_key(self._product, self.n, self.dtype)


@final
class PackedProblem(AbstractProblem):
    """A packed matrix, or an operator of one, which is multiplied on devices."""

    def __init__(self, operator: Operator, devices: Devices, memory_budget: int | str | None) -> None:
        self._operator, self._memory_budget = operator, memory_budget
        self._names = resolve_devices(devices)
        self.n, self.dtype = operator.shape[0], operator.matrix.dtype

    def scaled(self, power: int, stack: ExitStack) -> AbstractProblem:
        """Packed once more, in host memory, with the diagonals of the operator."""
        nbytes = 16 * self._operator.matrix.nnz
        check_room(nbytes, f"a copy of A times 2^{power}", f"multiply A by that first, and eigenvalues by 2^{-power}")
        packed = stack.enter_context(block_csr(self._times_power(power).tocsr().astype(self.dtype)))
        found = PackedProblem(Operator(packed), self._names, self._memory_budget)
        found.power = power
        return found

    def key(self) -> dict[str, Any]:
        """By all its contents."""
        return packed_key(self._operator)

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that were asked for."""
        return self._names

    @property
    def files(self) -> list[tuple[str, AnyPath | None]]:
        """The packed file."""
        return [("A", self._operator.matrix.path)]

    def posed(self, precision: Precision) -> EigshProblem:
        """Problem of a plan."""
        matrix, diagonals = self._operator.matrix, diagonals_of(self._operator)
        return EigshProblem(matrix.blocks, precision, self._names, self._memory_budget, matrix.tier.name, diagonals)

    def layout(self, wanted: Wanted, precision: Precision, ncv: int | None, block: int | None) -> Layout | None:
        """By the plan."""
        plan = planned_eigsh(self.posed(precision), wanted.k, wanted.which, ncv=ncv, block=block)
        return None if plan.choice is None else Layout(Sizes(plan.block, plan.capacity - 1), plan)

    def space(
        self,
        block: int,
        capacity: int,
        precision: Precision,
        stack: ExitStack,
        *,
        plan: SpacePlan | None = None,
        trace: bool = False,
    ) -> DeviceSpace:
        """Vectors on devices."""
        if plan is None:
            plan = self.posed(precision).space(Sizes(block, capacity - 1), capacity // 2)
        return stack.enter_context(DeviceSpace(self._operator, plan, trace=trace))

    def exact(self, stack: ExitStack) -> Product:
        """A multiplier."""
        return stack.enter_context(
            multiplier(self._operator, PANEL_COLUMNS[-1], devices=self._names, memory_budget=self._memory_budget)
        )

    def csc(self) -> csc_array:
        """Its blocks, with the diagonals of the operator."""
        return self._times_power(0)

    def _times_power(self, power: int) -> csc_array:
        """``2^power A`` in float64."""
        operator = self._operator
        a = csc_array(operator.matrix.tocsr(), dtype=np.float64)
        a.data = np.ldexp(a.data, power)
        left = np.broadcast_to(np.asarray(operator.left), self.n)
        a = diags_array(left) @ a
        if operator.right is not None:
            a = a @ diags_array(operator.right)
        return csc_array(a + diags_array(np.broadcast_to(np.ldexp(operator.shift, power), self.n)))


def problem_of(A: Any, devices: Devices, memory_budget: int | str | None, store: Store, stack: ExitStack) -> AbstractProblem:
    """The problem that A poses.

    Raises ``TypeError``, ``UnsupportedTypeError``, ``ValueError`` and ``NonFiniteError``.
    """
    if isinstance(A, LinearOperator):
        _refuse_devices(devices, "a LinearOperator")
        return _of_operator(A)
    if isinstance(A, np.ndarray | list | tuple) or _is_dense(A):
        _refuse_devices(devices, "an array")
        return _of_array(A)
    if callable(A) and not isinstance(A, BlockCSR | Operator):
        raise TypeError(
            f"A is a {type(A).__name__}, whose size is not known: give scipy.sparse.linalg.LinearOperator((n, n), matvec=A)"
        )
    if not isinstance(A, Operator):
        packed = A if isinstance(A, BlockCSR) else stack.enter_context(block_csr(A, store=store))
        A = Operator(packed)
    _check_shape(A.shape)
    return PackedProblem(A, devices, memory_budget)


def _is_dense(a: Any) -> bool:
    """Tell whether it is an array of another library, in memory of the host."""
    return hasattr(a, "__array__") and not hasattr(a, "tocsr") and getattr(a, "ndim", 0) == 2 and device_of(a) is None


def _refuse_devices(devices: Devices, what: str) -> None:
    """Refuse GPUs for an operator that is no sparse matrix: it multiplies on the host."""
    if devices is not None and not device_kind(resolve_devices(devices)[0]).is_in_host_memory:
        raise TypeError(
            f"devices is {devices!r:.80}, but {what} multiplies on the host: leave devices out, or give a sparse matrix"
        )


def _of_operator(a: LinearOperator) -> GivenProblem:
    _check_shape(a.shape)
    _check_real(a.dtype)

    def product(x: NDArray[Any]) -> NDArray[Any]:
        found = plain_array("A @ x", a.matmat(x))
        if found.dtype.kind == "c":
            _check_real(found.dtype)
        return found

    return GivenProblem(product, a.shape[0], np.dtype(np.float32 if a.dtype == np.float32 else np.float64))


def _of_array(given: Any) -> GivenProblem:
    a = plain_array("A", given)
    if a.ndim != 2:
        raise TypeError(f"A is a {type(given).__name__} of {a.ndim} dimensions: {_ADVICE}")
    _check_shape(a.shape)
    _check_real(a.dtype)
    if not np.isfinite(a).all():
        row, column = np.argwhere(~np.isfinite(a))[0]
        raise NonFiniteError(int(row), int(column), None)
    dtype = np.dtype(np.float32 if a.dtype.kind == "f" and a.dtype.itemsize <= 4 else np.float64)
    kept = np.ascontiguousarray(a, dtype=dtype)

    @np.errstate(over="ignore", invalid="ignore")  # what is too large for float32 is found where products are read
    def product(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(kept.astype(x.dtype, copy=False) @ x)

    return GivenProblem(product, len(kept), dtype, kept)


def _check_shape(shape: tuple[int, ...]) -> None:
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
        advice = "a Hermitian A + iB has the eigenvalues of the real [[A, -B], [B, A]], each twice"
        raise UnsupportedTypeError("eigsh", np.dtype(dtype).name, advice)
    if np.dtype(dtype).kind not in "biuf" or np.dtype(dtype).itemsize > 8:
        raise UnsupportedTypeError("eigsh", np.dtype(dtype).name, "give real numbers up to float64")
