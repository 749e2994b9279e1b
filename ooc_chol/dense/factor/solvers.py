"""Where a factor's solves run: on the GPUs that made it, within the budgets of its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ooc_chol.dense.factor.device_sweeps import DeviceSolver
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import device_kind, page_locked
from ooc_chol.kernels.registry import open_tile_device


def solver_of(devices: Sequence[str], budget_bytes: Callable[[int], int], fmt: PrecisionFormat) -> DeviceSolver | None:
    """Solves with the factor on these GPUs, of so many bytes each; None where the host factors.

    There a factor's own solves read its tiles in place.
    """
    if device_kind(devices[0]).is_in_host_memory:
        return None
    if len(devices) == 1:
        return _solver(devices[0], partial(budget_bytes, 0), fmt)
    team = tuple(_solver(name, partial(budget_bytes, number), fmt) for number, name in enumerate(devices))
    return replace(team[0], team=team)


def _solver(name: str, budget: Callable[[], int], fmt: PrecisionFormat) -> DeviceSolver:
    return DeviceSolver(lambda: open_tile_device(name, fmt=fmt), lambda arrays: page_locked([name], filled=arrays), budget)
