"""Covariance functions of one scaled distance, and how they fill a matrix chunk by chunk."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance, AbstractCovarianceOfFields, DeviceForm
from ooc_chol.apps.geostat.covariances.radial_table import SCRATCH, RadialTable
from ooc_chol.apps.geostat.covariances.scales import Scale, length_scale

#: Entries filled at once (64 KiB), so that a chunk and its scratch stay in the second-level cache of a core.
_CHUNK_ENTRIES = 8192


class AbstractProfile(ABC):
    """A correlation function ``rho(z)`` of the scaled distance z, with ``rho(0) = 1``; methods work in place.

    ``scratch`` is a (3, ...) array of three arrays of the shape of ``z``, which may be overwritten.
    """

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters of the shape."""

    @abstractmethod
    def correlate(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``rho(z)``."""

    @abstractmethod
    def slope(self, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``z * drho/dz``, which is 0 at 0."""

    @abstractmethod
    def differentiate(self, name: str, z: NDArray[np.float64], scratch: NDArray[np.float64]) -> None:
        """Replace ``z`` by ``drho/dname`` for one of :attr:`parameters`."""

    @property
    @abstractmethod
    def table(self) -> RadialTable:
        """``rho`` as a table."""

    @abstractmethod
    def derivative_table(self, name: str | None) -> RadialTable:
        """``drho/dname`` as a table, for one of :attr:`parameters`; ``z * drho/dz`` for None."""

    @property
    @abstractmethod
    def scales(self) -> dict[str, Scale]:
        """How a fit moves each of :attr:`parameters`, for distances in any number of dimensions."""

    @property
    @abstractmethod
    def sphere_scales(self) -> dict[str, Scale]:
        """Bounds and coordinates of the parameters for the great-circle distance."""

    @property
    @abstractmethod
    def sphere_obstacle(self) -> str | None:
        """Why ``rho`` of the great-circle distance is not positive definite on the sphere, with the remedy; None where it is."""


class AbstractRadialCovariance(AbstractCovariance):
    """``C(a, b) = variance * rho(z(a, b))``: a correlation function of one scaled distance."""

    @property
    @abstractmethod
    def profile(self) -> AbstractProfile:
        """The correlation function ``rho``."""

    @abstractmethod
    def scaled_distance(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """Write the scaled distances ``z[i, j]`` of ``a[:, i]`` and ``b[:, j]``; ``scratch`` (3, n, m) may be overwritten."""

    @abstractmethod
    def log_derivative(
        self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> NDArray[np.float64] | float:
        """``dlog z / dname`` for a parameter of the distance: a number, or an array in ``scratch``; any finite value at 0."""

    @abstractmethod
    def constant_log_derivative(self, name: str) -> float | None:
        """Value of :meth:`log_derivative` where it is the same for all distances; None where it is not."""

    def directional_log_derivative(self, name: str) -> tuple[int, int, float]:
        """Where it is not: ``(p, q, factor)`` of ``factor d_p d_q / |d|**2``, of differences d of points of the form."""
        raise ValueError(f"the derivative of the distance by {name!r} is the same in all directions")

    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(len(coordinates), self.variance)

    def table_form(self, kernel: str, points: NDArray[np.float64], scale: float) -> DeviceForm:
        """``C = table(distance of points * scale)``, the variance being in the table; ``points`` are transformed for that."""
        variances = np.full(len(points), self.variance)
        return DeviceForm(kernel, points, variances, (float(scale), *self.profile.table.arguments(self.variance)))

    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Tables of derivatives by the shape and by lengths, of all distances alike or of directions."""
        form, is_shape = self.device_form(coordinates), name in self.profile.parameters
        factor = 1.0 if is_shape else self.constant_log_derivative(name)
        table = self.profile.derivative_table(name if is_shape else None)
        zeros = np.zeros(len(coordinates))
        if factor is not None:
            return replace(form, variances=zeros, arguments=(form.arguments[0], *table.arguments(self.variance * factor)))
        first, second, factor = self.directional_log_derivative(name)
        arguments = (form.arguments[0], *table.arguments(self.variance * factor), np.int32(first), np.int32(second))
        return replace(form, kernel=f"{form.kernel}_by_axes", variances=zeros, arguments=arguments)

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write ``out[i, j] = C(a[:, i], b[:, j])``, without nugget, in chunks."""
        for rows, chunk, scratch in chunks(out):
            self.scaled_distance(a[:, rows], of_rows(b, rows), chunk, scratch)
            self.profile.correlate(chunk, scratch)
            if self.variance != 1.0:
                chunk *= self.variance

    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Shape: ``variance * drho/dname``; distance: ``variance * z rho'(z) * dlog z/dname``."""
        for rows, chunk, scratch in chunks(out):
            self.scaled_distance(a[:, rows], of_rows(b, rows), chunk, scratch)
            if name in self.profile.parameters:
                self.profile.differentiate(name, chunk, scratch)
            else:
                self.profile.slope(chunk, scratch)
                chunk *= self.log_derivative(name, a[:, rows], of_rows(b, rows), scratch)
            chunk *= self.variance


class AbstractIsotropicCovariance(AbstractRadialCovariance, AbstractCovarianceOfFields):
    """``C(h) = variance * rho(h / range)`` of the Euclidean distance h in any number of dimensions."""

    if TYPE_CHECKING:

        @property
        def range(self) -> float:
            """Length by which distances are divided, in the unit of the coordinates."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """``"range"`` and the parameters of the shape."""
        return ("range", *self.profile.parameters)

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """The range by the diameter of the sites."""
        return {"range": length_scale(coordinates), **self.profile.scales}

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coordinates in units of the range."""
        return coordinates / self.range

    def scaled_distance(
        self, a: NDArray[np.float64], b: NDArray[np.float64], z: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> None:
        """``z = |a - b| / range``."""
        euclidean(a, b, z, scratch[0])
        z *= 1.0 / self.range

    def log_derivative(
        self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], scratch: NDArray[np.float64]
    ) -> NDArray[np.float64] | float:
        """``dlog z / drange = -1 / range``."""
        return -1.0 / self.range

    def constant_log_derivative(self, name: str) -> float | None:
        """``-1 / range``."""
        return -1.0 / self.range

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """The sites themselves, and the table of the correlation."""
        return self.table_form("radial", coordinates, 1.0 / self.range)

    def covariance(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariance of the smooth field (without nugget) at each ``distance``, an array of any shape; a new array."""
        scaled = np.atleast_1d(tb.plain_array("distance", distance, np.float64)) / self.range
        self.profile.correlate(scaled, np.empty((SCRATCH, *scaled.shape)))
        scaled *= self.variance
        return scaled.reshape(np.shape(distance))


def chunks(out: NDArray[np.float64], arrays: int = SCRATCH) -> Iterator[tuple[slice, NDArray[np.float64], NDArray[np.float64]]]:
    """Cut a matrix into chunks of rows, or a stack of matrices into chunks of these, that stay in the cache."""
    step = max(1, _CHUNK_ENTRIES // max(1, math.prod(out.shape[1:])))
    scratch = np.empty((arrays, min(step, out.shape[0]), *out.shape[1:]))
    for start in range(0, out.shape[0], step):
        chunk = out[start : start + step]
        yield slice(start, start + len(chunk)), chunk, scratch[:, : len(chunk)]


def of_rows(b: NDArray[np.float64], rows: slice) -> NDArray[np.float64]:
    """The column sites of a chunk of :func:`chunks`: all of them, or those of the matrices of a stack."""
    return b if b.ndim == 2 else b[:, rows]


def differences(x: NDArray[np.float64], y: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Write ``out[..., i, j] = x[..., i] - y[..., j]``."""
    np.subtract(x[..., :, None], y[..., None, :], out=out)


def euclidean(a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], spare: NDArray[np.float64]) -> None:
    """Write ``out[i, j] = |a[:, i] - b[:, j]|``, or so for each matrix of a stack."""
    differences(a[0], b[0], out)
    if len(a) == 1:
        np.abs(out, out=out)
        return
    np.square(out, out=out)
    for axis in range(1, len(a)):
        differences(a[axis], b[axis], spare)
        np.square(spare, out=spare)
        out += spare
    np.sqrt(out, out=out)
