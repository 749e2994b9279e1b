"""Products with a rectangular matrix and with its transpose, as svds needs them: packed on devices, or the caller's operator."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from ooc_chol.calls.report import CallBytes
from ooc_chol.eigen.elsewhere import AbstractElsewhere
from ooc_chol.eigen.powers import scaled_product
from ooc_chol.eigen.svds_plan import SvdsPlan
from ooc_chol.eigen.traced import ProductTrace
from ooc_chol.files.inputs import plain_array
from ooc_chol.precision.triples import Precision
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.keeping import with_kept_blocks
from ooc_chol.sparse.multiplier import Multiplier, multiplier_of
from ooc_chol.sparse.operator import Operator
from ooc_chol.tracing.records import TraceRecord
from ooc_chol.tracing.trace import Trace

#: Largest error of a product with the transpose, beside the lengths of both vectors; and the message about a larger one.
_MOST_OFF = 1e-4
NO_ADJOINT = "rmatvec is not the adjoint of matvec: {}; let it multiply by A.T"


class AbstractTwoSided(AbstractClosing):
    """A matrix B of m >= n rows, and its transpose: products with (n, b) and (m, b) arrays in host memory.

    B is A, or the transpose of A where A has more columns than rows.
    """

    n: int  #: Columns of B: the smaller side
    m: int  #: Rows of B
    passes: int  #: Products with B or its transpose until now
    power = 0  #: B is the caller's times this power of two: for numbers whose squares underflow or overflow

    @abstractmethod
    def times(self, x: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        """``B x``, in float64 where it is ``exact``."""

    @abstractmethod
    def adjoint(self, y: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        """``B.T y``, in float64 where it is ``exact``."""

    def gram(self, x: NDArray[Any]) -> NDArray[Any]:
        """``B.T (B x)``."""
        return self.adjoint(self.times(x))

    def exact_gram(self, x: NDArray[Any]) -> NDArray[Any]:
        """``B.T (B x)`` in float64."""
        return self.adjoint(self.times(x, exact=True), exact=True)

    def _times_power(self, product: Callable[[NDArray[Any]], NDArray[Any]], x: NDArray[Any]) -> NDArray[Any]:
        """The product with the caller's matrix, times the power of two."""
        return scaled_product(product, self.power)(x) if self.power else product(x)

    @abstractmethod
    def trace(self) -> Trace | None:
        """Trace of all products; None where that was not requested."""


@final
class PackedTwoSided(AbstractTwoSided):
    """Two packed matrices, B and its transpose, on the same devices, half of the budget for each.

    Multipliers of the precision that is asked for, and of DDD for exact products, are opened when they are first needed, and
    those of the other precision closed before: they would share the memory.
    """

    def __init__(
        self, b: BlockCSR, bt: BlockCSR, plan: SvdsPlan, *, trace: bool = False, elsewhere: AbstractElsewhere | None = None
    ) -> None:
        assert plan.sides is not None and plan.exact is not None
        self.m, self.n = b.shape
        self.passes = 0
        self._pair, self._plan, self._is_traced = (Operator(b), Operator(bt)), plan, trace
        self._plans = {Precision.DDD: plan.exact, plan.precision: plan.sides}
        self._elsewhere, self._stack = elsewhere, ExitStack()
        self._open: tuple[Precision, tuple[Multiplier, Multiplier]] | None = None
        self._planned, self._executed = Counter[str](), Counter[str]()
        self._records: list[TraceRecord] = []

    def keep_blocks(self, room: int, stack: ExitStack) -> None:
        """Let blocks of files that devices do not keep stay in host memory, half of the room each; ``stack`` gives it back."""
        if self._elsewhere is None:
            plans = self._plans[self._plan.precision]
            forward = with_kept_blocks(self._pair[0], plans.forward, room // 2, stack)
            self._pair = forward, with_kept_blocks(self._pair[1], plans.adjoint, room // 2, stack)

    def times(self, x: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        self.passes += 1
        return self._multiply(0, x, exact)

    def adjoint(self, y: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        self.passes += 1
        return self._multiply(1, y, exact)

    def _multiply(self, side: int, x: NDArray[Any], exact: bool) -> NDArray[Any]:
        """By as many columns at a time as were planned for."""
        precision, width = Precision.DDD if exact or self.power else self._plan.precision, self._plan.block
        product: Callable[[NDArray[Any]], NDArray[Any]]
        if self._elsewhere is None:
            product = self._opened(precision)[side]
        else:
            product = self._elsewhere.product(self._pair[side], precision, width)
        parts = [self._times_power(product, x[:, first : first + width]) for first in range(0, x.shape[1], width)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _opened(self, precision: Precision) -> tuple[Multiplier, Multiplier]:
        if self._open is None or self._open[0] is not precision:
            self.close()
            plans = self._plans[precision]
            b, bt = (
                self._stack.enter_context(multiplier_of(each, plan, trace=self._is_traced))
                for each, plan in zip(self._pair, (plans.forward, plans.adjoint), strict=True)
            )
            self._open = precision, (b, bt)
        return self._open[1]

    @property
    def moved(self) -> CallBytes:
        """Bytes of blocks over each link of multipliers that are closed."""
        return CallBytes(dict(self._planned), dict(self._executed))

    def trace(self) -> Trace | None:
        """Trace of all multipliers, closed ones too; None where that was not requested."""
        if not self._is_traced:
            return None
        metadata: dict[str, str | int | float] = {
            "rows": self.m,
            "columns": self.n,
            "precision": self._plan.precision.value,
            "devices": ", ".join(self._plan.devices),
            "budget": self._plan.budget_bytes,
            "scans": self.passes,
        }
        return Trace(tuple(self._records), metadata=metadata)

    def close(self) -> None:
        """Close the multipliers that are open; another product opens them again."""
        if self._open is not None:
            for each in self._open[1]:
                self._planned.update(each.report.bytes.planned)
                self._executed.update(each.report.bytes.executed)
                if each.trace is not None:
                    self._records += each.trace.records
            self._open = None
        self._stack.close()


@final
class OperatorTwoSided(AbstractTwoSided):
    """A ``LinearOperator`` with products of both sides, or the adjoint of one."""

    def __init__(self, operator: LinearOperator, *, trace: bool = False) -> None:
        rows, columns = operator.shape
        self.m, self.n = max(rows, columns), min(rows, columns)
        self.passes = 0
        self._times, self._adjoint = (
            (operator.matmat, operator.rmatmat) if rows >= columns else (operator.rmatmat, operator.matmat)
        )
        self._records = ProductTrace() if trace else None
        if self._records is not None:
            self._times, self._adjoint = self._records.watched(self._times), self._records.watched(self._adjoint, "A.T")

    def times(self, x: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        """``B x``, as exact as the operator makes it."""
        self.passes += 1
        return self._times_power(lambda each: _real(self._times(each)), x)

    def adjoint(self, y: NDArray[Any], *, exact: bool = False) -> NDArray[Any]:
        """``B.T y``, as exact as the operator makes it."""
        self.passes += 1
        return self._times_power(lambda each: _real(self._adjoint(each)), y)

    def trace(self) -> Trace | None:
        """Products of the caller's operator."""
        return None if self._records is None else self._records.trace(rows=self.m, columns=self.n, devices="host:0")

    def close(self) -> None:
        """The operator is the caller's."""


def check_adjoint(a: LinearOperator) -> None:
    """Raise unless ``<A x, A x> = <x, A.T A x>`` of a random x, roughly: one product with each side.

    Raises ``TypeError``: there is no product with the transpose; and ``ValueError``.
    """
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (a.shape[1], 1))
    y = _real(a.matmat(x)).astype(np.float64)
    largest = float(np.abs(y).max(initial=0.0))
    if not 0 < largest < np.inf:
        return
    try:
        back = _real(a.rmatmat(y / largest))
    except (NotImplementedError, TypeError) as error:
        why = str(error) or type(error).__name__
        raise TypeError(f"A is a LinearOperator whose product with its transpose fails ({why}): give it a rmatvec too") from error
    y, back = y / largest, back / largest
    off = abs(float(np.vdot(y, y) - np.vdot(x, back)))
    if off > _MOST_OFF * float(np.linalg.norm(x) * np.linalg.norm(back)):
        raise ValueError(
            NO_ADJOINT.format(f"of a random x, (A x).(A x) and x.(A.T A x) differ by {off / np.vdot(y, y):.2g} of it")
        )


def _real(y: Any) -> NDArray[Any]:
    found = plain_array("A @ x", y)
    if found.dtype.kind not in "fiub":
        raise TypeError(f"a product of A is {found.dtype}, but singular values are computed of real matrices only")
    return found
