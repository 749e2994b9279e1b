"""Messages of commands beside their results, and a step after a long computation that may fail."""

from __future__ import annotations

import sys
from collections.abc import Callable

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.accounts import AbstractFactoringPlan
from ooc_chol.apps.geostat.cli.cluster import remark
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.errors import STEP_ERRORS


def note(text: str) -> None:
    """Print a remark on standard error, apart from the results."""
    print(f"note: {tb.shell_words(text)}", file=sys.stderr)


def tried(what: str, step: Callable[[], None]) -> bool:
    """Do a step after a long computation; if it fails, that is said, and what was computed and the other steps stay."""
    try:
        step()
    except STEP_ERRORS as error:
        print(f"ooc-chol: no {what}: {tb.shell_words(str(error))}", file=sys.stderr)
        return False
    return True


def say_data(dataset: Dataset) -> None:
    """Print notes on the data, their number and source, and the range of known errors."""
    for text in dataset.notes:
        note(text)
    spec, errors = dataset.spec, dataset.observations.error_variances
    print(f"{dataset.observations.n} observations of {spec.value_name} from {spec.source}")
    if errors is not None:
        name = spec.error_variance or spec.error_sd
        print(f"known errors of column {name}, of variances {errors.min():.4g} to {errors.max():.4g}, besides the nugget")


def say_plan(plan: AbstractFactoringPlan, *, in_full: bool = False) -> None:
    """Print the plan of a call: on a line, unless in full or of a cluster, whose plan is a short page."""
    each = plan.factorization
    if isinstance(each, tb.ClusterPlan):
        if (words := remark(plan.n)) is not None:
            note(words)
        print(plan if in_full else each, flush=True)
    elif in_full:
        print(plan, flush=True)
    elif plan.is_mixed:
        size = "" if each is None else f", at most {_size(each)} on {', '.join(each.devices)}"
        print(f"each factorization: of order {plan.n}{size}, at threshold {plan.options['precision_threshold']:g}", flush=True)
    elif each is not None:
        print(plan_line(each), flush=True)


def _size(plan: oc.Plan) -> str:
    """Bytes of the factor."""
    return f"{plan.stored_bytes / 1e6:.3g} MB" if plan.stored_bytes < 1e9 else f"{plan.stored_bytes / 1e9:.3g} GB"


def plan_line(plan: oc.Plan) -> str:
    """Order, tiles, bytes, devices and, where rates are known, seconds of each factorization."""
    nt, size = plan.grid.nt, _size(plan)
    tiles = f"as one tile of {size}" if nt == 1 else f"in {nt * (nt + 1) // 2} tiles of order {plan.grid.nb}, {size}"
    seconds = "" if plan.seconds is None or nt == 1 else f", {plan.seconds:.3g} s predicted"
    return f"each factorization: of order {plan.grid.n}, {tiles} on {', '.join(plan.devices)}{seconds}"
