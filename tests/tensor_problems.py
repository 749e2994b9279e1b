"""Small tensors on devices, cut into several panels and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol import Precision
from ooc_chol.toolbox import TensorPlan
from tests.inside.kernels import tensors
from tests.inside.tensors import DeviceTensorSpace, share, shares_of

#: Columns of a panel and slices of a group, of which a small tensor then has several.
COLUMNS, GROUP = 128, 6


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let panels and groups be small for one test."""
    monkeypatch.setattr(share, "PANEL_COLUMNS", COLUMNS)
    monkeypatch.setattr(tensors, "_MOST_SLICES", GROUP)


class Problem(NamedTuple):
    """A tensor of low rank that is smooth over a graph, and what is observed of it."""

    basis: NDArray[np.float64]
    observed: NDArray[Any]
    mask: NDArray[np.bool_]
    precision: Precision
    svt: Any

    @property
    def kind(self) -> Any:
        """Of what the mask is."""
        return "slices" if self.mask.ndim == 1 else "entries"


def problem(
    shape: tuple[int, int, int] = (29, 21, 23),
    r: int | None = None,
    *,
    precision: str = "FDF",
    svt: str = "gram64",
    by_entry: bool = False,
    seed: int = 0,
) -> Problem:
    """Make one; what is not observed is NaN."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((shape[0], shape[0])))[0][:, : r or shape[0]]
    left, right = rng.standard_normal((shape[1], 3)), rng.standard_normal((3, shape[2]))
    transform = np.einsum("ka,ia,aj->kij", rng.standard_normal((basis.shape[1], 3)), left, right)
    whole = np.einsum("vk,kij->vij", basis, transform).astype(Precision(precision).storage)
    mask = rng.random(shape if by_entry else shape[:1]) < 0.7
    observed = np.where(mask if by_entry else mask[:, None, None], whole, np.nan).astype(whole.dtype)
    return Problem(basis, observed, mask, Precision(precision), svt)


def plan_tensor(shape: Any, r: int | None = None, *, mask: Any = "slices", tier: str = "memory", **options: Any) -> TensorPlan:
    """The plan of a tensor with that many eigenvectors."""
    return oc.plan_impute(shape, mask, r, work_folder=None if tier == "memory" else "/tmp", **options)


def plan_for(given: Problem, budget: int | str = "1 GiB", devices: Any = "host:0", tier: Any = "memory") -> TensorPlan:
    """The plan of its devices, all of which take part, whatever pays."""
    options = {"precision": given.precision, "svt": given.svt, "mask": given.kind, "devices": devices}
    plan = plan_tensor(given.observed.shape, given.basis.shape[1], **options, memory_budget=budget, tier=tier)
    return replace(plan, shares=shares_of(plan.problem, plan.offered, plan.budget_bytes))


class Run(NamedTuple):
    """All that a run gives."""

    largest: float
    figures: list[tuple[float, float, tuple[int, ...], int]]
    tensor: NDArray[Any]
    warm: list[NDArray[np.float64]]

    def bits(self) -> bytes:
        """To compare two runs."""
        return (
            repr((self.largest, self.figures)).encode() + self.tensor.tobytes() + b"".join(each.tobytes() for each in self.warm)
        )


def run(space: DeviceTensorSpace, given: Problem, steps: int = 4, momentum: float = 0.0, start: Any = None) -> Run:
    """Load and impute for some steps."""
    space.load(given.observed, given.mask, start)
    return go_on(space, range(steps), momentum)


def go_on(space: DeviceTensorSpace, steps: range, momentum: float = 0.0) -> Run:
    """Some steps."""
    figures = []
    for number in steps:
        found = space.step(space.largest() * 0.5 ** (number + 1), momentum)
        figures.append((found.change, found.size, tuple(found.ranks.tolist()), found.full_route))
    return Run(space.largest(), figures, space.take(), [each.copy() for each in space.warm()])


def budgets(given: Problem, devices: Any = "host:0", count: int = 7) -> Iterator[int]:
    """Budgets from the least to that which keeps everything."""
    most = plan_for(given, devices=devices).peak_bytes
    least = least_budget(given, devices)
    yield from sorted({least + (most - least) * part // (count - 1) for part in range(count)})


def least_budget(given: Problem, devices: Any = "host:0") -> int:
    """What a refusal says that would do."""
    from ooc_chol import BudgetError

    budget = 1
    while True:
        try:
            plan_for(given, budget, devices)
        except BudgetError as error:
            assert error.needed_bytes > budget
            budget = error.needed_bytes
        else:
            return budget
