"""A graph-tensor on devices: all of it, or panels and groups of slices that pass while the rest is in host memory or a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import one_line
from ooc_chol.files.outputs import AnyPath
from ooc_chol.hardware.registry import device_kind, open_device, page_locked
from ooc_chol.interfaces import AbstractEvent, Tile, Turns
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces.tensors import Shrinkage, Slices, TensorDevice, runs_within, within_groups
from ooc_chol.kernels.registry import tensor_kernels
from ooc_chol.process.garbage_collector import collector_off
from ooc_chol.process.team import ThreadTeam
from ooc_chol.runtime.holding import Holding
from ooc_chol.runtime.passes import Pass, take_turns
from ooc_chol.runtime.shutdown import devices_closed
from ooc_chol.tensors.device_part import TensorPart
from ooc_chol.tensors.plan import TensorPlan
from ooc_chol.tensors.space import AbstractTensorSpace, StepFigures, TensorSeconds
from ooc_chol.tensors.storage import Given, GivenPanels, HostParts
from ooc_chol.tracing.trace import Trace

#: A part of a step: what its seconds are called, and events before and behind it on each device.
_Phase: TypeAlias = tuple[str, list[AbstractEvent], list[AbstractEvent]]


@final
class DeviceTensorSpace(AbstractTensorSpace):
    """A tensor on devices, all of one kind.

    Shapes: ``basis`` (N, r). A step is a scan of groups of slices, each device its own, and a scan of panels of columns. Between
    the two a device copies from the others what it needs of the slices that they keep, panel by panel while kernels run; nothing
    is gathered on one of them. Panels are always transformed in slots of one layout, and thresholds called for one group at a
    time: so the bits depend on no budget and no number of devices. What was observed is in X itself, and is not kept a second
    time. The calling thread enqueues the scans of all devices in turns; where thresholds wait for their device, it feeds the
    others. A call that fails or is interrupted closes the space. Raises ``BudgetError``, ``TierError`` and ``ValueError``.
    """

    def __init__(
        self,
        plan: TensorPlan,
        basis: NDArray[Any],
        *,
        folder: AnyPath | None = None,
        trace: bool = False,
        eigenspaces: Sequence[range] = (),
    ) -> None:
        problem = plan.problem
        self.plan, self.shape, self.precision = plan, problem.shape, problem.precision
        self.svt, self.devices, self._seconds = problem.svt, plan.devices, TensorSeconds()
        expected = (problem.shape.vertices, problem.shape.components)
        if basis.shape != expected:
            raise ValueError(f"the basis has shape {basis.shape}, but the plan is for {expected}")
        if (folder is None) == (plan.tier == "file"):
            raise ValueError(
                f"folder is {folder!s:.200}, but the plan keeps what devices do not in {plan.tier}: they go together"
            )
        self.joined = within_groups(eigenspaces, problem.ends)
        self._is_traced = trace
        self._run = Pass("impute", is_traced=trace)
        self._planned: dict[str, int] = {}
        self._largest: float | None = None  # None before something is loaded
        self._pending: list[_Phase] = []
        self._over: list[_Phase] = []  # those whose seconds are still to be looked at
        with ExitStack() as stack:
            self._host = HostParts(plan, folder)
            stack.callback(self._host.release)
            self._team = stack.enter_context(closing(ThreadTeam(host_threads(1))))
            stack.enter_context(page_locked(self.devices, fresh=self._host.memory))
            self._parts = list[TensorPart]()
            stack.callback(_forget, self._parts)
            self._open(stack)
            for part in self._each():
                part.bring_basis(basis)
            for part in self._each():
                part.finish()
            self._holding = Holding(self, stack.pop_all(), "this space")
        self._plan_for(plan.open_bytes())

    def _open(self, stack: ExitStack) -> None:
        """Open all devices, with memory and streams; ``stack`` closes them."""
        opened: list[TensorDevice] = []
        stack.enter_context(devices_closed(opened, []))
        problem = self.plan.problem
        threads = host_threads(len(self.devices)) if device_kind(self.devices[0]).is_in_host_memory else 1
        for share in self.plan.shares:
            kernels = tensor_kernels(share.device, problem.shape, problem.precision, problem.svt, threads)
            opened.append(open_device(share.device, kernels))
            with opened[-1].current():
                self._parts.append(TensorPart(opened[-1], self.plan, share, self._host, self._run))

    def _each(self) -> Iterator[TensorPart]:
        """One part after the other, its device current."""
        for part in self._parts:
            with part.device.current():
                yield part

    # what is done

    def load(
        self, observed: NDArray[Any], mask: NDArray[np.bool_], start: NDArray[Any] | None = None, *, center: float = 0.0
    ) -> None:
        """Wait for the devices at the end."""
        given = self._checked(observed, mask, start)._replace(center=center)
        with self._holding.guarded():
            self._largest = None
            self._host.warm[...] = 0
            for part in self._each():
                part.clear_warm()
                if self.plan.problem.mask == "slices":
                    part.bring_slice_mask(given.mask_panel(slice(0, 1)).reshape(-1))
            self._give(given._replace(start=None), has_mask=True)
            norms = self._norms()
            if start is not None:
                self._give(given, has_mask=False)
            self._plan_for(self.plan.load_bytes(has_start=start is not None))
            self._settle()
        largest = float(norms.max(initial=0.0))
        if not np.isfinite(largest):
            raise self._not_finite(np.flatnonzero(~np.isfinite(norms)))
        self._largest = largest

    def _checked(self, observed: NDArray[Any], mask: NDArray[np.bool_], start: NDArray[Any] | None) -> Given:
        """Input of the caller, as unfoldings; refused unless it fits the plan."""
        n, whole = self.shape.vertices, (self.shape.vertices, self.shape.rows, self.shape.columns)
        for name, each in {"observed": observed, "start": start}.items():
            if each is not None and (each.shape != whole or each.dtype != self.precision.storage or not each.flags.c_contiguous):
                facts = f"{each.dtype} of shape {each.shape} and strides {each.strides}"
                raise ValueError(f"{name} is {facts}, but this space takes {self.precision.storage} of shape {whole}, row-major")
        expected = (n,) if self.plan.problem.mask == "slices" else whole
        if mask.shape != expected or mask.dtype != np.bool_:
            problem = f"the plan is for a mask of {self.plan.problem.mask}: bool of shape {expected}"
            raise ValueError(f"mask is {mask.dtype} of shape {mask.shape}, but {problem}")
        return Given(observed.reshape(n, -1), mask.reshape(n, -1), None if start is None else start.reshape(n, -1))

    def _give(self, given: Given, *, has_mask: bool) -> None:
        """X becomes what was given, and Z its transform."""
        with self._phase("transform"):
            self._wait()  # nothing is copied from host memory while it changes
            self._host.fill(given, self._team, has_mask=has_mask)
            panels = GivenPanels(self.plan, given, "array")
            self._in_turns(lambda part: part.over_given(self._parts, panels, with_mask=has_mask))
            self._wait()  # what was given is read by then

    def _norms(self) -> NDArray[np.float64]:
        """Largest singular values of all slices of Z; waits."""

        def use(part: TensorPart, group: int, slices: Slices, _: Tile | None) -> Turns:
            begun = part.track.now(part.computing)
            look = part.device.kernels.norms_in_turns
            yield from look(part.computing, slices, part.norms(group), joined=self._joined_of(group))
            part.tell_work(begun, f"norms {group}")

        norms = np.zeros((self.shape.components, 1))
        with self._phase("threshold"):
            self._in_turns(lambda part: part.over_groups(use, with_warm=False))
        for part in self._each():
            part.read("norms", norms[part.share.slices.start : part.share.slices.stop])
        self._wait()
        return norms[:, 0]

    def _joined_of(self, group: int) -> list[range]:
        """Runs of a group, counted from its first slice."""
        rows = self.plan.problem.slices(range(group, group + 1))
        return runs_within(self.joined, slice(rows.start, rows.stop))

    def largest(self) -> float:
        """Largest singular value of any slice of ``U.T Y``, as it was when Y was loaded."""
        return self._loaded()

    def _loaded(self) -> float:
        if self._largest is None:
            raise ValueError("nothing is loaded in this space: call load first")
        return self._largest

    def step(self, lam: float, momentum: float = 0.0, shrinkage: Shrinkage = "soft", number: int = 0) -> StepFigures:
        """Wait for the devices at the end."""
        self._loaded()
        across = self._is_across(number)

        def use(part: TensorPart, group: int, slices: Slices, warm: Tile | None) -> Turns:
            begun = part.track.now(part.computing)
            lower = part.device.kernels.threshold_in_turns
            how: dict[str, Any] = {"shrinkage": shrinkage, "joined": self._joined_of(group), "across": across}
            yield from lower(part.computing, slices, lam, *part.counts(group), basis=warm, **how)
            part.tell_work(begun, f"threshold {group}")

        with self._holding.guarded():
            with self._phase("threshold"):
                self._in_turns(lambda part: part.over_groups(use, with_warm=True))
            with self._phase("transform"):
                self._in_turns(lambda part: part.over_panels(self._parts, momentum))
                self._look()  # at the last step, while the devices work
            counts, sums = self._figures()
            self._plan_for(self.plan.step_bytes())
            self._settle()
        if (counts[1] < 0).any():
            raise self._not_finite(np.flatnonzero(counts[1] < 0))
        change = size = 0.0
        for of_panel in sums.tolist():
            change, size = change + of_panel[0], size + of_panel[1]
        return StepFigures(change, size, counts[0].copy(), int(counts[1].sum()))

    def _figures(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Ranks and flags of all slices, and sums of all panels; waits."""
        counts = [np.zeros((2, len(part.share.slices)), np.int32) for part in self._parts]
        sums = np.zeros((len(self.plan.problem.panels), 2))
        for part, own in zip(self._each(), counts, strict=True):
            part.read("counts", own)
            part.read("sums", sums[part.share.panels.start : part.share.panels.stop])
        self._wait()
        return np.concatenate(counts, axis=1), sums

    def take(self, rows: range | None = None) -> NDArray[Any]:
        """X (N, m, n), or slices of it, as a new array; waits."""
        wanted = range(self.shape.vertices) if rows is None else rows
        found = np.empty((len(wanted), self.shape.width), self.precision.storage)
        with self._holding.guarded():
            self._wait()
            for part in self._each():
                part.take(wanted, found)
            self._host.take(wanted, found, self._team)
            self._wait()
        return found.reshape(-1, self.shape.rows, self.shape.columns)

    def warm(self) -> Sequence[NDArray[np.float64]]:
        """Start of thresholds, (r, d, c), or nothing; waits."""
        if not self.plan.problem.warm_entries:
            return []
        shape = self._warm_shape
        if not any(share.kept_slices for share in self.plan.shares):
            return [self._host.warm.reshape(shape)]
        found = np.empty((shape[0], shape[1] * shape[2]))
        with self._holding.guarded():
            for part in self._each():
                if part.share.kept_slices:
                    part.take_warm(found)
            self._wait()
            for rows in filter(None, self.plan.passing_slices):
                found[rows.start : rows.stop] = self._host.warm[self._host.rows(rows.start, rows.stop)]
        return [found.reshape(shape)]

    def warm_up(self, arrays: Sequence[NDArray[np.float64]]) -> None:
        shape = self._warm_shape
        expected = [shape] if shape[2] else []
        if [each.shape for each in arrays] != expected:
            raise ValueError(f"a warm start has shapes {[each.shape for each in arrays]}, but this space has {expected}")
        if not arrays:
            return
        given = np.ascontiguousarray(arrays[0], np.float64).reshape(shape[0], -1)
        with self._holding.guarded():
            self._wait()
            for part in self._each():
                part.bring_warm(given)
            for rows in filter(None, self.plan.passing_slices):
                self._host.warm[self._host.rows(rows.start, rows.stop)] = given[rows.start : rows.stop]
            self._wait()

    @property
    def _warm_shape(self) -> tuple[int, int, int]:
        order = self.shape.order
        return self.shape.components, order, self.plan.problem.warm_entries // order

    # scans

    def _in_turns(self, scan: Callable[[TensorPart], Turns]) -> None:
        """Enqueue a scan on each device."""
        with collector_off():
            take_turns([part.device for part in self._parts], lambda number: scan(self._parts[number]))

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """A scan inside a block: what is enqueued behind it begins once it is over on all devices."""
        begun = [part.computing.record() for part in self._each()]
        yield
        self._meet()
        self._pending.append((name, begun, [part.computing.record() for part in self._each()]))

    def _meet(self) -> None:
        """Let all streams of all devices wait for each other."""
        ended = [part.meet() for part in self._each()]
        for part in self._each():
            for stream in part.streams:
                for event in ended:
                    stream.wait(event)

    # what is told

    @property
    def planned_bytes(self) -> Mapping[str, int]:
        """Bytes over each link that the plan has for what was done: to open, to load, and of each step."""
        return dict(self._planned)

    @property
    def executed_bytes(self) -> Mapping[str, int]:
        """Bytes over each link that were copied for that; of :meth:`take` and warm starts of a caller none are counted."""
        found = dict[str, int]()
        for part in self._parts:
            for link, nbytes in part.copied.items():
                found[link] = found.get(link, 0) + nbytes
        return found

    def _plan_for(self, links: Mapping[str, int]) -> None:
        for link, nbytes in links.items():
            self._planned[link] = self._planned.get(link, 0) + nbytes

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device has allocated."""
        return self.plan.peak_bytes

    @property
    def trace(self) -> Trace | None:  # type: ignore[override]
        """Every copy and every piece of work until now; None where none was asked for. Waits."""
        if not self._is_traced:
            return None
        if self._holding.is_open:
            with self._holding.guarded():
                self._wait()
        return self._trace_of(self._run)

    # running

    def _wait(self) -> None:
        """Until all that was enqueued is done; raise what went wrong."""
        for part in self._each():
            part.finish()
            part.track.settle()

    def _settle(self) -> None:
        """All that was enqueued is over, and waited for."""
        self._look()
        self._over, self._pending = self._pending, []
        for part in self._parts:
            part.settle()

    def _look(self) -> None:
        """Add the seconds of what is over: several events for each panel, which take a host longer than devices should wait."""
        if not self._over:
            return
        for what, begun, ended in self._over:
            seconds = (max(event.time_ns() for event in ended) - min(event.time_ns() for event in begun)) / 1e9
            setattr(self._seconds, what, getattr(self._seconds, what) + seconds)
        self._over.clear()
        self._seconds.exchange += max(part.exchange_seconds() for part in self._each())

    @property
    def seconds(self) -> TensorSeconds:  # type: ignore[override]
        """Where the seconds went, of all steps until now; of a closed space but for the last one."""
        if self._holding.is_open:
            self._look()
        return self._seconds

    def close(self) -> None:
        self._holding.close()

    def __repr__(self) -> str:
        facts: dict[str, object] = {"shape": tuple(self.shape), "precision": self.precision.value, "svt": self.svt}
        return one_line(self, facts | {"devices": self.devices, "in core": self.plan.is_in_core})


def _forget(parts: Sequence[TensorPart]) -> None:
    """Let go of the memory of devices that are closed."""
    for part in parts:
        part.forget()
