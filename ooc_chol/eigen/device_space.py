"""Where block Krylov methods work on devices: the basis stays there, and A passes through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.calls.machine import Machine
from ooc_chol.display.prints import one_line
from ooc_chol.eigen import early_array
from ooc_chol.eigen.device_group import DeviceGroup, own_basis, own_panel, own_w
from ooc_chol.eigen.exchange import AbstractExchange
from ooc_chol.eigen.orthogonalization import Orthogonalizer
from ooc_chol.eigen.space import AbstractSpace, filter_steps
from ooc_chol.eigen.space_device import Recurrence, SpaceDevice
from ooc_chol.eigen.space_kernels import SpaceKernels
from ooc_chol.eigen.space_log import CoefficientLog, SpaceSeconds
from ooc_chol.eigen.space_plan import SpacePlan, plan_space
from ooc_chol.hardware.registry import device_kind, open_device
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, Tile
from ooc_chol.precision.triples import Precision
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.runtime.holding import Holding
from ooc_chol.runtime.passes import Pass, finish
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.dividing import RING_SLOTS
from ooc_chol.sparse.operator import Operator, operator_of
from ooc_chol.sparse.order import Vertices, inverse, rows_taken
from ooc_chol.sparse.pass_rates import pass_rates_of
from ooc_chol.sparse.planning import Devices, diagonals_of, precision_of
from ooc_chol.sparse.products import Products, lock_blocks
from ooc_chol.tracing.trace import Trace


@final
class DeviceSpace(AbstractSpace, AbstractClosing):
    """A basis on devices, all of one kind, or the rows of one that this process has; :func:`open_space` makes it.

    One thread enqueues for all devices. Every device has its own rows of the basis and of W, and computes all small matrices,
    from the sums of all chunks of rows in their order: so it needs nothing of the others but sums and panels to multiply. A call
    that fails or is interrupted closes the space.
    """

    def __init__(
        self, operator: Operator, plan: SpacePlan, *, trace: bool = False, exchange: AbstractExchange | None = None
    ) -> None:
        self.plan, self._operator = plan, operator  # which is not collected, nor closed, as long as it is used
        self.n, self.block, self.capacity, self.precision = plan.sizes.n_rows, plan.block, plan.capacity, plan.precision
        self.passes = 0
        self._seconds = SpaceSeconds()
        self._is_traced = trace
        self._early: early_array.EarlyArray | None = None
        self._run = Pass("multiply", plan.block, is_traced=trace)
        self._log = CoefficientLog(self.block, plan.sizes.log_entries)
        self._done: dict[str, NDArray[np.float64]] = {}  # read when the log was full
        self._steps: dict[Recurrence, Callable[[], None]] = {}  # what enqueues steps of filters that were captured
        #: The panel whose rows of other devices are in X, or on their way, as W was before it was made orthonormal.
        self._ahead: int | None = None
        #: The panel that X is already.
        self._in_x: int | None = None
        with ExitStack() as stack:
            self._group = DeviceGroup(self._opened(operator, stack), self.block, exchange)
            self._orthogonalizer = Orthogonalizer(self._group, self.precision)
            self._products = Products(plan.products, [each.products for each in self._group.devices])
            for each in self._group.all():
                each.products.run_ahead()  # beside what makes the first panel
            self._holding = Holding(self, stack.pop_all(), "this space")

    def _opened(self, operator: Operator, stack: ExitStack) -> list[SpaceDevice]:
        """Open all devices, with memory and streams; ``stack`` closes them."""
        opened: list[AbstractDevice[SpaceKernels]] = []
        stack.enter_context(devices_closed(opened, []))
        found = []
        for share in self.plan.products.shares:
            opened.append(open_device(share.device, SpaceKernels(share.device, self.plan.needs)))
            with opened[-1].current():
                found.append(SpaceDevice(opened[-1], self.plan, share, operator, self._run))
        lock_blocks(operator, self.plan.products, [each.products for each in found])
        return found

    # panels

    def fill(self, seed: int) -> None:
        with self._working("fill W"):
            self._orthogonalizer.is_measured = False
            for each in self._group.all():
                each.kernels.fill_random(each.computing, each.w, each.rows.start, seed)

    def bring(self, x: NDArray[np.float64]) -> None:
        if x.shape != (self.n, self.block):
            raise ValueError(f"x has shape {x.shape}, but a panel of this space has shape {(self.n, self.block)}")
        order = self._operator.matrix.order
        # The caller's rows, in the order in which they are packed.
        given = np.array(x, dtype=np.float64) if order is None else rows_taken(x, order, np.dtype(np.float64))
        self.bring_rows(given[self.rows.start : self.rows.stop])

    @property
    def rows(self) -> range:
        """Rows that the devices have, as they are packed: all unless other processes have some."""
        return range(self._group.devices[0].rows.start, self._group.devices[-1].rows.stop)

    def bring_rows(self, x: NDArray[Any]) -> None:
        """The rows of W that the devices have become an array, which does not change, in the order in which they are packed."""
        start = self.rows.start
        with self._working("bring W"):
            self._orthogonalizer.is_measured = False
            self._group.on_each(lambda each: each.bring_rows(x[each.rows.start - start : each.rows.stop - start]))

    def load(self, panel: int) -> None:
        with self._working(f"load {panel}"):
            self._orthogonalizer.is_measured = False
            for each in self._group.all():
                each.copy(each.basis[panel], each.w)

    def store(self, panel: int) -> None:
        with self._working(f"store {panel}"):
            self._forget_ahead(range(panel, panel + 1))
            for each in self._group.all():
                each.copy(each.w, each.basis[panel])

    def move(self, panel: int, to: int) -> None:
        with self._working(f"move {panel}"):
            self._forget_ahead(range(to, to + 1))
            if self._ahead == panel:
                self._ahead = to
            if self._in_x == panel:
                self._in_x = to
            for each in self._group.all():
                each.copy(each.basis[panel], each.basis[to])

    def _forget_ahead(self, panels: range) -> None:
        """Take nothing that was copied ahead for one of these panels, which change."""
        if self._ahead in panels:
            self._ahead = None
        if self._in_x in panels:
            self._in_x = None

    def multiply_entries(self, panel: int) -> None:
        with self._working(f"multiply entries {panel}"):
            self._orthogonalizer.is_measured = False
            for each in self._group.all():
                each.kernels.multiply_entries(each.computing, each.basis[panel], each.w)

    def take(self, panels: range, columns: int | None = None, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        columns = len(panels) * self.block if columns is None else columns
        panels = panels[: -(-columns // self.block)]
        found = self._room_for((len(self.rows), columns), np.dtype(dtype or np.float64))
        self.take_rows(panels, found)
        return found if self._places is None else rows_taken(found, self._places, found.dtype)

    def take_rows(self, panels: range, out: NDArray[Any]) -> None:
        """An array becomes the rows of panels that the devices have, in the order in which they are packed; waits.

        Shapes: ``out`` (rows, columns), columns of all panels or the first. Several panels spoil W.
        """
        start = self.rows.start
        with self._working(f"take {_text(panels)}"):
            self._orthogonalizer.is_measured = False
            self._group.on_each(lambda each: each.take_panels(panels, out[each.rows.start - start : each.rows.stop - start]))
            self.wait()

    def expect_to_take(self, columns: int, dtype: np.dtype[Any]) -> None:
        """Ask the system for the memory of what :meth:`take` will return, while devices other than the host compute."""
        if self._early is None and columns * self.n * dtype.itemsize >= early_array.LEAST_BYTES and not self._is_on_host:
            self._early = early_array.EarlyArray((self.n, columns), dtype)

    def _room_for(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A new array: the one that is expected, or another."""
        early = self._early
        if early is None or (early.shape, early.dtype) != (shape, dtype):
            return np.empty(shape, dtype)
        self._early = None
        return early.take()

    @property
    def _is_on_host(self) -> bool:
        return device_kind(self.plan.products.devices[0]).is_in_host_memory

    @cached_property
    def _places(self) -> Vertices | None:
        """Places of the caller's rows among packed ones; None where these are their own, and of some rows only."""
        order = self._operator.matrix.order
        return None if order is None or len(self.rows) < self.n else inverse(order)

    # what Krylov methods do

    def product(self, panel: int) -> None:
        with self._holding.guarded():
            self._orthogonalizer.is_measured = False
            begun = [each.computing.record() for each in self._group.all()]
            if self._in_x != panel:
                self._spread(panel)
            self._in_x = None  # which may be scaled
            self._multiply((self.block,), begun)

    def recur(self, panel: int, previous: int | None, into: int | None, *, center: float, half: float) -> None:
        """A step of Chebyshev's recurrence with ``B = (A - center) / half``, into a panel, or W where ``into`` is None."""
        self.product(panel)
        with self._working(f"recur {panel}"):
            for each in self._group.all():
                each.recur(Recurrence(panel, previous, into, center, half))

    def filter(self, panel: int, scratch: range, degree: int, *, center: float, half: float) -> None:
        """``W = T_d(B) V[panel]``; a device that works alone captures steps, which the enqueuing thread then hardly sees."""
        if not self._is_steady:
            super().filter(panel, scratch, degree, center=center, half=half)
            return
        each, copied = self._group.devices[0], scratch[1]
        with self._holding.guarded(), each.device.current():
            self._orthogonalizer.is_measured = False
            begun = each.computing.record()
            each.copy(each.basis[panel], each.basis[copied])  # so that steps are the same for every panel
            for parts in filter_steps(copied, scratch, degree):
                step = Recurrence(*parts, center, half)
                if step not in self._steps:
                    self._steps[step] = each.device.captured(each.computing, partial(each.multiply_and_recur, step))
                self._steps[step]()
            self._seconds.pending.append(("passes", [begun], [each.computing.record()]))
            self._seconds.settle()
        self.passes += degree
        self._products.scans += degree

    @property
    def _is_steady(self) -> bool:
        """True if one device has all rows and blocks, and a product is kernels alone."""
        devices = self._group.devices
        return not self._group.is_shared and devices[0].products.is_steady

    def _multiply(self, widths: tuple[int, ...], begun: list[AbstractEvent]) -> None:
        """Enqueue a product with what lies in X, and copies for the next one."""
        self.passes += 1
        _, ended = self._products.multiply(widths, exchange=False)
        self._seconds.pending.append(("passes", begun, ended))
        for each in self._group.all():
            each.products.run_ahead()
        self._seconds.settle()  # of what was waited for, while the devices compute

    def _spread(self, panel: int) -> None:
        """Enqueue: X of every device becomes a panel, the rows of all of them."""
        ready = [each.computing.record() for each in self._group.all()]
        for each in self._group.all():
            each.copy(each.basis[panel], self._x(each)[each.rows.start : each.rows.stop])
        if self._ahead == panel:
            self._group.finish_ahead(panel)
        else:
            self._group.pull(own_panel(panel), self._x, ready, f"pull V({panel})")
        self._ahead = None

    def _x(self, each: SpaceDevice) -> Tile:
        return each.view("x", lambda: each.products.panels(0, (self.block,))[0])

    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        with self._working(f"project {_text(panels)}"):
            self._ahead = None  # whose flags change
            self._reserve(len(panels) * self.block)
            kept = self._log.keep(name, len(panels) * self.block)
            self._orthogonalizer.project(panels, kept, again=again)

    def inner(self, panels: range, name: str) -> None:
        with self._working(f"inner {_text(panels)}"):
            self._reserve(len(panels) * self.block)
            kept = self._log.keep(name, len(panels) * self.block)
            if panels:
                [section] = self._group.sections(len(panels) * self.block)
                self._group.sum([section], [own_basis(panels)], own_w)
                for each in self._group.all():
                    self._group.add(each, section, each.log(*kept))

    def orthonormalize(self, panel: int, name: str, against: range, *, is_next: bool = False) -> None:
        """``W = V[panel] @ R`` by Cholesky-QR twice, R (block, block) kept under ``name``.

        Where the panel ``is_next`` to be multiplied, devices copy the others' rows of W meanwhile. They multiply these by the
        same factors themselves, unless something else had to be done.

        A column of which nothing is left beside those before it has a zero row in R, and becomes a random vector orthonormal to
        all else, ``against`` included; zeros where there is no such vector. W has been projected against these before. The first
        factor clamps small pivots, so that no column is given up before the second one has seen what is left of it. What a
        column was is its norm before the last :meth:`project` where W has not changed since. Roundoff that two passes left is
        as large in all columns, and not orthogonal to the basis: where the last pass took a tenth of a norm, or a column is
        nearly in the span of the others, vectors of norm 1 are projected once more. Where that takes a tenth, or a column is
        weak, they are projected twice again and factored a third time.
        """
        with self._working(f"orthonormalize {panel}"):
            self._reserve(3 * self.block)
            self._in_x = None
            self._ahead = panel if is_next and self._group.is_direct else None
            if self._ahead is not None:
                self._group.copy_ahead(self._x, f"pull V({panel})")
            seed = 1 + self.passes * self.capacity + panel
            self._orthogonalizer.orthonormalize(panel, self._log.keep_factors(name), against, seed)

    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        shape = (len(panels) * self.block, len(into) * self.block)
        if coefficients.shape != shape:
            raise ValueError(f"coefficients have shape {coefficients.shape}, but these panels need {shape}")
        given = np.array(coefficients, dtype=np.float64)
        with self._working(f"rotate {_text(panels)}"):
            self._forget_ahead(into)
            for each in self._group.all():
                s = each.scratch(*shape)
                each.bring(given.reshape(-1, 1), s.reshape(-1, 1))  # rows of S may be longer than a staging buffer
                each.kernels.combine(each.computing, each.panels(panels), s, each.panels(into))

    def read(self) -> dict[str, NDArray[np.float64]]:
        with self._working("read"):
            self._read_log()
        if (panel := self._ahead) is not None:
            with self._holding.guarded():  # while the host makes something of the numbers
                self._spread(panel)
                self._in_x = panel
        found, self._done = self._done, {}
        return found

    def _reserve(self, columns: int) -> None:
        """See that there is room for so many rows of coefficients: what fills the log is read, which waits."""
        if not self._log.has_room(columns):
            self._read_log()

    def _read_log(self) -> None:
        """Bring all coefficients from the first device, in one transfer."""
        numbers, first = np.empty((self._log.end, 1)), self._group.devices[0]
        if len(numbers):
            with first.device.current():
                first.take(first.log(0, len(numbers) // self.block).reshape(-1, 1), numbers)
        self.wait()
        self._done |= self._log.read(numbers)

    # certificates

    def residuals(self, panels: range, values: Sequence[float]) -> NDArray[np.float64]:
        """``|| A v - value v ||_2 / || v ||_2`` of each column, computed and summed in float64 whatever the precision; waits.

        Columns beyond the number of values are left out. A column of zeros has an infinite residual.
        """
        if len(values) > len(panels) * self.block:
            raise ValueError(f"{len(values)} values, but panels {_text(panels)} have {len(panels) * self.block} columns")
        wide = self.plan.needs.wide_columns
        per_panel = self.block // wide
        groups = range(-(-len(values) // wide))
        with self._holding.guarded():
            self._orthogonalizer.is_measured, self._ahead, self._in_x = False, None, None
            thetas = np.zeros((len(groups), wide, wide))
            for number, value in enumerate(values):
                thetas[number // wide, number % wide, number % wide] = value
            for group in groups:
                panel, column = panels[group // per_panel], group % per_panel * wide
                begun = [each.computing.record() for each in self._group.all()]
                self._group.bring_wide(panel, column)
                self._multiply((wide,), begun)
                self._group.certify(panel, column, thetas[group], group)
            found = np.empty((3 * len(groups) * wide, wide))
            first = self._group.devices[0]
            with first.device.current():
                first.take(first.norms[: len(found)], found)
            self.wait()
        norms = found.reshape(-1, 3, wide, wide).diagonal(axis1=2, axis2=3)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(norms[:, 1] > 0, np.sqrt(norms[:, 0]) / np.sqrt(norms[:, 1]), np.inf)
        return relative.reshape(-1)[: len(values)].copy()

    # what is told

    @property
    def seconds(self) -> SpaceSeconds:
        """Where the seconds went, as far as the host has waited for them."""
        self._seconds.settle()
        return self._seconds

    @property
    def copied_bytes(self) -> dict[str, int]:
        """Bytes of blocks over each link until now, without those that were brought for a product that is still to come."""
        tier = self.plan.products.tier
        return {
            f"{tier}->{share.device}": each.products.scan.copied_bytes - each.products.scan.ahead_bytes
            for share, each in zip(self.plan.products.shares, self._group.devices, strict=True)
        }

    @property
    def ahead_bytes(self) -> int:
        """Bytes of blocks that were brought for the next product."""
        return sum(each.products.scan.ahead_bytes for each in self._group.devices)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of panels that devices copied from each other."""
        return sum(each.products.exchanged_bytes for each in self._group.devices) - self.sum_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes of panels and of sums that came from other processes."""
        return 0 if self._group.remote is None else self._group.remote.received_bytes

    @property
    def sum_bytes(self) -> int:
        """Bytes of partial sums that devices copied from each other."""
        return sum(each.sum_bytes for each in self._group.devices)

    @property
    def brought_bytes(self) -> int:
        """Bytes of vectors and coefficients from the host to devices."""
        return sum(each.brought_bytes for each in self._group.devices)

    @property
    def returned_bytes(self) -> int:
        """Bytes of vectors and coefficients from devices to the host."""
        return sum(each.returned_bytes for each in self._group.devices)

    @property
    def trace(self) -> Trace | None:
        """Every copy, product and piece of work until now; None where none was asked for. Waits."""
        if not self._is_traced:
            return None
        if self._holding.is_open:
            with self._holding.guarded():
                self._products.finish()
        products = self.plan.products
        metadata: dict[str, str | int | float] = {
            "rows": self.n,
            "entries": products.blocks.n_entries,
            "block": self.block,
            "capacity": self.capacity,
            "precision": self.precision.value,
            "devices": ", ".join(products.devices),
            "passes": self.passes,
        }
        return Trace(tuple(record for track in self._run.tracks for record in track.records(0)), metadata=metadata)

    # running

    @contextmanager
    def _working(self, label: str) -> Iterator[None]:
        """Work on panels inside a block: it has a name in a trace, and its seconds count."""
        with self._holding.guarded():
            self._group.meet()
            begun = [each.computing.record() for each in self._group.all()]
            yield
            ended = [each.tell(label, since) for each, since in zip(self._group.all(), begun, strict=True)]
            self._seconds.pending.append(("panels", begun[:1], ended[:1]))

    def wait(self) -> None:
        """Wait until all that was enqueued is done, but for copies of blocks; raise what went wrong."""
        since = time.perf_counter()
        for each in self._group.all():
            finish(each.device, [each.computing])
        self._seconds.waited(time.perf_counter() - since)

    def close(self) -> None:
        if self._early is not None:
            self._early.close()
            self._early = None
        self._holding.close(self._products.finish if self._is_traced else None)
        self._steps.clear()

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.n, "block": self.block, "capacity": self.capacity}
        return one_line(self, facts | {"precision": self.precision.value, "devices": self.plan.products.devices})


def _text(panels: range) -> str:
    """How a trace calls panels."""
    return str(panels.start) if len(panels) == 1 else f"{panels.start}-{panels.stop - 1}"


def open_space(
    A: BlockCSR | Operator,
    *,
    block: int,
    capacity: int,
    precision: Precision | str | None = None,
    devices: Devices = None,
    memory_budget: int | str | None = None,
    ring_slots: int = RING_SLOTS,
    trace: bool = False,
) -> DeviceSpace:
    """Open devices for a basis, with a packed matrix.

    Raises ``BudgetError`` and ``ValueError``.
    """
    operator, machine = operator_of(A), Machine(devices, memory_budget)
    plan = plan_space(
        operator.matrix.blocks,
        precision=precision_of(precision),
        block=block,
        capacity=capacity,
        devices=machine.names,
        budget_bytes=machine.budget_bytes,
        tier=operator.matrix.tier.name,
        diagonals=diagonals_of(operator),
        rates=pass_rates_of(machine),
        ring_slots=ring_slots,
    )
    return DeviceSpace(operator, plan, trace=trace)
