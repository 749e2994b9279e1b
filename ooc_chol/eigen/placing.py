"""Where eigenpairs are looked for if the caller names no devices: small matrices are solved sooner on the host than on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ooc_chol.eigen.methods import MOST_ROWS
from ooc_chol.eigen.planning import SMALL_ENTRIES, SMALL_ROWS, Posed, Request, plan_of
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.arrays import device_of
from ooc_chol.sparse.sources.others import is_dense

#: Numbers of A and of the basis up to which SciPy or LAPACK on the host ends before a GPU, whose passes take 2 to 3 ms at least
#: (measured: docs/lab-notes.md). Predicted seconds do not tell: rates know nothing of such waits, and what SciPy and LAPACK take
#: is not predicted.
HOST_NUMBERS = 600_000
#: Why it is the host, in plans and reports.
FEW = "as none is named, and so few numbers do not keep a GPU busy"
INVERSE = "as none is named, and the inverse of A is taken there"


def lies_on_gpu(A: Any) -> bool:
    """Tell whether a matrix, of CuPy or PyTorch or by DLPack, is in a GPU's memory."""
    if getattr(A, "is_cuda", False) or type(A).__module__.startswith("cupyx."):
        return True
    return is_dense(A) and device_of(A) is not None


def is_few(entries: int, basis: int) -> bool:
    """Tell whether A and the basis have so few numbers that the host ends first."""
    return entries + basis <= HOST_NUMBERS


def placed(posed: Posed, request: Request, *, has_light_factor: Callable[[], bool]) -> Posed:
    """The problem where it is solved soonest, on the host or on all GPUs, if the caller names no devices.

    ``has_light_factor`` is asked where the inverse may take the place of LOBPCG.
    """
    if not posed.machine.has_default_devices or posed.known is None:
        return posed
    there = posed._replace(machine=posed.machine.on_host())
    if _is_small(there, request):
        return there._replace(why=FEW)
    if posed.n > MOST_ROWS or posed.machine.kind.is_in_host_memory:
        return posed
    if request.factors or (request.may_invert and has_light_factor()):
        return there._replace(why=INVERSE)
    return posed


def _is_small(there: Posed, request: Request) -> bool:
    """Tell whether a problem on the host is small, and solved by LAPACK or with SciPy's products."""
    assert there.known is not None
    entries = there.known.blocks.n_entries
    if there.n > SMALL_ROWS or entries > SMALL_ENTRIES:
        return False
    with suppress(BudgetError):
        plan = plan_of(there, request)
        return (plan.method == "dense" or plan.is_small) and is_few(entries, there.n * plan.ncv)
    return False
