"""Every error that ooc_chol raises on purpose, with its facts as attributes, and its warnings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.display.prints import shortened

if TYPE_CHECKING:
    from ooc_chol.eigen.errors import NoConvergenceError as NoConvergenceError

__all__ = [
    "AsymmetryWarning",
    "BudgetError",
    "BudgetWarning",
    "CheckpointError",
    "ClosedError",
    "ClusterError",
    "DamagedFileError",
    "DeviceError",
    "DowndateError",
    "ForkedError",
    "ImputationInterrupted",
    "ImputationWarning",
    "InputWarning",
    "MissingFolderError",
    "MissingPackageError",
    "MissingValueError",
    "NoConvergenceError",
    "NonFiniteError",
    "NonFiniteTensorError",
    "NotHermitianError",
    "NotPositiveDefiniteError",
    "OocCholError",
    "OutputError",
    "PlanSizeError",
    "PrecisionError",
    "PrecisionWarning",
    "PreconditionerError",
    "RatesWarning",
    "RefinementError",
    "ScheduleError",
    "SingularMatrixError",
    "SparseInputError",
    "StoppedError",
    "TierError",
    "UnsupportedTypeError",
]
#: Beside the classes below: an error that SciPy has too, whose solvers take a tenth of a second to import.
_MODULE_OF = {"NoConvergenceError": "eigen.errors"}
#: Workers of a cluster that a message names.
_MOST_WORKERS = 16


def _error_repr(self: BaseException) -> str:
    """The class and the message on one line of at most 199 characters; ``str`` is the whole message."""
    return shortened(f"{type(self).__name__}({str(self)!r})")


class OocCholError(Exception):
    """Base of every error raised on purpose by ooc_chol; wrong arguments stay ``ValueError`` or ``TypeError``.

    Each keeps its facts as attributes, of the names of its parameters, and its text says what to do.
    """

    __repr__ = _error_repr


class NotPositiveDefiniteError(OocCholError, np.linalg.LinAlgError):
    """The matrix is not positive definite: a pivot of the factorization is not positive.

    Parameters
    ----------
    minor : int
        Order of the first leading minor that is not positive definite, as LAPACK's ``info``: it counts rows from one.
    tile : (int, int)
        The diagonal tile ``(k, k)`` in which the pivot was met.
    matrix : int, optional
        The first matrix of a batch that is not positive definite, counted from zero.
    held : str, optional
        Last diagonal entry of that minor, where the type of L has it as zero.
    """

    def __init__(self, minor: int, tile: tuple[int, int], matrix: int | None = None, held: str | None = None) -> None:
        self.minor = minor
        self.tile = tile
        self.matrix = matrix
        self.held = held
        where, a = (f"found in tile {tile}", "A") if matrix is None else (f"of matrix {matrix} of the batch", f"A[{matrix}]")
        advice = (
            f"check row {minor - 1} of {a} (counted from zero) for duplicates or a wrong sign, or add a nugget to the diagonal"
        )
        if held is not None:
            advice = f"A[{'' if matrix is None else f'{matrix}, '}{minor - 1}, {minor - 1}] is {held}"
        super().__init__(f"the leading minor of order {minor} is not positive definite ({where}); {advice}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.minor, self.tile, self.matrix, self.held)


class DowndateError(NotPositiveDefiniteError):
    """``A - V @ V.T`` is not positive definite, so that it has no Cholesky factor: V takes more from A than there is.

    Parameters
    ----------
    minor : int
        Order of its first leading minor that is not positive definite, in floating-point arithmetic.
    tile : (int, int)
        The diagonal tile ``(k, k)`` in which that was met.
    """

    def __init__(self, minor: int, tile: tuple[int, int]) -> None:
        super().__init__(minor, tile)
        self.args = (
            f"the leading minor of order {minor} of A - V @ V.T is not positive definite (found in tile {tile}); take less from "
            "A, or what was added to it before",
        )

    def __reduce__(self) -> tuple[type, tuple[int, tuple[int, int]]]:
        return type(self), (self.minor, self.tile)


class NonFiniteError(OocCholError, ValueError):
    """The triangle of A that is read holds a NaN, an infinity, or a gap: a masked entry, or an object that is no number.

    Parameters
    ----------
    row, col : int
        Row and column of the entry in A, counted from zero.
    tile : (int, int) or None
        Tile ``(i, j)`` that holds the entry; None for a sparse matrix, all entries of which are read.
    held : str, optional
        Value there, where it is no number: ``"masked"``, or an object in words.
    triangle : {"lower", "upper"}
        The triangle of A that is read.
    matrix : int, optional
        The matrix of a batch that holds the entry, counted from zero.
    name : str
        The argument that holds it.
    """

    def __init__(
        self,
        row: int,
        col: int,
        tile: tuple[int, int] | None,
        held: str | None = None,
        triangle: str = "lower",
        matrix: int | None = None,
        name: str = "A",
    ) -> None:
        self.name = name
        self.row = row
        self.col = col
        self.tile = tile
        self.held = held
        self.triangle = triangle
        self.matrix = matrix
        where = f"{name}[{row}, {col}] (in tile {tile})" if matrix is None else f"{name}[{matrix}, {row}, {col}]"
        rule = f"only the {triangle} triangle is read, and all must be finite: mend the entry, or drop its row and column"
        if tile is None:
            where, rule = f"{name}[{row}, {col}]", "all entries must be finite: mend it, or leave it out"
        super().__init__(f"{where} is {held or 'NaN or infinite'}; {rule}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.row, self.col, self.tile, self.held, self.triangle, self.matrix, self.name)


class NonFiniteTensorError(OocCholError, ValueError):
    """An entry of a tensor that must be a finite number is none.

    Parameters
    ----------
    place : str
        Which, such as ``"X[3, 0, 7]"``.
    held : str
        Value there.
    advice : str
        Advice for the user, the end of the message.
    """

    def __init__(self, place: str, held: str, advice: str) -> None:
        self.place = place
        self.held = held
        self.advice = advice
        super().__init__(f"{place} is {held}; {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.place, self.held, self.advice)


class MissingValueError(OocCholError, TypeError, ValueError):
    """An array that is given has a masked entry where every value is needed.

    Parameters
    ----------
    name : str
        The argument that holds it.
    place : tuple of int
        Its indices, counted from zero; none of a scalar.
    held : str
        Value there: ``"masked"``, or pandas' ``"NA"``.
    """

    def __init__(self, name: str, place: tuple[int, ...], held: str = "masked") -> None:
        self.name = name
        self.place = place
        self.held = held
        at = ", ".join(map(str, place))
        where = name if not place else f"{name}[{at}]" if name.isidentifier() else f"entry [{at}] of {name}"
        super().__init__(f"{where} is {held}, and every value is needed: leave out what is missing, or fill it first")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[int, ...], str]]:
        return type(self), (self.name, self.place, self.held)


class SparseInputError(OocCholError, ValueError):
    """A sparse matrix, or a file that should hold one, is not what it should be.

    Parameters
    ----------
    source : str
        Name of the input: the name of a file, or of a type.
    place : str
        Where in it, such as ``"line 7"``, ``"byte 128 of indices.npy"`` or ``"row 5"``; empty where it is the whole.
    problem : str
        Problem at that place, with its numbers.
    advice : str
        Advice for the user, the end of the message.
    """

    def __init__(self, source: str, place: str, problem: str, advice: str) -> None:
        self.source = source
        self.place = place
        self.problem = problem
        self.advice = advice
        super().__init__(f"{source}{f', {place}' if place else ''}: {problem}; {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.source, self.place, self.problem, self.advice)


class PreconditionerError(OocCholError, ValueError):
    """A preconditioner is not what it should be: symmetric, positive definite, real, and of the shape of A.

    Parameters
    ----------
    problem : str
        Problem, with its numbers.
    advice : str
        Advice for the user, the end of the message.
    """

    def __init__(self, problem: str, advice: str) -> None:
        self.problem = problem
        self.advice = advice
        super().__init__(f"the preconditioner {problem}; {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.problem, self.advice)


class SingularMatrixError(OocCholError, np.linalg.LinAlgError):
    """A matrix that is to be inverted is singular, or so nearly that nothing of its inverse would be right.

    Parameters
    ----------
    matrix : str
        Name of the matrix, such as ``"A - sigma I"``.
    problem : str
        How that showed, with its numbers.
    advice : str
        Advice for the user, the end of the message.
    column : int, optional
        The column that has no pivot, counted from zero, where it is known: it depends on others.
    """

    def __init__(self, matrix: str, problem: str, advice: str, column: int | None = None) -> None:
        self.matrix = matrix
        self.problem = problem
        self.advice = advice
        self.column = column
        super().__init__(f"{matrix} is singular to working precision: {problem}; {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str, int | None]]:
        return type(self), (self.matrix, self.problem, self.advice, self.column)


class NotHermitianError(OocCholError, ValueError):
    """A diagonal entry of a complex matrix has an imaginary part, so that the matrix is not Hermitian.

    Parameters
    ----------
    row : int
        Row of the entry in A, counted from zero.
    tile : (int, int)
        The diagonal tile ``(k, k)`` that holds the entry.
    """

    def __init__(self, row: int, tile: tuple[int, int]) -> None:
        self.row = row
        self.tile = tile
        super().__init__(
            f"A[{row}, {row}] (in tile {tile}) has an imaginary part that is more than rounding, but the diagonal of a Hermitian "
            "matrix is real: check how A was made, or factor (A + A.conj().T) / 2"
        )

    def __reduce__(self) -> tuple[type, tuple[int, tuple[int, int]]]:
        return type(self), (self.row, self.tile)


class UnsupportedTypeError(OocCholError, TypeError):
    """Something was asked for that is not there for the type of the matrix or of its factor.

    Parameters
    ----------
    what : str
        Requested feature, such as ``"precision_threshold"``.
    dtype : str
        The type, by NumPy's name.
    advice : str
        Advice for the user, the end of the message.
    """

    def __init__(self, what: str, dtype: str, advice: str) -> None:
        self.what = what
        self.dtype = dtype
        self.advice = advice
        super().__init__(f"{what} is not there for {dtype}: {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.what, self.dtype, self.advice)


class BudgetError(OocCholError, MemoryError):
    """A memory budget is too small for what was asked.

    Parameters
    ----------
    what : str
        The memory that is short, such as ``"memory_budget of host:0"``.
    needed_bytes, budget_bytes : int
        Least bytes that suffice, and the bytes there are.
    advice : str
        Advice for the user, the end of the message.
    """

    def __init__(self, what: str, needed_bytes: int, budget_bytes: int, advice: str) -> None:
        self.what = what
        self.needed_bytes = needed_bytes
        self.budget_bytes = budget_bytes
        self.advice = advice
        super().__init__(f"{what}: {budget_bytes} bytes are too few, at least {needed_bytes} are needed; {advice}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, self.needed_bytes, self.budget_bytes, self.advice)


class PrecisionError(OocCholError):
    """No factor that could be computed is certified to be within the threshold, the one in FP64 included.

    Parameters
    ----------
    bound : float
        Largest error that the factor in FP64 is certified to have, ``||A - L L^T||_F / ||A||_F``.
    threshold : float
        The ``precision_threshold`` that was asked for, of the same quantity.
    norm : float, optional
        ``||A||_F`` where it is so small that subnormal numbers may matter, and less can be certified than of A times a number.
    """

    def __init__(self, bound: float, threshold: float, norm: float | None = None) -> None:
        self.bound = bound
        self.threshold = threshold
        self.norm = norm
        scale = "" if norm is None else f"scale A up, whose norm of {norm:.1e} is near subnormal numbers, "
        super().__init__(
            f"even in FP64 the error is only certified to be at most {bound:.2g} ||A||_F, more than precision_threshold = "
            f"{threshold:g}; {scale}take a larger threshold, none (precision_threshold=None) for FP64 without a certificate, or "
            "strict=False for the factor with the bound that it has"
        )

    def __reduce__(self) -> tuple[type, tuple[float, float, float | None]]:
        return type(self), (self.bound, self.threshold, self.norm)


class PrecisionWarning(UserWarning):
    """A factor in mixed precision may be of less use than it seems: the message says which of its figures to doubt."""

    __repr__ = _error_repr


class AsymmetryWarning(UserWarning):
    """A is not symmetric, or only one triangle of it is filled: the message shows two entries and says what was read."""

    __repr__ = _error_repr


class BudgetWarning(UserWarning):
    """A memory budget is more than the machine has: the message says how much that is."""

    __repr__ = _error_repr


class PlanSizeError(BudgetError):
    """A plan would have more steps than this machine plans: the tiles are too many.

    Parameters
    ----------
    matrix : str
        The matrix that was to be planned, in words, with its order.
    steps, most_steps : int
        Steps that the plan would have, and the most that are planned.
    step_bytes : int
        Bytes of memory that planning takes for a step.
    tile_size : int
        Order of tiles with which the matrix can be planned.
    memory_budget : int or None
        Least bytes per device that hold them; None where the budget that was given does.
    """

    def __init__(
        self, matrix: str, steps: int, most_steps: int, step_bytes: int, tile_size: int, memory_budget: int | None
    ) -> None:
        self.matrix = matrix
        self.steps = steps
        self.most_steps = most_steps
        self.step_bytes = step_bytes
        self.tile_size = tile_size
        self.memory_budget = memory_budget
        budget = "" if memory_budget is None else f" and memory_budget={memory_budget} or more"
        advice = f"at most {most_steps} steps are planned here: give tile_size={tile_size}{budget}"
        what = f"memory to plan {matrix}, about {steps:.3g} steps"
        super().__init__(what, steps * step_bytes, most_steps * step_bytes, advice)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.matrix, self.steps, self.most_steps, self.step_bytes, self.tile_size, self.memory_budget)


class RefinementError(OocCholError):
    """Refining a solution with A did not reach FP64's accuracy: the factor is too far from A's.

    Parameters
    ----------
    column : int
        Column of the right-hand side that failed, counted from zero; of several, the one that is left worst.
    backward_error, bound : float
        The smallest backward error that it reached, and the largest that passes.
    iterations : int
        Number of iterations that were made.
    reason : str
        Why the iteration went no further, such as ``"most_iterations=100 is used up"``.
    x : (n, m) array
        The best solutions found, of all right-hand sides.
    """

    def __init__(
        self, column: int, backward_error: float, bound: float, iterations: int, reason: str, x: NDArray[np.float64]
    ) -> None:
        self.column = column
        self.backward_error = backward_error
        self.bound = bound
        self.iterations = iterations
        self.reason = reason
        self.x = x
        super().__init__(
            f"right-hand side {column} was refined to a backward error of {backward_error:.2g} in {iterations} iterations, but "
            f"FP64 reaches {bound:.2g}: {reason}; factor A again with a smaller precision_threshold, or in FP64 "
            "(precision_threshold=None), and check that A is the matrix that was factored; the best solutions are in the "
            "error's attribute x"
        )

    def __reduce__(self) -> tuple[type, tuple[int, float, float, int, str, NDArray[np.float64]]]:
        return type(self), (self.column, self.backward_error, self.bound, self.iterations, self.reason, self.x)


class ScheduleError(OocCholError):
    """A schedule, plan or residency rule is broken: always a fault of a scheduler or of ooc_chol, never of the matrix."""


class DeviceError(OocCholError, RuntimeError):
    """The driver of a device refused a call, or lost the device: nothing that was computed there since is of use.

    Parameters
    ----------
    device : str
        Name of the device, such as ``"cuda:0"``.
    step : str
        Step that was requested or was running, in words.
    reason : str
        Words of its driver.
    """

    def __init__(self, device: str, step: str, reason: str) -> None:
        self.device = device
        self.step = step
        self.reason = reason
        super().__init__(
            f"{device} failed at {step}: {reason}. What was running there is lost; try the same call again, and where that fails "
            "too, start a new process (a driver that has lost a device gives it back to no old one) and look at its log"
        )

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.device, self.step, self.reason)


class ForkedError(OocCholError, RuntimeError):
    """A forked process went on with what its parent had begun: threads, streams and contexts of drivers do not come along.

    Parameters
    ----------
    what : str
        Object that was used, such as ``"this factorization"``.
    process : int
        The process that began it.
    """

    def __init__(self, what: str, process: int) -> None:
        self.what = what
        self.process = process
        super().__init__(
            f"{what} was begun by process {process}, of which this one is a forked child: threads, streams and GPUs stay behind "
            "when a process forks; start processes afresh (multiprocessing.get_context('spawn')), or fork before the first call"
        )

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.what, self.process)


class MissingPackageError(OocCholError, ImportError):
    """A package needed for the request is not installed; the message names what brings it."""


class ClusterError(OocCholError, RuntimeError):
    """A run on a cluster cannot begin or go on: workers differ, a task killed its workers, or the connection was lost.

    Parameters
    ----------
    problem : str
        Event and place.
    advice : str
        Advice for the user, the end of the message.
    workers : mapping of str to str, optional
        By the address of each worker that the problem is about, what is told of it.
    """

    def __init__(self, problem: str, advice: str, workers: Mapping[str, str] | None = None) -> None:
        self.problem = problem
        self.advice = advice
        self.workers = dict(workers or {})
        told = "".join(f"\n  {address}: {text}" for address, text in list(self.workers.items())[:_MOST_WORKERS])
        left_out = len(self.workers) - _MOST_WORKERS
        super().__init__(f"{problem}; {advice}{told}" + (f"\n  and {left_out} more" if left_out > 0 else ""))

    def __reduce__(self) -> tuple[type, tuple[str, str, dict[str, str]]]:
        return type(self), (self.problem, self.advice, self.workers)


class TierError(OocCholError, OSError):
    """A storage tier could not read or write a block, or a file is not what it should be."""


class DamagedFileError(TierError):
    """A file is not what was written: bytes of it were changed, lost or put elsewhere.

    Parameters
    ----------
    text : str
        The message, which says what is damaged and what to do.
    path : str
        Name of the file.
    tile : (int, int), optional
        The tile ``(i, j)`` that is damaged; None where it is the header or the index of checksums.
    first : int, optional
        First byte of what is damaged, or holds the damage; None where that is the whole file.
    stop : int, optional
        The byte behind the last of these.
    """

    def __init__(
        self, text: str, path: str, *, tile: tuple[int, int] | None = None, first: int | None = None, stop: int | None = None
    ) -> None:
        self.text = text
        self.path = path
        self.tile = tile
        self.first = first
        self.stop = stop
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return _damaged_again, (type(self), self.text, self.path, self.tile, self.first, self.stop)


def _damaged_again(kind: type[DamagedFileError], text: str, path: str, tile: tuple[int, int] | None, *span: int | None) -> object:
    """A DamagedFileError from a pickle, whose arguments have no names."""
    return kind(text, path, tile=tile, first=span[0], stop=span[1])


class OutputError(TierError, FileExistsError):
    """A file that was to be written is one that must not be lost: an input or another output of the call, or a stranger's.

    Parameters
    ----------
    text : str
        The message, which says what happened and what to do.
    option : str
        The option or argument by which the user names the output, such as ``"store"`` or ``"--output"``.
    path : str
        Name of the file that was to be written.
    other : str or None
        The option of the input or output that is the same file; None where the file merely exists.
    """

    def __init__(self, text: str, option: str, path: str, other: str | None = None) -> None:
        self.text = text
        self.option = option
        self.path = path
        self.other = other
        super().__init__(text)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str | None]]:
        return type(self), (self.text, self.option, self.path, self.other)


class CheckpointError(TierError):
    """The checkpoint does not belong to this call: another matrix, other options, or arithmetic with other bits.

    Parameters
    ----------
    path : str
        The file that the checkpoint is.
    differences : mapping of str to (str, str)
        By name what differs: how it is in the checkpoint, and in this call.
    ask : str
        Words for the message on how the user asks to start afresh.
    of : str
        Words for what the checkpoint is of.
    """

    def __init__(
        self,
        path: str,
        differences: Mapping[str, tuple[str, str]],
        ask: str = "replace=True",
        of: str = "factorization, whose factor has other bits",
    ) -> None:
        self.path = path
        self.differences = dict(differences)
        self.ask = ask
        self.of = of
        told = ", ".join(
            f"{name} ({shortened(there)} there, {shortened(here)} here)" for name, (there, here) in differences.items()
        )
        super().__init__(
            f"{path}: the checkpoint there is of another {of}; these differ: {told}; "
            f"go on with the matrix, options and machine of that one, or start afresh with {ask}"
        )

    def __reduce__(self) -> tuple[type, tuple[str, dict[str, tuple[str, str]], str, str]]:
        return type(self), (self.path, self.differences, self.ask, self.of)


class MissingFolderError(TierError, FileNotFoundError):
    """There is no folder to write a file into.

    Parameters
    ----------
    text : str
        The message, which says what happened and what to do.
    option : str
        The option or argument by which the user names the file, such as ``"store"`` or ``"--output"``; empty if it has no name.
    path : str
        Name of the file that was to be written.
    folder : str
        Name of the folder.
    """

    def __init__(self, text: str, option: str, path: str, folder: str) -> None:
        self.text = text
        self.option = option
        self.path = path
        self.folder = folder
        super().__init__(text)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, str]]:
        return type(self), (self.text, self.option, self.path, self.folder)


class StoppedError(OocCholError):
    """The caller's ``progress`` function returned True, and the call ended; a checkpoint of it stays.

    Parameters
    ----------
    call : str
        Name of the call.
    done, total : int
        Work done and all of it, in units.
    unit : str
        Unit of both, such as ``"pass"``.
    """

    def __init__(self, call: str, done: int, total: int, unit: str) -> None:
        units = f"{unit}es" if unit.endswith("s") else f"{unit}s"
        super().__init__(f"{call} was stopped by its progress function at {done} of {total} {units}")
        self.call, self.done, self.total, self.unit = call, done, total, unit

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.call, self.done, self.total, self.unit)


class ClosedError(TierError, ValueError):
    """A factor was used after it was closed; its ``closed`` says so beforehand."""


class InputWarning(UserWarning):
    """An input is probably not what was meant: the message says what was made of it, and what to give."""

    __repr__ = _error_repr


class RatesWarning(UserWarning):
    """Measured rates could not be used, so that a plan goes without predicted seconds; the message says why."""

    __repr__ = _error_repr


class ImputationWarning(UserWarning):
    """An imputation tells less than it seems to: the message names the slices, or says what was not done."""

    __repr__ = _error_repr


class ImputationInterrupted(KeyboardInterrupt):
    """Ctrl-C ended :func:`ooc_chol.impute`, which had come as far as ``imputed``.

    Parameters
    ----------
    imputed : Imputed
        The tensor after the last complete step, with the history of all values of lambda that were completed.
    """

    def __init__(self, imputed: Any) -> None:
        self.imputed = imputed
        super().__init__("impute was interrupted; the error's attribute imputed has the tensor after the last step")


def __getattr__(name: str) -> object:
    """Import the error of eigensolvers."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ooc_chol.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
