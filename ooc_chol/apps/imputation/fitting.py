"""A fit and what it is judged by: errors at what was held out of another one, which may choose Laplacian and end of lambda."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.imputation.crossvalidation import held_out_error, told_with
from ooc_chol.apps.imputation.scores import observed_mask

#: Options of one fit, and not of another one without a part.
_OF_ONE_FIT = ("work_folder", "callback", "replace", "checkpoint", "trace")
#: What is held out by default, and values of lambda that are tried where their number is "auto".
_HELD_OUT, _N_LAMBDAS = 0.1, 20


class Fit(NamedTuple):
    """A fit, its transform, what it saw, and its errors at what was held out of another one."""

    imputed: oc.Imputed
    fourier: oc.GraphFourier
    mask: NDArray[np.bool_]
    held_out: tb.HeldOut | None


def fitted(
    X: Any,
    mask: NDArray[np.bool_] | None,
    graph: Any,
    *,
    n_components: int | None = None,
    normalized: bool | Literal["auto"] = True,
    held_out: float | None = None,
    start: Any = None,
    first_lambda: float | None = None,
    **options: Any,
) -> Fit:
    """Fit with options of ``oc.impute``, and once more with a share held out; without that by default where there is a start."""
    seen = observed_mask(X) if mask is None else mask
    starts = start is not None or first_lambda is not None or options.get("work_folder") is not None
    share = held_out if held_out is not None else 0.0 if starts else _HELD_OUT
    once = {name: value for name, value in options.items() if name not in _OF_ONE_FIT}
    fouriers = _fouriers(graph, n_components, normalized, options.get("devices"))
    ends = options.get("n_lambdas") == "auto"
    held: tb.HeldOut | None
    if len(fouriers) > 1 or ends:
        held, fourier = _chosen(X, seen, share, fouriers, {**once, "n_lambdas": _N_LAMBDAS} if ends else once, ends=ends)
        if ends:
            options["n_lambdas"] = len(held.errors)
        found = oc.impute(X, seen, fourier, start=start, first_lambda=first_lambda, **options)
    else:
        (fourier,) = fouriers
        found = oc.impute(X, seen, fourier, start=start, first_lambda=first_lambda, **options)
        held = held_out_error(X, fourier, seen, share=share, **once) if share else None
    return Fit(told_with(found, held), fourier, np.asarray(seen), held)


def _fouriers(graph: Any, n_components: int | None, normalized: bool | str, devices: Any) -> list[oc.GraphFourier]:
    """The transform, as given or of the graph, or both of the graph."""
    if not isinstance(graph, oc.GraphFourier):
        if isinstance(normalized, str) and normalized != "auto":
            raise ValueError(f"normalized={normalized!r:.40}: give True, False or 'auto'")
        kinds = (True, False) if normalized == "auto" else (bool(normalized),)
        return [oc.GraphFourier(graph, normalized=kind, n_components=n_components, devices=devices) for kind in kinds]
    if n_components not in (None, graph.n_components):
        raise ValueError(
            f"n_components is {n_components}, but the GraphFourier that was given has {graph.n_components}: "
            "leave it out, or give the graph"
        )
    return [graph]


def _chosen(
    X: Any, seen: NDArray[np.bool_], share: float, fouriers: list[oc.GraphFourier], options: dict[str, Any], *, ends: bool
) -> tuple[tb.HeldOut, oc.GraphFourier]:
    """The transform, and how many values of lambda there are errors of, by what is held out."""
    tried = [held_out_error(X, each, seen, share=share, **options) if share else None for each in fouriers]
    errors = [np.inf if each is None else each.least if ends else each.error for each in tried]
    number = int(np.argmin(errors))
    if (held := tried[number]) is None:
        raise ValueError('nothing can be held out, so that nothing is to choose by: "auto" needs gaps, two slices and held_out')
    if ends:
        held = replace(held, lambdas=held.lambdas[: held.best], errors=held.errors[: held.best])
    return replace(held, other=max(errors) if len(errors) > 1 else None), fouriers[number]
