"""The plan of a tensor on devices: what each keeps, what passes through it, and bytes over each link and step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from ooc_chol.config import format_bytes, parse_bytes
from ooc_chol.display.prints import one_line
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import default_budget, resolve_devices
from ooc_chol.kernels.interfaces.tensors import Svt, TensorShape, resolve_svt
from ooc_chol.kernels.registry import tensor_workspace_bytes
from ooc_chol.precision.triples import Precision
from ooc_chol.tensors.share import MaskKind, TensorProblem, TensorShare

#: Where the part of a tensor is that devices do not keep.
TensorTier: TypeAlias = Literal["memory", "file"]
#: Panels or groups that are in transit at once, if there is room; with one, copies and kernels take turns.
RING_SLOTS = 2
#: Devices that have lines of their own on the printed page.
_MOST_DEVICES = 8
#: Links that have.
_MOST_LINKS = 3 * _MOST_DEVICES


@dataclass(frozen=True)
class TensorPlan:
    """How a tensor is imputed on devices: what each keeps, and what crosses which link.

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
    """

    problem: TensorProblem
    shares: tuple[TensorShare, ...]
    budget_bytes: int
    tier: TensorTier = "memory"

    @property
    def devices(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(share.device for share in self.shares)

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        return max(share.peak_bytes for share in self.shares)

    @property
    def is_in_core(self) -> bool:
        """True if devices keep all of the tensor and of its transform: only figures leave them in a step."""
        return not self.host_bytes

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
    def host_bytes(self) -> int:
        """Bytes of the tensor, its transform and of warm starts that no device keeps, and of the mask of that."""
        return self.host_rows * self.problem.slice_bytes + self.problem.tensor_bytes(self.host_columns)

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
        for share in self.shares:
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
        return {f"{self.tier}->{share.device}": basis for share in self.shares}

    def load_bytes(self, *, has_start: bool = False) -> dict[str, int]:
        """Bytes over each link when a problem is loaded: mask, tensor, its first transform, and the norms of that.

        Parameters
        ----------
        has_start : bool
            Whether an earlier estimate is loaded, too: the tensor is brought and transformed twice then.

        Returns
        -------
        dict of str to int
            Bytes by link.
        """
        problem, found = self.problem, self.largest_bytes()
        for share in self.shares:
            mask = problem.shape.vertices * (1 if problem.mask == "slices" else share.kept_columns)
            warm = 8 * problem.warm_entries * len(share.kept_slices)
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
        for share in self.shares:
            passing = len(share.passing_slices) * self.problem.shape.width * self.problem.itemsize
            found[f"{self.tier}->{share.device}"] = passing
            found[f"{share.device}->{self.tier}"] = 8 * len(share.slices)
        return _crossed(found)

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

    def to_dict(self) -> dict[str, object]:
        """The plan's figures as plain data, which JSON can hold; bytes."""
        return {
            "shape": list(self.problem.shape),
            "precision": self.problem.precision.value,
            "svt": self.problem.svt,
            "mask": self.problem.mask,
            "devices": list(self.devices),
            "tier": self.tier,
            "budget_bytes": self.budget_bytes,
            "peak_bytes": self.peak_bytes,
            "host_bytes": self.host_bytes,
            "memory": self.memory(),
            "bytes_open": self.open_bytes(),
            "bytes_load": self.load_bytes(),
            "bytes_step": self.step_bytes(),
        }

    def __repr__(self) -> str:
        facts: dict[str, object] = {"shape": tuple(self.problem.shape), "precision": self.problem.precision.value}
        facts |= {"svt": self.problem.svt, "devices": self.devices, "in core": self.is_in_core}
        return one_line(self, facts | {"peak": format_bytes(self.peak_bytes)})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
        problem, shape = self.problem, self.problem.shape
        slices = f"{shape.vertices} slices of {shape.rows} x {shape.columns}"
        yield "", f"Plan: a tensor of {slices} is imputed over a graph with {shape.components} eigenvectors"
        yield "precision", f"{problem.precision.value}; singular values by {problem.svt!r}; observed are {problem.mask}"
        entries = shape.width * problem.itemsize
        whole = f"tensor {format_bytes(shape.vertices * entries)}, transform {format_bytes(shape.components * entries)}"
        yield "data", f"{whole}; {len(problem.panels)} panels of columns and {len(problem.groups)} groups of slices"
        parts = self.memory()
        for share in self.shares[:_MOST_DEVICES]:
            kept = f"{share.kept_panels} of {len(share.panels)} panels and {share.kept_groups} of {len(share.groups)} groups"
            yield "device", f"{share.device} keeps {kept}; {share.ring_slots} in transit"
            held = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts[share.device].items() if nbytes)
            yield "memory", f"{held}; peak {format_bytes(share.peak_bytes)} of {format_bytes(self.budget_bytes)}"
        if len(self.shares) > _MOST_DEVICES:
            yield "device", f"... and {len(self.shares) - _MOST_DEVICES} more"
        place = "host memory" if self.tier == "memory" else "files"
        yield "host", "nothing" if self.is_in_core else f"{format_bytes(self.host_bytes)} in {place}"
        links, loaded = self.step_bytes(), self.load_bytes()
        for link in list(links)[:_MOST_LINKS]:
            yield "moves", f"{link}: {format_bytes(links[link])} a step, {format_bytes(loaded.get(link, 0))} to load"
        if len(links) > _MOST_LINKS:
            rest = sum(list(links.values())[_MOST_LINKS:])
            yield "moves", f"... and {len(links) - _MOST_LINKS} more links: {format_bytes(rest)} a step"


def _crossed(links: dict[str, int]) -> dict[str, int]:
    return {link: nbytes for link, nbytes in links.items() if nbytes}


def plan_tensor(
    shape: Sequence[int],
    r: int | None = None,
    *,
    precision: Precision | str = Precision.FDF,
    svt: Svt = "auto",
    mask: MaskKind = "slices",
    devices: str | Sequence[str] | int | None = None,
    memory_budget: int | str | None = None,
    tier: TensorTier = "memory",
) -> TensorPlan:
    """Plan how a tensor lies on devices, without computing anything: memory, and bytes over each link and step.

    A device keeps its eigenvectors, the estimate of a panel and the ring. What is left goes to slices of the transform, each byte
    of which would cross the link four times a step, then to the tensor, which would cross it twice. Raises ``BudgetError``,
    ``TypeError`` and ``ValueError``.
    """
    names = resolve_devices(devices, must_exist=memory_budget is None)
    vertices, rows, columns = _shape_of(shape)
    components = vertices if r is None else _count("r", r, vertices)
    if mask not in ("slices", "entries") or tier not in ("memory", "file"):
        raise ValueError(f"mask={mask!r}, tier={tier!r}: a mask is of 'slices' or 'entries', and a tier 'memory' or 'file'")
    route = resolve_svt(svt, rows, columns)
    problem = TensorProblem(TensorShape(vertices, components, rows, columns), Precision(precision), route, mask)
    budget = default_budget(names) if memory_budget is None else parse_bytes(memory_budget, "memory_budget")
    count = len(names)
    shares = tuple(
        _share(problem, name, _part(problem.panels, i, count), _part(problem.groups, i, count), budget)
        for i, name in enumerate(names)
    )
    return TensorPlan(problem, shares, budget, tier)


def _shape_of(shape: Sequence[int]) -> tuple[int, int, int]:
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise ValueError(f"shape is {shape!r:.80}, but a tensor has three: slices, and rows and columns of each")
    vertices, rows, columns = (_count("shape", each) for each in shape)
    return vertices, rows, columns


def _count(name: str, value: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} has a {type(value).__name__}; give whole numbers")
    if value < 1 or (most is not None and value > most):
        raise ValueError(f"{name} has {value}; give at least 1{'' if most is None else f', at most {most}'}")
    return int(value)


def _part(whole: range, number: int, count: int) -> range:
    """The part of a range for one of so many devices: adjacent, and as equal as can be."""
    return whole[len(whole) * number // count : len(whole) * (number + 1) // count]


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
