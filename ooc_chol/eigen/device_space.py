"""Where block Krylov methods work on devices: the basis stays there, and A passes through."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.space import AbstractSpace
from ooc_chol.eigen.space_device import Section, SpaceDevice
from ooc_chol.eigen.space_kernels import CERTIFYING, SpaceKernels
from ooc_chol.eigen.space_plan import SpacePlan, plan_space
from ooc_chol.errors import ClosedError
from ooc_chol.hardware.registry import open_device, resolve_devices
from ooc_chol.interfaces import AbstractDevice, AbstractEvent, Tile
from ooc_chol.precision.triples import Precision
from ooc_chol.prints import one_line
from ooc_chol.runtime.forks import refuse_in_child
from ooc_chol.runtime.passes import Pass, finish
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.operator import Operator, operator_of
from ooc_chol.sparse.plan import RING_SLOTS
from ooc_chol.sparse.planning import Devices, diagonals_of, precision_of, tier_name
from ooc_chol.sparse.products import Products, lock_blocks
from ooc_chol.tracing.trace import Trace

#: A pass of orthogonalization is done twice where a norm fell below this share.
_SHARE = 0.5
#: Pivots of a Gram matrix below so many roundoffs of computing, times columns, are noise: what is left of a column then is seen
#: once the column was divided by the root of that, in the second factor.
_NOISE = 64


class _Kept(NamedTuple):
    """Coefficients on the devices."""

    first: int  #: Entry of the log
    columns: int


class _KeptFactors(NamedTuple):
    """Three factors of an R: the first, the second, and a third where a column was weak, else zeros."""

    factors: tuple[_Kept, _Kept, _Kept]


@dataclass
class SpaceSeconds:
    """Where the seconds of a space went."""

    passes: float = 0.0  #: Products with A, by events of the devices
    panels: float = 0.0  #: Sums, updates and rotations, by events of the first device
    host: float = 0.0  #: The host waited
    pending: list[tuple[str, list[AbstractEvent], list[AbstractEvent]]] = field(default_factory=list)

    def settle(self) -> None:
        """Add what is complete."""
        for what, begun, ended in self.pending:
            seconds = (max(event.time_ns() for event in ended) - min(event.time_ns() for event in begun)) / 1e9
            setattr(self, what, getattr(self, what) + seconds)
        self.pending.clear()


@final
class DeviceSpace(AbstractSpace):
    """A basis on devices, all of one kind; :func:`open_space` makes it.

    Parameters
    ----------
    operator : Operator
        The matrix; who packed it closes it.
    plan : SpacePlan
        How the space lies on its devices.
    trace : bool
        Whether every copy, product and piece of work on panels is recorded for :attr:`trace`.

    Notes
    -----
    One thread enqueues for all devices. Every device has its own rows of the basis and of W, and computes all small matrices,
    from the sums of all chunks of rows in their order: so it needs nothing of the others but sums and panels to multiply. A call
    that fails or is interrupted closes the space.
    """

    def __init__(self, operator: Operator, plan: SpacePlan, *, trace: bool = False) -> None:
        self.plan, self._operator = plan, operator  # which is not collected, nor closed, as long as it is used
        self.n, self.block, self.capacity, self.precision = plan.sizes.n_rows, plan.block, plan.capacity, plan.precision
        self.passes = 0
        self.seconds = SpaceSeconds()
        self._is_traced, self._process, self._lock = trace, os.getpid(), threading.RLock()
        self._run = Pass("multiply", plan.block, is_traced=trace)
        self._tolerance = _NOISE * self.block * float(np.finfo(self.precision.compute).eps)
        self._roundoff = float(np.finfo(self.precision.storage).eps)
        self._log_end = 0  # entries of the log in use
        self._kept: dict[str, _Kept | _KeptFactors] = {}
        self._done: dict[str, NDArray[np.float64]] = {}  # read when the log was full
        self._is_measured = False  # whether ``before`` holds what W's squared norms were
        with ExitStack() as stack:
            self._devices = self._opened(operator, stack)
            self._products = Products(plan.products, [each.products for each in self._devices])
            self._stack: ExitStack | None = stack.pop_all()

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
        """W becomes random numbers in [-1, 1), which depend on seed, row and column alone."""
        with self._working("fill W"):
            self._is_measured = False
            for each in self._all():
                each.kernels.fill_random(each.computing, each.w, each.rows.start, seed)

    def bring(self, x: NDArray[np.float64]) -> None:
        """W becomes an (n, block) array."""
        if x.shape != (self.n, self.block):
            raise ValueError(f"x has shape {x.shape}, but a panel of this space has shape {(self.n, self.block)}")
        given = np.array(x, dtype=np.float64)
        with self._working("bring W"):
            self._is_measured = False
            for each in self._all():
                each.bring(given[each.rows.start : each.rows.stop], each.w)

    def load(self, panel: int) -> None:
        """W becomes a copy of a panel of the basis."""
        with self._working(f"load {panel}"):
            self._is_measured = False
            for each in self._all():
                each.copy(each.basis[panel], each.w)

    def store(self, panel: int) -> None:
        """A panel of the basis becomes a copy of W."""
        with self._working(f"store {panel}"):
            for each in self._all():
                each.copy(each.w, each.basis[panel])

    def take(self, panels: range) -> NDArray[np.float64]:
        """Columns of panels, as an (n, panels * block) array on the host; waits."""
        found = np.empty((self.n, len(panels) * self.block))
        with self._working(f"take {_text(panels)}"):
            for each in self._all():
                rows = found[each.rows.start : each.rows.stop]
                for number, panel in enumerate(panels):
                    each.take(each.basis[panel], rows, number * self.block)
            self._wait()
        return found

    # what Krylov methods do

    def product(self, panel: int) -> None:
        """``W = A V[panel]``; blocks of A that the next product needs are brought while other work is done."""
        with self._guarded():
            self._is_measured = False
            begun = [each.computing.record() for each in self._all()]
            self._spread(
                lambda each: each.basis[panel], lambda each: each.products.panels(0, (self.block,))[0], f"pull V({panel})"
            )
            self._multiply((self.block,), begun)

    def _multiply(self, widths: tuple[int, ...], begun: list[AbstractEvent]) -> None:
        """Enqueue a product with what lies in X, and copies for the next one."""
        _, ended = self._products.multiply(widths, exchange=False)
        self.passes += 1
        self.seconds.pending.append(("passes", begun, ended))
        for each in self._all():
            each.products.run_ahead()

    def _spread(self, own: Callable[[SpaceDevice], Tile], x: Callable[[SpaceDevice], Tile], label: str) -> None:
        """Enqueue: X of every device becomes the rows that all of them have."""
        ready = [each.computing.record() for each in self._all()]
        for each in self._all():
            each.copy(own(each), x(each)[each.rows.start : each.rows.stop])
        self._pull(own, x, ready, label)

    def _pull(
        self,
        own: Callable[[SpaceDevice], Tile],
        x: Callable[[SpaceDevice], Tile],
        ready: Sequence[AbstractEvent],
        label: str,
    ) -> None:
        """Enqueue: X of every device becomes the rows that the others have, once they have them and the last X is read."""
        for each in self._all():
            for other, done in zip(self._devices, ready, strict=True):
                each.products.peer.wait(done)
                if other is not each:
                    each.products.copy_from(own(other), x(each)[other.rows.start : other.rows.stop], label)
        self._meet()

    def _meet(self) -> None:
        """Let every device wait until all have copied what they need of the others."""
        if len(self._devices) > 1:
            arrived = [each.products.peer.record() for each in self._all()]
            for each in self._all():
                for event in arrived:
                    each.computing.wait(event)

    def project(self, panels: range, name: str, *, again: bool = True) -> None:
        """``C = V[panels].T @ W; W -= V[panels] @ C``, C kept under ``name``; twice where a norm fell below a half and ``again``.

        The second C is added to the first.
        """
        with self._working(f"project {_text(panels)}"):
            kept = self._keep(name, len(panels) * self.block)
            self._project(panels, kept, again=again)

    def _project(self, panels: range, kept: _Kept, *, again: bool) -> None:
        """Whatever W was projected against before, ``before`` stays what it was in the beginning."""
        if not panels:
            return
        section, norms = self._sections(panels)
        self._sum([section, norms], [self._basis_of(panels), _w_alone])
        is_first, self._is_measured = not self._is_measured, True
        for each in self._all():
            self._add(each, section, each.log(*kept))
            self._add(each, norms, each.small.before if is_first else each.small.now)
            each.kernels.subtract(each.computing, each.panels(panels), each.log(*kept), each.w)
        if again:
            self._sum([norms], [_w_alone])
            for each in self._all():
                small = each.small
                self._add(each, norms, small.after)
                now = small.before if is_first else small.now
                each.kernels.fell(each.computing, now, small.after, each.flags.fell, share=_SHARE)
            self._project_again(panels, lambda each: each.flags.fell, kept)

    def _project_again(self, panels: range, unless: Callable[[SpaceDevice], Tile], kept: _Kept | None = None) -> None:
        """Once more, unless a flag is 0; what is found is added to what is kept."""
        section, _ = self._sections(panels)
        self._sum([section], [self._basis_of(panels)], unless=unless)
        for each in self._all():
            second, flag = each.scratch(section.columns, self.block), unless(each)
            self._add(each, section, second, unless=flag)
            each.kernels.subtract(each.computing, each.panels(panels), second, each.w, unless=flag)
            if kept is not None:
                self._add(each, section, each.log(*kept), adds=True, unless=flag)

    def inner(self, panels: range, name: str) -> None:
        """``V[panels].T @ W``, kept under ``name``; W does not change."""
        with self._working(f"inner {_text(panels)}"):
            kept = self._keep(name, len(panels) * self.block)
            if panels:
                section, _ = self._sections(panels)
                self._sum([section], [self._basis_of(panels)])
                for each in self._all():
                    self._add(each, section, each.log(*kept))

    def orthonormalize(self, panel: int, name: str, against: range) -> None:
        """``W = V[panel] @ R`` by Cholesky-QR twice, R (block, block) kept under ``name``.

        A column that depends on those before it (of a norm below the roundoff of what it was) has a zero row in R, and becomes a
        random vector orthonormal to all else, ``against`` included; zeros where there is no such vector. W is spoilt.

        Notes
        -----
        The first factor clamps small pivots, so that no column is given up before the second one has seen what is left of it.
        What a column was is its norm before the last :meth:`project` where W has not changed since. Where a column is weak,
        vectors are orthogonalized against the basis once more, and factored a third time.
        """
        with self._working(f"orthonormalize {panel}"):
            self._reserve(3 * self.block)
            kept = _KeptFactors((self._room(self.block), self._room(self.block), self._room(self.block)))
            self._kept[name] = kept
            self._orthonormalize(panel, kept, against)
            self._is_measured = False

    def _orthonormalize(self, panel: int, kept: _KeptFactors, against: range) -> None:
        first, second, third = kept.factors
        self._gram_of_w(lambda each: each.small.gram)
        for each in self._all():
            small, flags, computing = each.small, each.flags, each.computing
            if not self._is_measured:
                each.copy(small.gram, small.before)
            each.kernels.factor_clamped(
                computing, small.gram, each.log(*first), small.inverse, flags.weak, tolerance=self._tolerance
            )
            each.kernels.multiply_right(computing, each.w, small.inverse, each.w)
        if against:
            self._project_again(against, lambda each: each.flags.weak)
        self._gram_of_w(lambda each: each.small.gram)
        for each in self._all():
            small, flags, computing = each.small, each.flags, each.computing
            each.kernels.factor(
                computing,
                small.gram,
                each.log(*second),
                small.inverse,
                flags.dependent,
                tolerance=self._tolerance,
                scale=each.log(*first),
                before=small.before,
                roundoff=self._roundoff,
                weak=flags.weak,
            )
        self._mend_weak(panel, third, against)
        for each in self._all():
            each.kernels.multiply_right(each.computing, each.w, each.small.inverse, each.basis[panel])

    def _mend_weak(self, panel: int, third: _Kept, against: range) -> None:
        """Where a column is weak: apply the second factor, make dependent columns random, and factor a third time."""
        seed = 1 + self.passes * self.capacity + panel
        for each in self._all():
            each.copy(each.small.zeros, each.log(*third))
            each.kernels.multiply_right(each.computing, each.w, each.small.inverse, each.w, unless=each.flags.weak)
            each.kernels.fill_random(each.computing, each.w, each.rows.start, seed, columns=each.flags.dependent)
        for _ in range(2 if against else 0):
            self._project_again(against, lambda each: each.flags.weak)
        self._gram_of_w(lambda each: each.small.gram, unless=lambda each: each.flags.weak)
        for each in self._all():
            each.kernels.factor_clamped(
                each.computing,
                each.small.gram,
                each.log(*third),
                each.small.inverse,
                tolerance=self._tolerance,
                last=each.flags.dependent,
                unless=each.flags.weak,
            )

    def rotate(self, panels: range, coefficients: NDArray[np.float64], into: range) -> None:
        """``V[into] = V[panels] @ S``, S from the host; ``into`` are the first of ``panels``, or others."""
        shape = (len(panels) * self.block, len(into) * self.block)
        if coefficients.shape != shape:
            raise ValueError(f"coefficients have shape {coefficients.shape}, but these panels need {shape}")
        given = np.array(coefficients, dtype=np.float64)
        with self._working(f"rotate {_text(panels)}"):
            for each in self._all():
                s = each.scratch(*shape)
                each.bring(given, s)
                each.kernels.combine(each.computing, each.panels(panels), s, each.panels(into))

    def read(self) -> dict[str, NDArray[np.float64]]:
        """All that was kept under names since the last call; waits. Raises what went wrong on a device."""
        with self._working("read"):
            self._read_log()
        found, self._done = self._done, {}
        return found

    def _keep(self, name: str, columns: int) -> _Kept:
        """Room for coefficients under a name."""
        self._reserve(columns)
        kept = self._kept[name] = self._room(columns)
        return kept

    def _reserve(self, columns: int) -> None:
        """See that there is room for so many rows of coefficients: what fills the log is read, which waits."""
        if self._log_end + columns * self.block > self.plan.sizes.log_entries:
            self._read_log()

    def _room(self, columns: int) -> _Kept:
        first, self._log_end = self._log_end, self._log_end + columns * self.block
        return _Kept(first, columns)

    def _read_log(self) -> None:
        """Bring all coefficients from the first device, in one transfer."""
        numbers = np.empty((self._log_end, 1))
        first = self._devices[0]
        if self._log_end:
            with first.device.current():
                first.take(first.log(0, self._log_end // self.block).reshape(-1, 1), numbers)
        self._wait()
        for name, kept in self._kept.items():
            self._done[name] = self._r_of(numbers, kept) if isinstance(kept, _KeptFactors) else self._matrix(numbers, kept)
        self._kept.clear()
        self._log_end = 0

    def _matrix(self, numbers: NDArray[np.float64], kept: _Kept) -> NDArray[np.float64]:
        return numbers[kept.first : kept.first + kept.columns * self.block].reshape(kept.columns, self.block).copy()

    def _r_of(self, numbers: NDArray[np.float64], kept: _KeptFactors) -> NDArray[np.float64]:
        """The product of the factors; rows of columns that depend are zero."""
        first, second, third = (self._matrix(numbers, each) for each in kept.factors)
        depends = second.diagonal() == 0
        r: NDArray[np.float64] = np.einsum("ij,jk->ik", second, first)
        if third.any():
            r = np.einsum("ij,jk->ik", third, r)
        r[depends] = 0
        return r

    # sums over rows

    def _sections(self, panels: range) -> tuple[Section, Section]:
        """Places for inner products of panels with W, and of W with itself."""
        columns = len(panels) * self.block
        return Section(0, columns), Section(columns, self.block)

    @staticmethod
    def _basis_of(panels: range) -> Callable[[SpaceDevice], Tile]:
        return lambda each: each.panels(panels)

    def _sum(
        self,
        sections: Sequence[Section],
        operands: Sequence[Callable[[SpaceDevice], Tile]],
        *,
        unless: Callable[[SpaceDevice], Tile] | None = None,
    ) -> None:
        """Enqueue inner products with W for all chunks of rows, until every device has those of all."""
        for each in self._all():
            for section, of in zip(sections, operands, strict=True):
                flag = None if unless is None else unless(each)
                each.kernels.gram(each.computing, of(each), each.w, each.own_section(section), unless=flag)
        self._share(sections)

    def _share(self, sections: Sequence[Section], dtype: np.dtype[Any] | None = None, width: int | None = None) -> None:
        """Enqueue: every device gets the partial sums of all others."""
        if len(self._devices) == 1:
            return
        ready = [each.computing.record() for each in self._all()]
        for each in self._all():
            others = [(other, done) for other, done in zip(self._devices, ready, strict=True) if other is not each]
            for section in sections:
                each.pull_sums(others, section, dtype, width)
        self._meet()

    @staticmethod
    def _add(each: SpaceDevice, section: Section, out: Tile, *, adds: bool = False, unless: Tile | None = None) -> None:
        each.kernels.add_partials(each.computing, each.section(section), out, adds=adds, unless=unless)

    def _gram_of_w(self, out: Callable[[SpaceDevice], Tile], *, unless: Callable[[SpaceDevice], Tile] | None = None) -> None:
        section = Section(0, self.block)
        self._sum([section], [_w_alone], unless=unless)
        for each in self._all():
            self._add(each, section, out(each), unless=None if unless is None else unless(each))

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
        with self._guarded():
            self._is_measured = False
            thetas = np.zeros((len(groups), wide, wide))
            for number, value in enumerate(values):
                thetas[number // wide, number % wide, number % wide] = value
            for group in groups:
                self._certify(panels[group // per_panel], group % per_panel * wide, thetas[group], group)
            found = np.empty((3 * len(groups) * wide, wide))
            first = self._devices[0]
            with first.device.current():
                first.take(first.norms[: len(found)], found)
            self._wait()
        norms = found.reshape(-1, 3, wide, wide).diagonal(axis1=2, axis2=3)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(norms[:, 1] > 0, np.sqrt(norms[:, 0]) / np.sqrt(norms[:, 1]), np.inf)
        return relative.reshape(-1)[: len(values)].copy()

    def _certify(self, panel: int, first: int, theta: NDArray[np.float64], group: int) -> None:
        """Enqueue squared norms of residuals, and of vectors, for some columns of a panel."""
        wide = self.plan.needs.wide_columns
        begun = [each.computing.record() for each in self._all()]
        for each in self._all():
            self._widen(each, panel, first)
        ready = [each.computing.record() for each in self._all()]
        self._pull(lambda each: self._own_wide(each)[0], lambda each: each.wide()[0], ready, f"pull V({panel})")
        self._multiply((wide,), begun)
        residual, vector = Section(0, wide), Section(wide, wide)
        dtype = CERTIFYING.storage
        for each in self._all():
            self._widen(each, panel, first)  # it was scaled where the operator scales from the right
            x, y = self._own_wide(each)
            at = each.norms[3 * group * wide : 3 * (group + 1) * wide]
            each.bring(theta, at[2 * wide :])
            each.wide_kernels.subtract(each.computing, x[None], at[2 * wide :], y)
            each.wide_kernels.gram(each.computing, y[None], y, each.own_section(residual, dtype, wide))
            each.wide_kernels.gram(each.computing, x[None], x, each.own_section(vector, dtype, wide))
        sections = residual, vector
        self._share(sections, dtype, wide)
        for each in self._all():
            for number, section in enumerate(sections):
                out = each.norms[(3 * group + number) * wide : (3 * group + number + 1) * wide]
                each.wide_kernels.add_partials(each.computing, each.section(section, dtype, wide), out)
            each.products.use(0)

    def _own_wide(self, each: SpaceDevice) -> tuple[Tile, Tile]:
        x, y = each.wide()
        return x[each.rows.start : each.rows.stop], y

    def _widen(self, each: SpaceDevice, panel: int, first: int) -> None:
        each.kernels.widen(each.computing, each.basis[panel], first, self._own_wide(each)[0])

    # what is told

    @property
    def copied_bytes(self) -> dict[str, int]:
        """Bytes of blocks over each link until now, without those that were brought for a product that is still to come."""
        tier = self.plan.products.tier
        return {
            f"{tier}->{share.device}": each.products.scan.copied_bytes - each.products.scan.ahead_bytes
            for share, each in zip(self.plan.products.shares, self._devices, strict=True)
        }

    @property
    def ahead_bytes(self) -> int:
        """Bytes of blocks that were brought for the next product."""
        return sum(each.products.scan.ahead_bytes for each in self._devices)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of panels that devices copied from each other."""
        return sum(each.products.exchanged_bytes for each in self._devices) - self.sum_bytes

    @property
    def sum_bytes(self) -> int:
        """Bytes of partial sums that devices copied from each other."""
        return sum(each.sum_bytes for each in self._devices)

    @property
    def brought_bytes(self) -> int:
        """Bytes of vectors and coefficients from the host to devices."""
        return sum(each.brought_bytes for each in self._devices)

    @property
    def returned_bytes(self) -> int:
        """Bytes of vectors and coefficients from devices to the host."""
        return sum(each.returned_bytes for each in self._devices)

    @property
    def trace(self) -> Trace | None:
        """Every copy, product and piece of work until now; None where none was asked for. Waits."""
        if not self._is_traced:
            return None
        if self._stack is not None:
            with self._guarded():
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

    def _all(self) -> Iterator[SpaceDevice]:
        """Every device, current while it is dealt with."""
        for each in self._devices:
            with each.device.current():
                yield each

    @contextmanager
    def _working(self, label: str) -> Iterator[None]:
        """Work on panels inside a block: it has a name in a trace, and its seconds count."""
        with self._guarded():
            begun = [each.computing.record() for each in self._all()]
            yield
            ended = [each.tell(label, since) for each, since in zip(self._all(), begun, strict=True)]
            self.seconds.pending.append(("panels", begun[:1], ended[:1]))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Refuse where the space is closed, and close it when what is inside the block fails or is interrupted."""
        refuse_in_child(self._process, "this space")
        with self._lock:
            if self._stack is None:
                raise ClosedError("this space is closed: open another one")
            try:
                yield
            except BaseException:
                stack, self._stack = self._stack, None
                if stack is None or not stack.__exit__(*sys.exc_info()):
                    raise

    def _wait(self) -> None:
        """Until all that was enqueued is done, but for copies of blocks; raise what went wrong."""
        since = time.perf_counter()
        for each in self._all():
            finish(each.device, [each.computing])
        self.seconds.host += time.perf_counter() - since
        self.seconds.settle()

    def close(self) -> None:
        """Let go of devices and memory; a second call does nothing."""
        with self._lock:
            stack, self._stack = self._stack, None
            if stack is not None and self._process == os.getpid():
                if self._is_traced:
                    self._products.finish()
                stack.close()

    def __enter__(self) -> DeviceSpace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.n, "block": self.block, "capacity": self.capacity}
        return one_line(self, facts | {"precision": self.precision.value, "devices": self.plan.products.devices})


def _w_alone(each: SpaceDevice) -> Tile:
    """W as a basis of one panel."""
    return each.view("w alone", lambda: each.w[None])


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

    Parameters
    ----------
    A : BlockCSR or Operator
        The matrix; it stays open when the space is closed.
    block : int
        Columns of a panel: 1, 2, 4 or 8.
    capacity : int
        Panels of the basis.
    precision : Precision or str, optional
        ``"DDD"`` (default), ``"FDF"`` or ``"FFF"``.
    devices : str, sequence of str, or int, optional
        Devices as for :func:`ooc_chol.multiply`.
    memory_budget : int or str, optional
        Most bytes on each device; by default what is free.
    ring_slots : int
        Blocks in transit.
    trace : bool
        Whether everything is recorded.

    Returns
    -------
    DeviceSpace
        A context manager.

    Raises
    ------
    BudgetError
        The budget does not hold the ring beside vectors and basis, or a device has less memory free.
    ValueError
        The matrix is not square, or there is no such device.
    """
    operator = operator_of(A)
    plan = plan_space(
        operator.matrix.blocks,
        precision=precision_of(precision),
        block=block,
        capacity=capacity,
        devices=resolve_devices(devices),
        memory_budget=memory_budget,
        tier=tier_name(operator.matrix),
        diagonals=diagonals_of(operator),
        ring_slots=ring_slots,
    )
    return DeviceSpace(operator, plan, trace=trace)
