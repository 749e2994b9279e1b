"""Interface of covariance functions, and the checks of their parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.scales import Scale

#: Most letters of a model on one line.
_LONGEST_LINE = 199


#: ``"free"``: estimated; ``"zero"``: none; a number: kept at that variance, in squared units of the values.
Nugget = Literal["free", "zero"] | float


class AbstractCovariance(ABC):
    """A covariance function ``C(a, b)`` of a smooth field, and the variance of the error of one observation.

    Subclasses are frozen dataclasses. Coordinates are given by axis: (d, n) and (d, m) arrays.
    """

    if TYPE_CHECKING:  # when running, a property here would be taken for the default of a subclass's field

        @property
        def variance(self) -> float:
            """Factor of the covariance function; the variance of the field, in squared units of the values."""

        @property
        def nugget(self) -> float:
            """Variance of the independent error of each observation, added by index."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters besides variance and nugget, in a fixed order."""

    @property
    @abstractmethod
    def values(self) -> dict[str, float]:
        """The values of :attr:`parameters`, by name and in their order."""

    @abstractmethod
    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """How a fit moves each of :attr:`parameters`, and between which bounds.

        Parameters
        ----------
        coordinates : (n, d) array
            The sites of the observations, which bound lengths.

        Returns
        -------
        dict of str to Scale
            By name. An angle is bounded about its value here.

        Raises
        ------
        ValueError
            The covariance function is not defined for this number of coordinates.
        """

    @abstractmethod
    def canonical(self) -> Self:
        """The same covariance function with parameters in their usual intervals, where several values mean the same."""

    @abstractmethod
    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variance of the smooth field at each site, ``C(x_i, x_i)``.

        Parameters
        ----------
        coordinates : (n, d) array
            Sites.

        Returns
        -------
        (n,) array
            Variance of the field at each site, nugget excluded.

        Raises
        ------
        ValueError
            The covariance function is not defined at these sites.
        """

    @abstractmethod
    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sites in coordinates whose Euclidean distances say, the larger the less, how much two observations tell of each other.

        Parameters
        ----------
        coordinates : (n, d) array
            Sites.

        Returns
        -------
        (n, q) array
            In units of the ranges; only the order of the distances counts, and that only nearly.

        Raises
        ------
        ValueError
            The covariance function is not defined at these sites.
        """

    @abstractmethod
    def with_values(self, **values: float) -> Self:
        """A copy with other values of some of :attr:`parameters`, ``variance`` or ``nugget``.

        Parameters
        ----------
        **values : float
            New values of parameters, by name; the others stay.

        Returns
        -------
        AbstractCovariance
            A covariance function of the same class.

        Raises
        ------
        ValueError
            There is no such parameter, or a value is out of its bounds.
        """

    @abstractmethod
    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write ``out[i, j] = C(a[:, i], b[:, j])``, without nugget.

        Parameters
        ----------
        a, b : (d, n) and (d, m) arrays
            Coordinates by axis; (d, s, n) and (d, s, m) arrays for a stack of s matrices, each of sites of its own.
        out : (n, m) or (s, n, m) array
            Overwritten.

        Raises
        ------
        ValueError
            The covariance function is not defined for this number of axes.
        """

    @abstractmethod
    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """As :meth:`fill_derivative` for a name in :attr:`parameters`."""

    @abstractmethod
    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Arguments of the kernel in ``matern.cu`` that computes the same covariances.

        Parameters
        ----------
        coordinates : (n, d) array
            Sites.

        Returns
        -------
        DeviceForm
            Kernel, transformed sites, and arguments.

        Raises
        ------
        ValueError
            The covariance function is not defined for this number of coordinates.
        """

    @abstractmethod
    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """Arguments of the kernel in ``matern.cu`` that computes the derivatives of :meth:`fill_derivative`.

        Parameters
        ----------
        name : str
            One of :attr:`parameters`.
        coordinates : (n, d) array
            Sites.

        Returns
        -------
        DeviceForm
            Its variances are the derivatives of :meth:`site_variances`.
        """

    def __add__(self, other: AbstractCovariance) -> AbstractCovariance:
        """The covariance function of the sum of two independent fields: nested structures, whose nuggets add up."""
        return added(self, other) if isinstance(other, AbstractCovariance) else NotImplemented

    @property
    def sill(self) -> float:
        """Variance of one observation, ``variance + nugget``."""
        return self.variance + self.nugget

    def fill_derivative(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the exact derivative ``out[i, j] = dC(a[:, i], b[:, j]) / d name``, without nugget.

        Parameters
        ----------
        name : str
            One of :attr:`parameters`, or ``"variance"``.
        a, b : (d, n) and (d, m) arrays
            Coordinates by axis; (d, s, n) and (d, s, m) arrays for a stack of s matrices.
        out : (n, m) or (s, n, m) array
            Overwritten.

        Raises
        ------
        ValueError
            There is no such parameter.
        """
        if name == "variance":
            self.fill(a, b, out)
            out /= self.variance
        elif name in self.parameters:
            self._fill_parameter(name, a, b, out)
        else:
            raise ValueError(f"there is no derivative in {name!r}; there are variance, {', '.join(self.parameters)}")


class AbstractCovarianceOfFields(AbstractCovariance):
    """A dataclass whose :attr:`parameters` are fields of its own, each with one value only for a covariance function."""

    @property
    def values(self) -> dict[str, float]:
        """Values of :attr:`parameters`, by name."""
        return {name: getattr(self, name) for name in self.parameters}

    def canonical(self) -> Self:
        """The same object."""
        return self

    def with_values(self, **values: float) -> Self:
        """A copy with other values of some parameters."""
        check_names(self, values)
        return replace(self, **values)  # type: ignore[type-var]  # subclasses are dataclasses


@singledispatch
def added(first: Any, second: AbstractCovariance) -> AbstractCovariance:
    """The sum of two covariance functions; the class of sums, which knows all others, registers itself here."""
    raise TypeError(f"a {type(first).__name__} and a {type(second).__name__} have no sum")


def exact_text(model: AbstractCovariance) -> str:
    """The call that makes ``model``, every number to the last digit: equal for equal models, and for no others."""
    if not is_dataclass(model):
        return repr(model)
    values = {row.name: getattr(model, row.name) for row in fields(model) if row.repr}
    return f"{type(model).__qualname__}({', '.join(f'{name}={_exact(value)}' for name, value in values.items())})"


def _exact(value: Any) -> str:
    """A field of a model as text: covariance functions within it to the last digit, too."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_exact, value))}{',' if len(value) == 1 else ''})"
    return exact_text(value) if isinstance(value, AbstractCovariance) else repr(value)


def model_repr(self: AbstractCovariance) -> str:
    """The call that makes the model, where that is one line; else its class and its parameters, rounded."""
    text = exact_text(self)
    if len(text) <= _LONGEST_LINE:
        return text
    return tb.one_line(self, {"variance": self.variance, **self.values, "nugget": self.nugget})


@dataclass(frozen=True, eq=False)
class DeviceForm:
    """A covariance function as a kernel of ``matern.cu``."""

    kernel: str  #: Name of the CUDA function that fills a tile
    points: NDArray[np.float64]  #: (n, d) sites, transformed as the kernel wants them
    variances: NDArray[np.float64]  #: (n,) variance of the field at each site
    arguments: tuple[Any, ...]  #: What the kernel takes after points and diagonal: numbers and arrays
    code: str = ""  #: Text of the kernel, where it is none of ``matern.cu`` but made of the functions there


def check_names(model: AbstractCovariance, values: dict[str, Any]) -> None:
    """Raise ``ValueError`` when a name is no parameter of the model."""
    known = ("variance", "nugget", *model.parameters)
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ValueError(f"{type(model).__name__} has no parameter {', '.join(unknown)}; it has {', '.join(known)}")


def check_positive(**values: float) -> None:
    """Raise ``ValueError`` when a value is not finite and positive."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}, but it must be finite and positive")


def check_nugget(nugget: float) -> None:
    """Raise ``ValueError`` when a nugget is not finite or is negative."""
    if not (math.isfinite(nugget) and nugget >= 0):
        raise ValueError(f"nugget is {nugget}, but it must be finite, and zero or positive")


def check_model(model: object) -> None:
    """Raise ``TypeError`` for what is no covariance function."""
    if not isinstance(model, AbstractCovariance):
        raise TypeError(f"model is a {type(model).__name__}; give a covariance function, such as Matern(...) or a fit's model")


def kept_nugget(nugget: Nugget) -> float | None:
    """The variance at which the nugget is kept, or None when it is estimated."""
    if nugget == "free":
        return None
    if nugget == "zero":
        return 0.0
    if isinstance(nugget, str) or not (math.isfinite(nugget) and nugget >= 0):
        raise ValueError(f"nugget is {nugget!r}, but it must be 'free', 'zero' or a variance that is zero or positive")
    return float(nugget)
