"""A multiplier: products with a matrix larger than a device, which keeps devices and blocks between them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.options import checked as checked_options
from ooc_chol.calls.options import documented
from ooc_chol.calls.progress import Progress, ProgressReporter, progress_reporter
from ooc_chol.config import whole_number
from ooc_chol.display.prints import one_line
from ooc_chol.errors import ClosedError
from ooc_chol.files.inputs import plain_array
from ooc_chol.files.outputs import AnyPath
from ooc_chol.hardware.arrays import device_of
from ooc_chol.interfaces import AbstractEvent
from ooc_chol.kernels.interfaces.products import ProductDevice
from ooc_chol.kernels.registry import open_product_device
from ooc_chol.precision.triples import Precision
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.process.fork_safety import new_rlock
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.runtime.passes import Pass
from ooc_chol.runtime.shutdown import close_when_forgotten, devices_closed
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.operator import Operator
from ooc_chol.sparse.order import Vertices, inverse, rows_taken
from ooc_chol.sparse.plan import MultiplyPlan, panel_groups, panel_widths
from ooc_chol.sparse.planning import Devices, check_plan_of, packed_operator, planned, precision_of
from ooc_chol.sparse.products import DeviceProducts, Products, lock_blocks
from ooc_chol.sparse.report import MultiplyReport
from ooc_chol.tracing.trace import Trace

if TYPE_CHECKING:
    from ooc_chol.sparse.linear_operator import PackedLinearOperator


@documented(trace="They are :attr:`Multiplier.trace`.", progress="It counts entries times columns, of each product.")
def multiplier(
    A: Any,
    columns: int = 1,
    *,
    precision: Precision | str | None = None,
    packed: AnyPath | None = None,
    replace: bool = False,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    host_budget: int | str | None = None,
    progress: Progress = None,
    trace: bool = False,
    plan: MultiplyPlan | None = None,
) -> Multiplier:
    """Open devices for products with one matrix, and keep them, and the blocks that fit, between products.

    Parameters
    ----------
    A : BlockCSR, Operator, or source
        As for :func:`multiply`. A packed matrix stays open when the multiplier is closed; what was packed here does not.
    columns : int
        Columns of X for which there is to be room.
    precision : Precision or str, optional
        As for :func:`multiply`; ``"DDD"`` unless given.

    Returns
    -------
    Multiplier
        A context manager: ``with oc.multiplier(A) as m: y = m(x)``.

    Raises
    ------
    BudgetError
        The budget does not hold three blocks beside the vectors of one panel, or a device has less memory free.
    TypeError, ValueError
        A is no matrix, or there is no such device.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse
    >>> import ooc_chol as oc
    >>> path = scipy.sparse.csr_array(
    ...     np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    ... )
    >>> with oc.multiplier(path, devices="host:0") as m:
    ...     m.apply(np.array([1.0, 2.0, 3.0]), times=3)
    array([4., 8., 4.])
    """
    checked_options(packed=packed, replace=replace, memory_budget=memory_budget, host_budget=host_budget)
    checked_options(progress=progress, trace=trace)
    check_plan_type(plan, devices)
    began = time.perf_counter()
    machine = Machine((plan.devices if plan is not None else None) or devices, memory_budget)
    with ExitStack() as stack:
        operator, known = stack.enter_context(packed_operator(A, packed, replace))
        parts = {"pack": time.perf_counter() - began}
        if plan is None:
            plan = planned(known, columns, precision_of(precision), machine, host_budget=host_budget)
        else:
            check_plan_of(plan, known, columns, None if precision is None else precision_of(precision))
        return Multiplier(operator, plan, stack, trace=trace, progress=progress, parts=parts, began=began)


def multiplier_of(operator: Operator, plan: MultiplyPlan, *, trace: bool = False) -> Multiplier:
    """A multiplier of a packed matrix by a plan that was made for it."""
    with ExitStack() as stack:
        return Multiplier(operator, plan, stack, trace=trace)


def check_plan_type(plan: object, devices: Devices) -> None:
    """Raise unless it is a plan of products, or none, and on the devices that are asked for."""
    if plan is not None and not isinstance(plan, MultiplyPlan):
        raise TypeError(f"plan is a {type(plan).__name__}; give what oc.plan_multiply(A, X) makes, or leave it out")
    if plan is not None and devices is not None and not set(plan.devices) <= set(Machine(devices).names):
        raise ValueError(f"the plan is for {', '.join(plan.devices)}, but devices is {devices!r:.80}: leave one of them out")


def checked(X: ArrayLike) -> NDArray[Any]:
    """X as an array of real numbers of one or two dimensions."""
    if (where := device_of(X)) is not None:
        raise TypeError(f"X lies on {where}; give an array in host memory, from which every device gets its own copy")
    if issparse(X) or isinstance(X, BlockCSR):
        raise TypeError(f"X is a sparse {type(X).__name__}, but products are with dense vectors: give X.toarray()")
    x = plain_array("X", X)
    if x.dtype.kind not in "fiub" or x.dtype.itemsize > 8:
        raise TypeError(f"X has dtype {x.dtype}, but real numbers up to float64 are needed: convert it")
    if x.ndim not in (1, 2):
        raise ValueError(f"X has shape {x.shape}: give a vector (n,), or vectors as columns (n, m)")
    return x


@final
class Multiplier(AbstractClosing):
    """Products with one matrix on open devices; :func:`multiplier` makes it.

    Parameters
    ----------
    operator : Operator
        The matrix and its diagonals.
    plan : MultiplyPlan
        Plan of a product.
    stack : ExitStack
        Closes what was opened for it, and then devices.
    trace : bool
        True if every copy and product is recorded.
    progress : bool or callable, optional
        As for :func:`multiplier`.
    parts : mapping of str to float
        Seconds of what was done before, by name.
    began : float, optional
        When the call began, by ``time.perf_counter()``.

    Notes
    -----
    One thread enqueues at a time; others wait. A product that fails or is interrupted closes the multiplier.
    """

    def __init__(
        self,
        operator: Operator,
        plan: MultiplyPlan,
        stack: ExitStack,
        *,
        trace: bool = False,
        progress: Progress = None,
        parts: Mapping[str, float] | None = None,
        began: float | None = None,
    ) -> None:
        since = time.perf_counter()
        self._operator, self._plan, self._progress = operator, plan, progress
        self._is_traced, self._process, self._lock = trace, os.getpid(), new_rlock()
        self._run = Pass("multiply", plan.columns, is_traced=trace)
        self._seconds: list[float] = []  # of each product, by its events
        self._columns_done = 0
        self._numbers: Vertices | None = None
        self._is_multiplying = False
        self._products = Products(plan, _opened(operator, plan, self._run, stack))
        self._stack: ExitStack | None = stack.pop_all()
        opened = time.perf_counter()
        self._parts = {**(parts or {}), "open": opened - since, "run": 0.0}
        self._total = opened - (since if began is None else began)
        close_when_forgotten(self, self._stack)

    @property
    def plan(self) -> MultiplyPlan:
        """Plan of each product, with as many columns as it was made for."""
        return self._plan

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return self._operator.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of products: that in which vectors are stored."""
        return self._plan.precision.storage

    @property
    def closed(self) -> bool:
        """True if it was closed, or closed itself when a product failed."""
        return self._stack is None

    def __call__(self, x: ArrayLike) -> NDArray[Any]:
        """``Y = A X``; as :meth:`apply` with ``times=1``."""
        return self.apply(x)

    def apply(self, x: ArrayLike, *, times: int = 1) -> NDArray[Any]:
        """``A**times X``; the vectors do not leave the devices in between.

        Parameters
        ----------
        x : (n_columns,) or (n_columns, m) array_like
            Real numbers in any order of memory. No panel of X may be wider than those planned for: m may be larger than the
            ``columns`` that the multiplier was made for where these are 8 or more.
        times : int
            How many products, one of the other. The matrix is square unless it is 1.

        Returns
        -------
        (n_rows,) or (n_rows, m) array
            The last product, of type :attr:`dtype`.

        Raises
        ------
        ClosedError
            The multiplier is closed.
        ForkedError
            It was made by the process that this one was forked from.
        TypeError, ValueError
            X has another height, is wider than planned, or is no array of real numbers; or powers of a matrix that is not square
            were asked for.
        """
        since = time.perf_counter()
        given = checked(x)
        n_rows, n_columns = self.shape
        if given.shape[0] != n_columns:
            raise ValueError(f"X has shape {given.shape}, but A is {n_rows} x {n_columns}: X must have {n_columns} rows")
        if whole_number(times, "times") < 1:
            raise ValueError(f"times is {times}, but at least one product is made")
        if times > 1 and n_rows != n_columns:
            raise ValueError(f"times is {times}, but A is {n_rows} x {n_columns}: only a square matrix has powers")
        refuse_in_child(self._process, "this multiplier")
        columns = given.reshape(n_columns, -1) if given.size else given.reshape(n_columns, *given.shape[1:] or (1,))
        widths = panel_widths(columns.shape[1])
        if widths and max(widths) > self._plan.room:
            raise ValueError(
                f"X has {columns.shape[1]} columns, but this multiplier has room for {self._plan.room}: make it with "
                f"columns={columns.shape[1]}"
            )
        y = np.zeros((n_rows, columns.shape[1]), self.dtype)
        order = self._operator.matrix.order
        with self._lock:
            self._refuse_within()
            if self._stack is None:
                raise ClosedError("this multiplier is closed: make another one")
            if y.size and columns.size:
                x = columns if order is None else rows_taken(columns, order, self.dtype)
                with self._closed_by_failure():
                    self._apply(x, y, panel_groups(widths, self._plan.room), times)
            if order is not None:
                y = rows_taken(y, self._numbers_of(order), self.dtype)
            self._total += time.perf_counter() - since
        return y.reshape(n_rows, *given.shape[1:])

    def aslinearoperator(self, *, symmetric: bool = False) -> PackedLinearOperator:
        """The matrix as SciPy's iterative solvers take it, multiplied by this multiplier.

        Parameters
        ----------
        symmetric : bool
            True if the matrix is its own transpose, so that products with the transpose are those with the matrix. That is not
            checked; other matrices have no such products.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator
            Products with it, of as many columns at a time as there is room for. It is a context manager, which closes the
            multiplier.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> from scipy.sparse import diags_array
        >>> from scipy.sparse.linalg import cg
        >>> band = diags_array(
        ...     [-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(100, 100)
        ... )
        >>> with oc.multiplier(band.tocsr(), devices="host:0") as m:
        ...     x, code = cg(m.aslinearoperator(symmetric=True), np.ones(100))
        >>> code
        0
        """
        from ooc_chol.sparse.linear_operator import PackedLinearOperator  # SciPy's solvers take a tenth of a second to import

        return PackedLinearOperator(self, symmetric=symmetric)

    def _numbers_of(self, order: Vertices) -> Vertices:
        """The packed row of each of the caller's, made once."""
        if self._numbers is None:
            self._numbers = inverse(order)
        return self._numbers

    def _apply(self, x: NDArray[Any], y: NDArray[Any], groups: tuple[tuple[int, ...], ...], times: int) -> None:
        """Enqueue all products, and wait for them."""
        began = time.perf_counter()
        first, spans, products = 0, list[tuple[list[AbstractEvent], list[AbstractEvent]]](), self._products
        total = times * x.shape[1] * self._plan.blocks.n_entries
        with collector_off(), progress_reporter(self._progress, "multiply", "entry") as report:
            told = _Told(report, self._plan, total)
            for widths in groups:
                products.bring(x, first, widths)
                for number in range(times):
                    spans.append(products.multiply(widths, exchange=number + 1 < times, told=told.note(widths)))
                    if number + 1 < times:
                        products.swap()
                told.tell()
                products.take_back(y, first, widths)
                first += sum(widths)
            products.finish()
        self._columns_done += times * x.shape[1]
        self._parts["run"] += time.perf_counter() - began
        for begun, ended in spans:
            self._seconds.append((max(event.time_ns() for event in ended) - min(event.time_ns() for event in begun)) / 1e9)

    @contextmanager
    def _closed_by_failure(self) -> Iterator[None]:
        """Close when a product fails: no thread and no memory of a device stays."""
        self._is_multiplying = True
        try:
            yield
        except BaseException:
            stack, self._stack = self._stack, None
            assert stack is not None
            if not stack.__exit__(*sys.exc_info()):
                raise
        finally:
            self._is_multiplying = False

    def _refuse_within(self) -> None:
        """Refuse what the thread asks that is in a product already: it holds the lock, and would wait for itself."""
        if self._is_multiplying:
            raise RuntimeError(
                "this multiplier is in a product, and was used by what that calls: by progress, or by a handler of a signal. "
                "Use it when the product has returned, or raise an error there, which ends the product"
            )

    @property
    def report(self) -> MultiplyReport:
        """Report of all products until now."""
        return MultiplyReport(
            plan=self._plan,
            scans=self._products.scans,
            columns=self._columns_done,
            executed=self._products.copied_bytes,
            exchanged_bytes=sum(each.exchanged_bytes for each in self._products.members),
            brought_bytes=sum(each.brought_bytes for each in self._products.members),
            returned_bytes=sum(each.returned_bytes for each in self._products.members),
            scan_seconds=tuple(self._seconds),
            total_seconds=self._total,
            parts=dict(self._parts),
        )

    @property
    def trace(self) -> Trace | None:
        """Every copy and product until now; None where none was asked for."""
        if not self._is_traced:
            return None
        plan = self._plan
        metadata: dict[str, str | int | float] = {
            "rows": plan.blocks.shape[0],
            "entries": plan.blocks.n_entries,
            "columns": plan.columns,
            "precision": plan.precision.value,
            "devices": ", ".join(plan.devices),
            "budget": plan.budget_bytes,
            "scans": self._products.scans,
        }
        return Trace(tuple(record for track in self._run.tracks for record in track.records(0)), metadata=metadata)

    def close(self) -> None:
        """Close the devices, and a matrix that was packed here; a second call does nothing."""
        if self._process != os.getpid():  # devices are the parent's, and so is whoever holds the lock
            self._stack = None
            return
        with self._lock:
            self._refuse_within()
            stack, self._stack = self._stack, None
            if stack is not None:
                stack.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a multiplier holds open devices, and is neither copied nor pickled: make one where it is used")

    def __repr__(self) -> str:
        return one_line(self, {"shape": self.shape, "precision": self._plan.precision.value, "devices": self._plan.devices})


class _Told:
    """Tells how far products are, once they are enqueued."""

    def __init__(self, report: ProgressReporter, plan: MultiplyPlan, total: int) -> None:
        self._report, self._plan, self._total = report, plan, total
        self._began, self._done = time.perf_counter(), 0
        self._events: list[tuple[AbstractEvent, int]] = []

    def note(self, widths: tuple[int, ...]) -> Callable[[range, AbstractEvent], None] | None:
        """Function of numbers of blocks, and an event behind their products; None where nobody is told."""
        if self._report is None:
            return None
        blocks, columns = self._plan.blocks.blocks, sum(widths)
        return lambda run, event: self._events.append((event, columns * sum(blocks[number].n_entries for number in run)))

    def tell(self) -> None:
        """Wait for the blocks that are enqueued, one after the other."""
        if self._report is None:
            return
        for event, count in self._events:
            event.synchronize()
            self._done += count
            self._report(min(self._done, self._total), self._total, time.perf_counter() - self._began)
        self._events.clear()


def _opened(operator: Operator, plan: MultiplyPlan, run: Pass, stack: ExitStack) -> list[DeviceProducts]:
    """Open the devices of a plan, with memory and streams, and page-lock blocks in memory; ``stack`` closes them."""
    devices: list[ProductDevice] = []
    stack.enter_context(devices_closed(devices, []))
    members = []
    for share in plan.shares:
        kernels = plan.precision, plan.room, plan.blocks.most_segments, plan.threads
        devices.append(open_product_device(share.device, *kernels))
        members.append(DeviceProducts(devices[-1], plan, share, operator, run, devices[-1].kernels))
    lock_blocks(operator, plan, members)
    return members
