"""The plan of a tensor on devices: what each keeps, what passes through it, and bytes over each link and step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from ooc_chol.calls.machine import Machine
from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.config import format_bytes, parse_bytes
from ooc_chol.errors import BudgetError
from ooc_chol.files.outputs import AnyPath
from ooc_chol.kernels.registry import tensor_workspace_bytes
from ooc_chol.tensors.predictions import paying_count, predicted_steps
from ooc_chol.tensors.share import TensorProblem, TensorShare, part_of

#: Where the part of a tensor is that devices do not keep.
TensorTier: TypeAlias = Literal["memory", "file"]
#: Panels or groups that are in transit at once, if there is room; with one, copies and kernels take turns.
RING_SLOTS = 2
#: Devices that have lines of their own on the printed page.
_MOST_DEVICES = 8
#: Links that have.
_MOST_LINKS = 3 * _MOST_DEVICES


@dataclass(frozen=True, repr=False)
class TensorPlan(AbstractPlan):
    """Plan of :func:`ooc_chol.impute`: what each device keeps, and what crosses which link in a step.

    Parameters
    ----------
    problem : TensorProblem
        The tensor and its transform.
    shares : tuple of TensorShare
        One for each device.
    budget_bytes : int
        Most bytes of each.
    tier : {"memory", "file"}
        Where what they do not keep is.
    offered : tuple of str
        Devices that the call may use: those of ``shares``, and behind them what would not make a step shorter.
    predicted : tuple of float
        Seconds of a step in core on the first of these, on two, and so on; nothing where no rates are known.
    """

    problem: TensorProblem
    shares: tuple[TensorShare, ...]
    budget_bytes: int
    tier: TensorTier = "memory"
    offered: tuple[str, ...] = ()
    predicted: tuple[float, ...] = ()
    call = "impute"
    unit = "step"

    @property
    def devices(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(share.device for share in self.shares)

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        return max(share.peak_bytes for share in self.shares)

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of a step in which no slice has a second try; None out of core, and where no rates are known."""
        return self.predicted[len(self.shares) - 1] if self.predicted and self.is_in_core else None

    @property
    def is_whole(self) -> bool:
        """True if one device of the host has the tensor in whole arrays, which no link is between."""
        return self.shares[0].is_whole

    @property
    def is_in_core(self) -> bool:
        """True if devices keep all of the tensor and of its transform: only figures leave them in a step."""
        return not self.passing_bytes

    @cached_property
    def passing_slices(self) -> tuple[range, ...]:
        """Slices of the transform that no device keeps, of each device."""
        return tuple(share.passing_slices for share in self.shares)

    @cached_property
    def host_rows(self) -> int:
        """How many slices of the transform no device keeps."""
        return sum(len(rows) for rows in self.passing_slices)

    @property
    def host_columns(self) -> int:
        """How many columns of the tensor no device keeps."""
        return sum(share.columns - share.kept_columns for share in self.shares)

    @property
    def passing_bytes(self) -> int:
        """Bytes of the tensor, its transform and of warm starts that no device keeps, and of the mask of that."""
        if self.is_whole:
            rows = self.host_rows + (self.problem.shape.vertices if self.host_columns else 0)
            return rows * self.problem.shape.width * self.problem.itemsize
        return self.host_rows * self.problem.slice_bytes + self.problem.tensor_bytes(self.host_columns)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory for what no device keeps; none where that is in files."""
        return self.passing_bytes if self.tier == "memory" else 0

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes over each link in a step."""
        return self.step_bytes()

    def step_bytes(self) -> dict[str, int]:
        """Bytes over each link in a step.

        Returns
        -------
        dict of str to int
            By names such as ``"memory->cuda:0"``, ``"cuda:0->memory"``, and ``"peer->cuda:0"`` for what a device copies from
            the others; a link that nothing crosses is left out.

        Notes
        -----
        What a device does not keep passes: slices of the transform, there and back for the thresholds and for the panels; the
        tensor, there and back. Of 2 r m n + 2 r m n + 2 N m n entries in all, a device saves 4 for each of the transform that it
        keeps, and 2 for each of the tensor.
        """
        found = dict[str, int]()
        for share in self._linked:
            passing = len(share.passing_slices) * self.problem.slice_bytes
            tensor = share.columns - share.kept_columns
            panels = self.host_rows * share.columns * self.problem.itemsize
            figures = 8 * len(share.slices) + 16 * len(share.panels)
            found[f"{self.tier}->{share.device}"] = passing + panels + self.problem.tensor_bytes(tensor)
            returned = self.problem.shape.vertices * tensor * self.problem.itemsize
            found[f"{share.device}->{self.tier}"] = passing + panels + returned + figures
            found[f"peer->{share.device}"] = self._pulled(share) + self._pushed(share)
        return _crossed(found)

    def open_bytes(self) -> dict[str, int]:
        """Bytes over each link when a space is opened: the eigenvectors to each device."""
        shape = self.problem.shape
        basis = shape.vertices * shape.components * self.problem.precision.compute.itemsize
        return {f"{self.tier}->{share.device}": basis for share in self._linked}

    def load_bytes(self, *, has_start: bool = False) -> dict[str, int]:
        """Bytes over each link when a problem is loaded: mask, tensor, its first transform, its norms, zeros of a group.

        Parameters
        ----------
        has_start : bool
            True if an earlier estimate is loaded, too: the tensor is brought and transformed twice then.

        Returns
        -------
        dict of str to int
            Bytes by link.
        """
        problem, found = self.problem, self.largest_bytes()
        for share in self._linked:
            mask = problem.shape.vertices * (1 if problem.mask == "slices" else share.kept_columns)
            warm = 8 * problem.warm_entries * min(problem.group, len(share.kept_slices))
            links = {
                f"{self.tier}->{share.device}": problem.shape.vertices * share.columns * problem.itemsize,
                f"{share.device}->{self.tier}": self.host_rows * share.columns * problem.itemsize,
                f"peer->{share.device}": self._pushed(share),
            }
            for link, nbytes in links.items():
                found[link] = found.get(link, 0) + nbytes * (1 + has_start)
            found[f"{self.tier}->{share.device}"] += mask + warm
        return _crossed(found)

    def largest_bytes(self) -> dict[str, int]:
        """Bytes over each link for the largest singular values of all slices of the transform."""
        found = dict[str, int]()
        for share in self._linked:
            passing = len(share.passing_slices) * self.problem.shape.width * self.problem.itemsize
            found[f"{self.tier}->{share.device}"] = passing
            found[f"{share.device}->{self.tier}"] = 8 * len(share.slices)
        return _crossed(found)

    @property
    def _linked(self) -> tuple[TensorShare, ...]:
        """Shares of devices that a link leads to."""
        return () if self.is_whole else self.shares

    def _pulled(self, share: TensorShare) -> int:
        """Bytes of slices that other devices keep, of the panels of a device: it copies them, to transform them back."""
        rows = sum(len(each.kept_slices) for each in self.shares if each is not share)
        return rows * share.columns * self.problem.itemsize

    def _pushed(self, share: TensorShare) -> int:
        """Bytes of the slices that a device keeps, of panels that others have transformed: it copies them."""
        return len(share.kept_slices) * (self.problem.shape.width - share.columns) * self.problem.itemsize

    def memory(self) -> dict[str, dict[str, int]]:
        """Bytes of each array of each device, and of the workspace, by devices and names."""
        return {
            share.device: {name: spec.nbytes for name, spec in share.arrays.items()} | {"workspace": share.workspace_bytes}
            for share in self.shares
        }

    def figures(self) -> Mapping[str, object]:
        """Shape, precision and route, memory by arrays, and bytes over links before the first step."""
        return {
            "shape": list(self.problem.shape),
            "precision": self.problem.precision.value,
            "svt": self.problem.svt,
            "mask": self.problem.mask,
            "tier": self.tier,
            "passing_bytes": self.passing_bytes,
            "memory": self.memory(),
            "bytes_open": self.open_bytes(),
            "bytes_load": self.load_bytes(),
        }

    def facts(self) -> Mapping[str, object]:
        """Facts for ``repr``."""
        facts: dict[str, object] = {"shape": tuple(self.problem.shape), "precision": self.problem.precision.value}
        facts |= {"svt": self.problem.svt, "devices": self.devices, "in core": self.is_in_core}
        return facts | {"peak": format_bytes(self.peak_bytes)}

    def lines(self) -> Iterator[Line]:
        """Lines of the page."""
        problem, shape = self.problem, self.problem.shape
        slices = f"{shape.vertices} slices of {shape.rows} x {shape.columns}"
        yield "", f"Plan: a tensor of {slices} is imputed over a graph with {shape.components} eigenvectors"
        yield "precision", f"{problem.precision.value}; singular values by {problem.svt!r}; observed are {problem.mask}"
        entries = shape.width * problem.itemsize
        whole = f"tensor {format_bytes(shape.vertices * entries)}, transform {format_bytes(shape.components * entries)}"
        yield "data", f"{whole}; {len(problem.panels)} panels of columns and {len(problem.groups)} groups of slices"
        if self.seconds is not None:
            told = ", ".join(f"{1e3 * each:.3g} ms on {count}" for count, each in enumerate(self.predicted, 1))
            yield "devices", f"{len(self.shares)} of {len(self.offered)} take part; a step is predicted to take {told}"
        parts = self.memory()
        for share in self.shares[:_MOST_DEVICES]:
            kept = f"{share.kept_panels} of {len(share.panels)} panels and {share.kept_groups} of {len(share.groups)} groups"
            how = "in whole arrays" if share.is_whole else f"{share.ring_slots} in transit"
            yield "device", f"{share.device} keeps {kept}; {how}"
            held = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts[share.device].items() if nbytes)
            yield "memory", f"{held}; peak {format_bytes(share.peak_bytes)} of {format_bytes(self.budget_bytes)}"
        if len(self.shares) > _MOST_DEVICES:
            yield "device", f"... and {len(self.shares) - _MOST_DEVICES} more"
        place = "host memory" if self.tier == "memory" else "files"
        yield "host", "nothing" if self.is_in_core else f"{format_bytes(self.passing_bytes)} in {place}"
        links, loaded = self.step_bytes(), self.load_bytes()
        for link in list(links)[:_MOST_LINKS]:
            yield "moves", f"{link}: {format_bytes(links[link])} a step, {format_bytes(loaded.get(link, 0))} to load"
        if len(links) > _MOST_LINKS:
            rest = sum(list(links.values())[_MOST_LINKS:])
            yield "moves", f"... and {len(links) - _MOST_LINKS} more links: {format_bytes(rest)} a step"


def _crossed(links: dict[str, int]) -> dict[str, int]:
    return {link: nbytes for link, nbytes in links.items() if nbytes}


def plan_tensor(problem: TensorProblem, machine: Machine, folder: AnyPath | None) -> TensorPlan:
    """Plan how a tensor lies on devices: memory, and bytes over each link and step.

    One device of the host without a budget of its own has whole arrays, where what is free holds them: in files of a ``folder``,
    or in memory. Any other keeps its eigenvectors, the estimate of a panel and the ring. What is left goes to slices of the
    transform, each byte of which would cross the link four times a step, then to the tensor, which would cross it twice. Of GPUs
    as many take part as make a step shorter, as predicted, if these keep everything, else all. Raises ``BudgetError``.
    """
    tier: TensorTier = "memory" if folder is None else "file"
    names, budget = machine.names, machine.budget_bytes
    if len(names) == 1 and machine.kind.is_in_host_memory and machine.has_default_budget:
        panels, groups = (0, 0) if tier == "file" else (len(problem.panels), len(problem.groups))
        whole = TensorShare(problem, names[0], problem.panels, problem.groups, panels, groups, 0, 0)
        if whole.peak_bytes <= budget:
            return TensorPlan(problem, (whole,), budget, tier, names)
    predicted = predicted_steps(problem, names)
    if (count := paying_count(predicted)) < len(names) and predicted:
        fewer = TensorPlan(problem, shares_of(problem, names[:count], budget), budget, tier, names, predicted)
        if fewer.is_in_core:
            return fewer
    return TensorPlan(problem, shares_of(problem, names, budget), budget, tier, names, predicted)


def shares_of(problem: TensorProblem, names: Sequence[str], budget: int) -> tuple[TensorShare, ...]:
    """Shares of devices all of which take part."""
    count = len(names)
    return tuple(
        _share(problem, name, part_of(problem.panels, i, count), part_of(problem.groups, i, count), budget)
        for i, name in enumerate(names)
    )


def plan_that_fits(plan: Any, problem: TensorProblem, machine: Machine, folder: AnyPath | None) -> TensorPlan:
    """A caller's plan, which must be that of the problem: TypeError or ValueError."""
    if not isinstance(plan, TensorPlan):
        raise TypeError(f"plan is a {type(plan).__name__}; give what oc.plan_impute returns, or report.plan of oc.impute")
    facts = {"shape": (tuple(plan.problem.shape), tuple(problem.shape)), "precision": (plan.problem.precision, problem.precision)}
    facts |= {"svt": (plan.problem.svt, problem.svt), "mask": (plan.problem.mask, problem.mask)}
    facts |= {"devices": (plan.offered, plan.offered if machine.has_default_devices else machine.names)}
    facts |= {"memory_budget": (plan.budget_bytes, plan.budget_bytes if machine.has_default_budget else machine.budget_bytes)}
    facts |= {"work_folder": (plan.tier == "file", folder is not None)}
    for name, (planned, asked) in facts.items():
        if planned != asked:
            raise ValueError(f"plan is of another imputation: its {name} is {planned!s:.80}, here {asked!s:.80}; plan this one")
    return plan if plan.problem.ends == problem.ends else _with_groups_of(problem, plan)


def _with_groups_of(problem: TensorProblem, plan: TensorPlan) -> TensorPlan:
    """A plan that was made before eigenspaces were known, with groups that do not end within them."""
    if not plan.is_whole:
        return replace(plan, problem=problem, shares=shares_of(problem, plan.devices, plan.budget_bytes))
    (share,) = plan.shares
    kept = len(problem.groups) if share.kept_groups else 0
    return replace(plan, problem=problem, shares=(replace(share, problem=problem, groups=problem.groups, kept_groups=kept),))


def check_host_budget(plan: TensorPlan, host_budget: int | str | None, machine: Machine | None = None) -> None:
    """Raise BudgetError where host memory for what devices do not keep is more than that, or than ``machine`` has free."""
    if host_budget is None and (machine is None or not plan.host_bytes):
        return
    budget = machine.free_host_bytes if machine and host_budget is None else parse_bytes(host_budget, "host_budget")
    if plan.host_bytes > budget:
        advice = "give work_folder, a folder on a disk, or a larger memory_budget, so that devices keep more"
        raise BudgetError("host_budget", plan.host_bytes, budget, advice)


def _share(problem: TensorProblem, device: str, panels: range, groups: range, budget: int) -> TensorShare:
    """Panels and groups that a device keeps: as many as the budget holds."""
    workspace = tensor_workspace_bytes(device, problem.shape, problem.precision, problem.svt)

    def share(kept_panels: int, kept_groups: int, slots: int) -> TensorShare:
        return TensorShare(problem, device, panels, groups, kept_panels, kept_groups, slots, workspace)

    for slots in range(RING_SLOTS, 0, -1):
        if share(len(panels), len(groups), slots).peak_bytes <= budget:
            return share(len(panels), len(groups), slots)
    for slots in range(RING_SLOTS, 0, -1):
        for make, most in (
            (lambda kept, slots=slots: share(kept, len(groups), slots), len(panels)),
            (lambda kept, slots=slots: share(0, kept, slots), len(groups)),
        ):
            if (found := _most_kept(make, most, budget)) is not None:
                return found
    least = share(0, 0, 1)
    advice = f"give a larger memory_budget, fewer eigenvectors than {problem.shape.components}, or more devices"
    raise BudgetError(f"memory_budget of {device}", least.peak_bytes, budget, advice)


def _most_kept(make: Callable[[int], TensorShare], most: int, budget: int) -> TensorShare | None:
    """The share that keeps most and fits, of those that do not keep all; None where not even that fits that keeps nothing."""
    low, high = 0, max(1, most)
    if make(0).peak_bytes > budget:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if make(middle).peak_bytes <= budget else (low, middle)
    return make(low)
