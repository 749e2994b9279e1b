"""Share of one device in a tensor: panels of columns, groups of slices, and which of them it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_pages
from ooc_chol.display.prints import brief_repr
from ooc_chol.interfaces import ArraySpec
from ooc_chol.kernels.interfaces.tensors import (
    PANEL_COLUMNS,
    Svt,
    TensorShape,
    group_ends,
    slice_group,
    subspace_columns,
    within_groups,
)
from ooc_chol.precision.triples import Precision

#: What a mask says: which slices are observed, or which entries.
MaskKind: TypeAlias = Literal["slices", "entries"]
#: Where parts of a slot begin: multiples of so many bytes.
_ALIGNMENT = 512


def _by_reversed_bits(count: int) -> list[int]:
    """Numbers below ``count`` in the order of their bits read backwards: the even ones first, of these every other one first."""
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda number: int(f"{number:0{bits}b}"[::-1], 2))


def part_of(whole: range, number: int, count: int) -> range:
    """The part of a range for one of so many devices: adjacent, and as equal as can be."""
    return whole[len(whole) * number // count : len(whole) * (number + 1) // count]


@dataclass(frozen=True)
class TensorProblem:
    """A tensor with its transform, and how both are cut into panels and groups."""

    shape: TensorShape  #: Slices N of the tensor, r of its transform, and the rows and columns of each
    precision: Precision  #: Of entries and arithmetic
    svt: Svt  #: How singular values are found
    mask: MaskKind = "slices"  #: Of what the mask says whether it is observed
    cuts: tuple[int, ...] = ()  #: Where groups of the eigenvectors end, unless each has as many as the others

    __repr__ = brief_repr

    @property
    def itemsize(self) -> int:
        """Bytes of an entry of the tensor."""
        return self.precision.storage.itemsize

    @property
    def panels(self) -> range:
        """All panels of columns of the unfolding."""
        return range(-(-self.shape.width // PANEL_COLUMNS))

    def columns(self, panel: int) -> slice:
        """The columns of a panel."""
        return slice(panel * PANEL_COLUMNS, min((panel + 1) * PANEL_COLUMNS, self.shape.width))

    def columns_of(self, panels: range) -> int:
        """How many columns some adjacent panels have."""
        return min(panels.stop * PANEL_COLUMNS, self.shape.width) - panels.start * PANEL_COLUMNS if panels else 0

    def beside(self, eigenspaces: Sequence[range]) -> TensorProblem:
        """The same problem, whose groups of eigenvectors do not end within eigenspaces that they can hold."""
        ends, usual = (group_ends(self.shape.components, self.group, runs) for runs in (eigenspaces, ()))
        return replace(self, cuts=() if ends == usual else ends)

    @cached_property
    def dealt(self) -> tuple[range, ...]:
        """Groups of eigenvectors in the order of their slices, that of reversed bits: any adjacent ones are of all eigenvalues.

        Slices of large eigenvalues take longer, and each device has adjacent groups.
        """
        ends = self.cuts or group_ends(self.shape.components, self.group)
        groups = [range(start, stop) for start, stop in pairwise((0, *ends))]
        return tuple(groups[number] for number in _by_reversed_bits(len(groups)))

    @property
    def order(self) -> NDArray[np.intp]:
        """The eigenvector of each slice."""
        return np.concatenate([np.arange(each.start, each.stop) for each in self.dealt])

    def placed(self, eigenspaces: Sequence[range]) -> tuple[range, ...]:
        """Slices of eigenspaces, cut where groups end."""
        starts = dict(zip(self.dealt, (0, *self.ends), strict=False))
        found = []
        for run in within_groups(eigenspaces, sorted(each.stop for each in self.dealt)):
            by = next(start - group.start for group, start in starts.items() if run.start in group)
            found.append(range(run.start + by, run.stop + by))
        return tuple(sorted(found, key=lambda run: run.start))

    @property
    def group(self) -> int:
        """Most slices of a group."""
        return slice_group(self.shape.rows, self.shape.columns)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Where groups of slices end."""
        return tuple(accumulate(map(len, self.dealt)))

    @property
    def groups(self) -> range:
        """All groups of slices of the transform."""
        return range(len(self.ends))

    def slices(self, groups: range) -> range:
        """The slices of some adjacent groups."""
        starts = 0, *self.ends
        return range(starts[groups.start], starts[groups.stop])

    @cached_property
    def most_slices(self) -> int:
        """Slices of the largest group."""
        return max(stop - start for start, stop in pairwise((0, *self.ends)))

    @property
    def warm_entries(self) -> int:
        """Numbers of float64 with which the threshold of a slice begins."""
        shape = self.shape
        return shape.order * subspace_columns(shape.rows, shape.columns) if self.svt == "subspace" else 0

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice of the transform and of what its threshold begins with."""
        return self.shape.width * self.itemsize + 8 * self.warm_entries

    def tensor_bytes(self, columns: int) -> int:
        """Bytes of columns of the tensor, and of their mask if it is of entries."""
        return self.shape.vertices * columns * (self.itemsize + (self.mask == "entries"))


@dataclass(frozen=True)
class TensorShare:
    """Work and memory of one device."""

    problem: TensorProblem  #: What is done by all
    device: str
    panels: range  #: The panels that it transforms, and the groups whose singular values it lowers
    groups: range
    kept_panels: int  #: How many of these stay on it, the first ones; the others pass through its ring in each step
    kept_groups: int
    ring_slots: int  #: Panels or groups in transit; none where the tensor lies in whole arrays
    workspace_bytes: int

    __repr__ = brief_repr

    @property
    def is_whole(self) -> bool:
        """True where the tensor lies in whole arrays: nothing passes, and what was observed is read where the caller has it."""
        return not self.ring_slots

    @cached_property
    def slices(self) -> range:
        """Slices whose singular values it lowers."""
        return self.problem.slices(self.groups)

    @cached_property
    def kept_slices(self) -> range:
        """Those that stay on it, panel by panel: what others copy of them is in one piece."""
        return self.problem.slices(self.groups[: self.kept_groups])

    @property
    def has_all_slices(self) -> bool:
        """True where all slices of the transform stay on it: its panels are transformed where they lie."""
        return len(self.kept_slices) == self.problem.shape.components

    @property
    def passing_slices(self) -> range:
        """Those that pass."""
        return range(self.kept_slices.stop, self.slices.stop) if self.kept_groups else self.slices

    @property
    def columns(self) -> int:
        """Columns of its panels."""
        return self.problem.columns_of(self.panels)

    @property
    def kept_columns(self) -> int:
        """Columns of panels that stay on it."""
        return self.problem.columns_of(self.panels[: self.kept_panels])

    def slot_parts(self) -> tuple[dict[str, tuple[int, ArraySpec]], int]:
        """Where in a slot what passes begins, by name, and the bytes of a slot; a panel and a group take the same bytes."""
        problem, shape, storage = self.problem, self.problem.shape, self.problem.precision.storage
        widest = problem.columns_of(range(1))
        panel = {"z": ArraySpec(storage, (shape.components * widest,))}
        if self.kept_panels < len(self.panels):
            panel["x"] = ArraySpec(storage, (shape.vertices * widest,))
            if problem.mask == "entries":
                panel["mask"] = ArraySpec(np.dtype(np.uint8), (shape.vertices * widest,))
        group = {}
        if self.kept_groups < len(self.groups):
            most = problem.most_slices
            group["slices"] = ArraySpec(storage, (most * shape.width,))
            if problem.warm_entries:
                group["warm"] = ArraySpec(np.dtype(np.float64), (most * problem.warm_entries,))
        found, ends = {}, [0]
        for parts in (panel if self.panels else {}, group):
            at = 0
            for name, spec in parts.items():
                found[name] = at, spec
                at += -(-spec.dtype.itemsize * prod(spec.shape) // _ALIGNMENT) * _ALIGNMENT
            ends.append(at)
        return found, max(ends)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot of the ring."""
        return self.slot_parts()[1]

    @cached_property
    def arrays(self) -> dict[str, ArraySpec]:
        """The arrays of the device by their names; none is empty."""
        problem, shape, storage = self.problem, self.problem.shape, self.problem.precision.storage
        n_slices, n_kept = len(self.slices), len(self.kept_slices)
        n_warm = n_slices if self.is_whole else n_kept
        basis, masked = problem.precision.compute, 0 if self.is_whole else shape.vertices
        n_basis = 0 if self.is_whole and basis == np.float64 else shape.vertices  # there already, as all transforms have it
        found = {
            "basis": ArraySpec(basis, (n_basis, shape.components)),
            "mask": ArraySpec(np.dtype(np.uint8), (masked if problem.mask == "slices" else 0,)),
            "counts": ArraySpec(np.dtype(np.int32), (2, n_slices)),
            "norms": ArraySpec(np.dtype(np.float64), (n_slices, 1)),
            "sums": ArraySpec(np.dtype(np.float64), (len(self.panels), 2)),
            "estimate": ArraySpec(storage, (shape.vertices * problem.columns_of(range(1)) if self.panels else 0,)),
            "ring": ArraySpec(np.dtype(np.uint8), (self.ring_slots * self.slot_bytes,)),
            "kept_slices": ArraySpec(storage, (n_kept * shape.width,)),
            "kept_warm": ArraySpec(np.dtype(np.float64), (n_warm, problem.warm_entries)),
            "kept_x": ArraySpec(storage, (shape.vertices * self.kept_columns,)),
            "kept_mask": ArraySpec(np.dtype(np.uint8), (masked * self.kept_columns if problem.mask == "entries" else 0,)),
        }
        return {name: spec for name, spec in found.items() if prod(spec.shape)}

    @property
    def peak_bytes(self) -> int:
        """Bytes that the device allocates."""
        return sum(spec.nbytes for spec in self.arrays.values()) + self.workspace_bytes

    @property
    def staging_bytes(self) -> int:
        """Most bytes that a copy takes at once: of host memory beside the budget, where copies do not reach in place."""
        problem, shape = self.problem, self.problem.shape
        row = shape.components * problem.precision.compute.itemsize
        group = problem.most_slices * max(shape.width * problem.itemsize, 8 * problem.warm_entries)
        panel = max(shape.vertices, shape.components) * problem.columns_of(range(1)) * problem.itemsize
        return whole_pages(max(row, group, panel, 8 * len(self.slices), 16 * len(self.panels), shape.vertices))
