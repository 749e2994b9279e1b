"""Hostile granularity: who names neither tile size nor memory nor threads is given the least, so that every matrix has edges.

``pytest --granularity hostile`` changes what the package chooses by itself on the host, at the places where it does. What a test
names stays as it is. ``python -m tests.hostile`` prints the files that ``make test-all`` runs a second time that way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from ooc_chol.errors import BudgetError, PlanSizeError
from tests.inside.calls import Machine
from tests.inside.dense import limit, make_plan, mixed_engine
from tests.inside.eigen import plan_space
from tests.inside.hardware import HostKind
from tests.inside.kernels import HOST, HostKernelKind, host_threads
from tests.inside.process import cores
from tests.inside.sparse import planned

#: Order of tiles, but for plans of more steps than this, for which the planner takes larger ones as it does beyond 900,000.
TILE_SIZE, MOST_STEPS = 4, 40_000
#: Bytes that the package takes for free where no planner says how many it needs: what it takes of a machine that has none left.
LEFT_BYTES = 16 << 20
#: Files whose tests leave something to the package, by folder.
FILES = {
    "tests/plan": ("file_tier", "kept_plans", "plan", "plan_eigsh", "plan_multiply", "plan_size"),
    "tests/host": (
        "batches",
        "checkpoint",
        "cholesky",
        "device_solves",
        "driver",
        "eigsh",
        "factor_habits",
        "factor_inverse",
        "factor_update",
        "hostile_matrices",
        "lobpcg",
        "missing_chunks",
        "mixed",
        "multiply",
        "residue_cholesky",
        "shift_invert",
        "sources",
        "tiered_store",
        "trace",
        "typed_habits",
    ),
}
#: What tests say of the usual choice, which is not made here, by the end of their names.
USUAL = {
    "test_cholesky.py::test_the_default_budget_and_tile_size": "which tiles and memory are chosen",
    "test_kept_plans.py::test_a_default_budget_is_the_same_for_about_the_same_free_memory": "which memory is chosen",
    "test_plan.py::test_160_thousand_rows_are_planned_in_seconds": "how long a plan may be",
    "test_plan.py::test_exactly_the_bytes_that_an_error_names_suffice": "how long a plan may be",
    "test_plan_size.py::test_rates_are_not_looked_up_for_tiles_that_cannot_be_planned": "how long a plan may be",
    "test_plan_size.py::test_the_choice_of_tiles_does_not_depend_on_free_memory": "which tiles are chosen",
    "test_plan_size.py::test_the_error_says_what_why_and_what_to_do": "which tiles are chosen",
}

_free = threading.local()


def make_hostile() -> None:
    """Change what is chosen, until the process ends."""
    for name, value in {"tile_sizes": (TILE_SIZE,), "dear_order": 0, "dear_mixed_order": 0}.items():
        object.__setattr__(HOST, name, value)
    HostKernelKind.whole_order = lambda kind, source, *, keeps_on_device: 0
    HostKind.default_budget = lambda kind, names: getattr(_free, "nbytes", LEFT_BYTES)
    for name in ("budget_bytes", "steady_budget_bytes"):  # what is free differs from try to try of one call
        setattr(Machine, name, property(vars(Machine)[name].func))
    limit.MOST_STEPS = MOST_STEPS
    for function in (host_threads, cores):
        _replace(function, lambda *_: 1)
    for planner in (make_plan, mixed_engine, planned, plan_space):
        _replace(planner, _with_least(planner))


def _with_least(planner: Callable[..., Any]) -> Callable[..., Any]:
    """A planner for which so many bytes are free as it says that it needs at least."""

    @wraps(planner)
    def least(*arguments: Any, **options: Any) -> Any:
        if hasattr(_free, "nbytes"):  # one within another
            return planner(*arguments, **options)
        _free.nbytes = 4096
        try:
            while True:
                try:
                    return planner(*arguments, **options)
                except PlanSizeError:  # larger tiles would do, and need more
                    if (more := 4 * _free.nbytes) > LEFT_BYTES:
                        raise
                except BudgetError as error:
                    if error.needed_bytes <= _free.nbytes:
                        raise
                    more = error.needed_bytes + error.needed_bytes // 63 + 1  # a 64th is taken off again
                _free.nbytes = more
        finally:
            del _free.nbytes

    return least


def _replace(function: Callable[..., Any], other: Callable[..., Any]) -> None:
    """Put another function wherever a module of the package has this one."""
    for module in [module for name, module in sys.modules.items() if name.startswith("ooc_chol")]:
        for name in [name for name, value in vars(module).items() if value is function]:
            setattr(module, name, other)


def usual_alone(item: pytest.Item) -> str | None:
    """Usual choice that a test is about; None where it holds of any."""
    return USUAL.get(item.nodeid.partition("[")[0].rpartition("/")[2])


if __name__ == "__main__":
    print("\n".join(f"{folder}/test_{name}.py" for folder, names in FILES.items() for name in names))
