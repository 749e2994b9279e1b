"""Messages for arguments that other libraries' ``cholesky`` takes, and for names that are spelt otherwise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ooc_chol.calls.habits import answer

#: Arguments of SciPy's, NumPy's, CuPy's and torch's functions, and what to do without them.
_ELSEWHERE = {
    "overwrite_a": "A is never changed; to keep L over A, give overwrite=True",
    "check_finite": "what is read of A is always checked for NaN and infinities, which costs nothing: leave it out",
    "upper": "L is lower triangular; to read the upper triangle of A give lower=False, and np.asarray(L).T is upper triangular",
    "out": "L is a factor with methods, not an array; to keep it over A give overwrite=True, in a file store=",
    "threshold": "it is called precision_threshold",
    "budget": "it is called memory_budget",
    "device": "it is called devices",
    "nb": "it is called tile_size",
    "block_size": "it is called tile_size",
}


def refuse_arguments(others: Sequence[object], unknown: Mapping[str, object], function: Callable[..., Any]) -> NoReturn:
    """Raise ``TypeError`` for arguments that ``function`` does not take: ``others`` without a name, or ``unknown`` ones."""
    called = function.__name__
    if others:
        alone = f"{called} takes A and precision_threshold alone without a name"
        raise TypeError(f"{alone}, but got {others[0]!r:.40} after it: {_meant(others[0])}")
    name = next(iter(unknown))
    taken = [each for each in inspect.signature(function).parameters if each not in ("others", "unknown")]
    raise TypeError(answer(function, name, _ELSEWHERE, taken))


def _meant(value: object) -> str:
    """The argument that a value without a name was meant for, as far as its type tells."""
    if isinstance(value, bool):
        return f"SciPy's second argument is lower; write lower={value}"
    return "name the others, such as lower=True or tile_size=512"
