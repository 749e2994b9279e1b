"""The kernel of a sum of covariance functions, in CUDA C: written for the families of its components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.geostat.covariances.model import DeviceForm

_NAME = "nested"


def summed(forms: Sequence[DeviceForm], weights: Sequence[float] | None = None) -> DeviceForm:
    """The weighted sum of some forms of one family or of several, as a form."""
    factors = [1.0] * len(forms) if weights is None else weights
    columns, offsets = _side_by_side([form.points for form in forms])
    parameters: list[str] = []
    terms: list[str] = []
    for number, (form, offset) in enumerate(zip(forms, offsets, strict=True)):
        names = [f"p{number}_{k}" for k in range(len(form.arguments))]
        parameters += [f"{c_type(value)} {name}" for value, name in zip(form.arguments, names, strict=True)]
        terms.append(f"{form.kernel}_at(a + {offset}, b + {offset}, {form.points.shape[1]}, {', '.join(names)})")
    code = f"KERNEL({_NAME}, {', '.join(parameters)})\n{{\n    ENTRY\n    PUT({' + '.join(terms)});\n}}\n"
    arguments = [_weighted(form.arguments, factor) for form, factor in zip(forms, factors, strict=True)]
    variances = np.sum([factor * form.variances for form, factor in zip(forms, factors, strict=True)], axis=0)
    return DeviceForm(_NAME, columns, variances, tuple(value for part in arguments for value in part), code)


def _side_by_side(points: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], list[int]]:
    """Different points as columns of one matrix, and the first column of each."""
    kept: list[NDArray[np.float64]] = []
    offsets: list[int] = []
    for own in points:
        place = next((k for k, other in enumerate(kept) if np.array_equal(own, other)), len(kept))
        if place == len(kept):
            kept.append(own)
        offsets.append(sum(other.shape[1] for other in kept[:place]))
    return np.column_stack(kept), offsets


def _weighted(arguments: tuple[Any, ...], factor: float) -> tuple[Any, ...]:
    """The arguments with the table of values times a factor."""
    return (arguments[0], factor * arguments[1], *arguments[2:])


def c_type(value: Any) -> str:
    """How CUDA C calls an argument."""
    if isinstance(value, np.ndarray):
        return "const double*"
    return "int" if isinstance(value, np.int32) else "double"
