"""Where a graph-tensor lies while it is imputed, and the step that is done there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.errors import NonFiniteTensorError
from ooc_chol.kernels.interfaces.tensors import Shrinkage, Svt, TensorShape
from ooc_chol.precision.triples import Precision
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.runtime.passes import Pass
from ooc_chol.tracing.trace import Trace


class StepFigures(NamedTuple):
    """Figures of one step."""

    change: float  #: Sum over all missing entries of ``(X_new - X_old)**2``
    size: float  #: Sum over all entries of ``X_old**2``
    ranks: NDArray[np.int32]  #: (r,) singular values of each slice of the transform that were kept
    full_route: int  #: Slices for which all eigenpairs, or singular values, were computed


@dataclass
class TensorSeconds:
    """Where the seconds of a space went."""

    transform: float = 0.0  #: Transforms and what fills in missing entries
    threshold: float = 0.0  #: Singular values
    exchange: float = 0.0  #: Copies between devices, of the device that took longest; most run beside kernels of transforms


class AbstractTensorSpace(AbstractClosing):
    """A tensor X (N, m, n), its transform ``Z = U.T X`` (r, m, n), what was observed, and the route of thresholds.

    The order of calls is ``load``, ``warm_up`` where there is something to go on from, and then steps. All bits depend on what
    was loaded and on the steps alone, and on no budget and number of devices.
    """

    shape: TensorShape
    precision: Precision
    svt: Svt  #: The route that thresholds take, never "auto"
    devices: tuple[str, ...]
    seconds: TensorSeconds
    trace: Trace | None
    joined: tuple[range, ...]  #: Slices of Z that are lowered as one matrix, within groups
    numbers: NDArray[np.intp] | None = None  #: Names of the slices of Z in messages, unless their places

    @abstractmethod
    def load(
        self, observed: NDArray[Any], mask: NDArray[np.bool_], start: NDArray[Any] | None = None, *, center: float = 0.0
    ) -> None:
        """Take a problem: X becomes ``observed - center`` where ``mask``, else ``start``, or zero, and Z its transform.

        Shapes: ``observed`` (N, m, n), ``mask`` (N,) or (N, m, n), ``start`` (N, m, n).
        """

    @abstractmethod
    def largest(self) -> float:
        """Largest singular value of any slice of ``U.T Y``, where Y is what was loaded, with zeros where nothing is observed."""

    @abstractmethod
    def step(self, lam: float, momentum: float = 0.0, shrinkage: Shrinkage = "soft", number: int = 0) -> StepFigures:
        """Lower singular values of all slices of Z as ``lam`` and ``shrinkage`` say, transform back, fill in X, transform that.

        ``number`` counts steps from 0: where slices are joined and square, every other step sees them the other way round. Raises
        ``NonFiniteTensorError``: singular values of a slice are no finite numbers.
        """

    @abstractmethod
    def take(self, rows: range | None = None) -> NDArray[Any]:
        """X (N, m, n), or slices of it; it may be the space's own memory, which the next step changes."""

    @abstractmethod
    def warm(self) -> Sequence[NDArray[np.float64]]:
        """Start that thresholds keep from step to step, for checkpoints: arrays that the next step changes; empty without one."""

    @abstractmethod
    def warm_up(self, arrays: Sequence[NDArray[np.float64]]) -> None:
        """Go on from what :meth:`warm` gave."""

    @property
    @abstractmethod
    def planned_bytes(self) -> Mapping[str, int]:
        """Bytes over each link that the plan has for the steps that were done."""

    @property
    @abstractmethod
    def executed_bytes(self) -> Mapping[str, int]:
        """Bytes over each link that were copied."""

    @abstractmethod
    def close(self) -> None:
        """End all threads and free all memory but what :meth:`take` gave; a second call does nothing."""

    def _is_across(self, number: int) -> bool:
        """Tell whether a step sees slices the other way round; the warm start of subspaces is of one way alone."""
        is_free = self.shape.rows == self.shape.columns and self.svt != "subspace"
        return bool(self.joined) and is_free and number % 2 == 1

    def _trace_of(self, run: Pass) -> Trace:
        """Trace of what a space has done in a run."""
        metadata: dict[str, str | int | float] = {
            "shape": " x ".join(map(str, self.shape)),
            "precision": self.precision.value,
            "svt": self.svt,
            "devices": ", ".join(self.devices),
        }
        return Trace(tuple(record for track in run.tracks for record in track.records(0)), metadata=metadata)

    def _not_finite(self, slices: NDArray[np.intp]) -> NonFiniteTensorError:
        first = int((slices if self.numbers is None else self.numbers[slices]).min())
        place = f"slice {first} of the tensor's transform"
        what = "scale the tensor, so that fourth powers of its entries are finite"
        advice = f"entries are too large for {self.precision.value}: {what}"
        return NonFiniteTensorError(place, "not finite, or its Gram matrix is not", advice)
