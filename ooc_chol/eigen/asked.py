"""Checks of a caller's arguments of eigsh, before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import whole_number
from ooc_chol.eigen.wanted import WHICH, Wanted, Which
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.planning import precision_of

#: Smallest tol that converged pairs reach, by precision; and the one that is taken where none is given.
FLOORS = {Precision.FFF: 1e-6, Precision.FDF: 1e-7, Precision.DDD: 1e-12}
DEFAULT_TOL = {Precision.FFF: 1e-5, Precision.FDF: 1e-6, Precision.DDD: 1e-10}
#: Columns of a panel that there are kernels for.
BLOCKS = (8, 4, 2, 1)
#: Columns of the basis beside the wanted ones, where the caller does not say; and panels that are the least.
EXTRA_COLUMNS, LEAST_PANELS = 96, 4
#: Panels that the basis has beside the wanted columns, at least, where the width of panels is chosen.
CHOSEN_PANELS = 12
#: Bytes of A as an array up to which LAPACK takes all pairs, or triplets, where that is faster or more accurate.
MOST_DENSE = 256 << 20
#: Methods by name.
METHODS = ("auto", "lanczos", "lobpcg")
#: Products that build the basis, where the caller does not say how many.
_DEFAULT_PASSES = 10_000
_OTHER_WHICH = {
    "SM": "those of smallest magnitude are looked for by the inverse, without sigma, preconditioner, null and degree, and in "
    "float64",
    "BE": "take which='LA' and which='SA', half of them each",
}


@dataclass(frozen=True)
class Sizes:
    """How large the basis is: ``panels`` of ``block`` columns, and one more for what a product leaves."""

    block: int
    panels: int

    @property
    def columns(self) -> int:
        """Columns of the basis, ncv, in whole panels."""
        return self.block * self.panels


def wanted_of(k: object, which: object, tol: float | None, precision: Precision, n: int) -> Wanted:
    """Check the eigenvalues requested.

    Raises ``ValueError`` and ``TypeError``.
    """
    count = whole_number(k, "k")
    if not 1 <= count <= n:
        raise ValueError(f"k is {count}, but A is {n} x {n}: ask for 1 to {n} eigenpairs")
    if which not in WHICH:
        advice = _OTHER_WHICH.get(str(which), "LM are largest in magnitude, LA the largest, SA the smallest")
        raise ValueError(f"which is {which!r:.40}; give 'LM', 'LA' or 'SA': {advice}")
    if tol is None:
        return Wanted(count, cast(Which, which), DEFAULT_TOL[precision])
    if real_number(tol, "tol") == 0:
        return Wanted(count, cast(Which, which), FLOORS[precision])
    if not FLOORS[precision] <= tol < 1:
        better = "" if precision == Precision.DDD else ", or take precision='DDD'"
        raise ValueError(
            f"tol is {float(tol):g}, but in {precision.value} residuals reach {FLOORS[precision]:g} of the largest eigenvalue: "
            f"give at least that, and less than 1, or 0 for the least that they reach{better}"
        )
    return Wanted(count, cast(Which, which), float(tol))


def real_number(value: object, what: str) -> float:
    """``value`` as a float: a real number of Python's or NumPy's, but no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise TypeError(f"{what} is a {type(value).__name__}; give a number")
    return float(value)


def precision_for(precision: Precision | str | None, dtype: np.dtype[Any]) -> Precision:
    """The precision that is meant: by default DDD for float64, FDF for float32."""
    return precision_of(precision, Precision.FDF if dtype == np.float32 else Precision.DDD)


def sizes_of(ncv: object, block: object, k: int, n: int, *, usual_block: int = 8) -> Sizes:
    """Columns of a panel and panels of the basis.

    Raises ``ValueError`` and ``TypeError``.
    """
    if block is not None and whole_number(block, "block") not in BLOCKS:
        raise ValueError(f"block is {block}; panels have 1, 2, 4 or 8 columns")
    columns = k + EXTRA_COLUMNS if ncv is None else whole_number(ncv, "ncv")
    if block is None:
        block = next((each for each in BLOCKS if each <= usual_block and CHOSEN_PANELS * each <= columns - k), 1)
    width = whole_number(block, "block")
    least = (-(-k // width) + LEAST_PANELS) * width
    if columns < min(least, n):
        raise ValueError(
            f"ncv is {columns}, but {k} eigenpairs with block={width} need a basis of at least {min(least, n)} columns: leave "
            "ncv out, or give more; a good choice is k + 12 block or above"
        )
    return Sizes(width, -(-columns // width))


def passes_of(max_passes: object) -> int:
    """Most products that build the basis."""
    if max_passes is None:
        return _DEFAULT_PASSES
    if (count := whole_number(max_passes, "max_passes")) < 1:
        raise ValueError(f"max_passes is {count}, but at least one product is made")
    return count


def grown_note(columns: int, passes: int) -> str:
    """Sentence on a run with the planned basis, before one with a larger basis."""
    return f"the planned basis of {columns} vectors had not converged after {passes} passes, which count here; a larger followed"


def degree_of(degree: object, which: object, solver: str) -> int | None:
    """The degree of a filter that is asked for; None where the run is to choose.

    Raises ``ValueError`` and ``TypeError``.
    """
    if degree is None:
        return None if solver == "lanczos" and which != "LM" else 1  # else there is nothing to choose
    if (found := whole_number(degree, "degree")) < 1:
        raise ValueError(f"degree is {found}; a filter has degree 2 or more, and 1 is none")
    return found


class _Taken(NamedTuple):
    """Which solvers take an option, and the message where another one is asked for with it."""

    by: tuple[str, ...]
    message: str


_NO_NULL = "sigma is for Lanczos on the inverse, which takes neither preconditioner nor null: leave them out, or sigma"
#: Options that not every solver takes.
_TAKEN = {
    "checkpoint": _Taken(
        ("lanczos",), "checkpoint keeps runs of Lanczos on A itself: leave it out where LOBPCG or sigma is asked for"
    ),
    "preconditioner": _Taken(("lobpcg",), _NO_NULL),
    "null": _Taken(("lobpcg",), _NO_NULL),
    "method='lobpcg'": _Taken(("lobpcg",), _NO_NULL),
    "method='lanczos'": _Taken(
        ("lanczos", "sigma"), "Lanczos takes neither a preconditioner nor null vectors: leave method out, or give 'lobpcg'"
    ),
    "OPinv": _Taken(("sigma",), "OPinv solves with A - sigma I: say which sigma"),
    "ncv": _Taken(
        ("lanczos", "sigma"), "ncv is the size of a basis of Lanczos, but that of LOBPCG follows from k and block: leave it out"
    ),
    "which='LM'": _Taken(
        ("lanczos", "sigma"), 'LOBPCG looks at one end of the spectrum: give which="SA" or "LA", or method="lanczos" for "LM"'
    ),
    "degree": _Taken(
        ("lanczos",),
        "degree is for block Lanczos at one end of the spectrum, whose other end it damps: leave it out, or give which='LA' "
        "or 'SA' without preconditioner, null and sigma",
    ),
}


def solver_of(method: str, which: str, degree: object, **given: Any) -> str:
    """The solver that is meant, ``"lanczos"``, ``"lobpcg"`` or ``"sigma"``; ``given`` are options that not each of them takes.

    Raises ``ValueError``: options contradict each other.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r:.40}; give one of {', '.join(repr(each) for each in METHODS)}")
    names = {name for name, value in given.items() if value is not None}
    is_lobpcg = method == "lobpcg" or names & {"preconditioner", "null"}
    solver = "sigma" if "sigma" in names else "lobpcg" if is_lobpcg else "lanczos"
    has_degree = degree is not None and whole_number(degree, "degree") > 1
    names |= {f"method={method!r}", f"which={which!r}"} | ({"degree"} if has_degree else set())
    for name, taken in _TAKEN.items():
        if name in names and (solver not in taken.by or (name == "degree" and which == "LM")):
            raise ValueError(taken.message)
    return solver


def start_of(v0: Any, n: int, block: int) -> NDArray[np.float64] | None:
    """The starting panel: the caller's columns, and random ones beside them; None where all are random.

    Raises ``ValueError`` and ``TypeError``.
    """
    if v0 is None:
        return None
    given = plain_array("v0", v0)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"v0 holds {given.dtype}, but starting vectors are real numbers")
    columns = given.reshape(-1, 1) if given.ndim == 1 else given
    if columns.ndim != 2 or columns.shape[0] != n or not 1 <= columns.shape[1] <= block:
        raise ValueError(f"v0 has shape {given.shape}; give a vector ({n},), or up to block={block} of them as columns ({n}, m)")
    if not np.isfinite(columns).all():
        row, column = np.argwhere(~np.isfinite(columns))[0]
        raise ValueError(f"v0 holds {columns[row, column]} in row {row}: starting vectors must be finite")
    if not columns.any():
        raise ValueError("v0 is zero, and leads nowhere: give another vector, or none for a random one")
    panel = np.random.default_rng(0).uniform(-1.0, 1.0, (n, block))
    largest = np.abs(columns).max(axis=0)
    panel[:, : columns.shape[1]] = columns / np.where(largest > 0, largest, 1.0)
    return panel
