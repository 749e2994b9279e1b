"""The last factor, kept open for whoever asks for the same matrix next."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance, exact_text

#: Relative difference below which two values of a parameter are one: a nugget that was multiplied by the variance and divided by
#: it again.
_ROUNDING = 1e-13


#: A number in the text of a model.
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


class FactorKey(NamedTuple):
    """Key of a factor: data, model and settings that it depends on."""

    kind: str  #: The covariance function, a sign in place of each number
    values: tuple[float, ...]  #: The numbers
    sites: bytes  #: Digest of the sites and of the known errors
    options: tuple[tuple[str, str], ...]  #: How it was factored

    def agrees(self, other: FactorKey) -> bool:
        """Tell whether the factors are of one matrix, to rounding."""
        return self._replace(values=()) == other._replace(values=()) and all(
            math.isclose(mine, theirs, rel_tol=_ROUNDING, abs_tol=0.0)
            for mine, theirs in zip(self.values, other.values, strict=True)
        )


def key_of(
    model: AbstractCovariance, coordinates: NDArray[np.float64], noise: NDArray[np.float64] | None, options: Mapping[str, Any]
) -> FactorKey:
    """The key of the factor of a covariance matrix."""
    text = exact_text(model)
    digest = hashlib.blake2b(repr(coordinates.shape).encode() + np.ascontiguousarray(coordinates).tobytes())
    digest.update(b"" if noise is None else b"errors" + np.ascontiguousarray(noise).tobytes())
    values = tuple(float(found) for found in _NUMBER.findall(text))
    return FactorKey(_NUMBER.sub("#", text), values, digest.digest(), tuple(sorted((k, repr(v)) for k, v in options.items())))


@final
class KeptFactor(AbstractContextManager["KeptFactor"]):
    """A place for the last factor, as ``FactorSettings(kept=...)``: the next call for the same matrix takes it as it is.

    A fit ends at the matrix that standard errors and kriging need, too: with one of these they do not factor it again. The factor
    takes its memory until another one takes its place, or :meth:`close`.

    Examples
    --------
    >>> import numpy as np
    >>> from ooc_chol.apps import geostat
    >>> places = np.random.default_rng(0).uniform(size=(60, 2))
    >>> observations = geostat.make_observations(
    ...     places, np.sin(6 * places[:, 0])
    ... )
    >>> with geostat.KeptFactor() as kept:
    ...     settings = geostat.FactorSettings(kept=kept)
    ...     model = geostat.fit(
    ...         observations, smoothness=1.5, settings=settings
    ...     ).model
    ...     prediction = geostat.predict(
    ...         observations, model, [[0.5, 0.5]], settings=settings
    ...     )
    >>> kept.reused
    1
    """

    def __init__(self) -> None:
        self.memory = oc.HostMemory(spare=True)
        self.reused = 0  #: How often a factor was taken again
        self._key: FactorKey | None = None
        self._factor: oc.CholeskyFactor | None = None
        self._is_lent = False

    def __repr__(self) -> str:
        return tb.one_line(self, {"holds": None if self._key is None else self._key.kind, "reused": self.reused})

    @property
    def is_lent(self) -> bool:
        """True if somebody uses the factor: another one needs a place of its own."""
        return self._is_lent

    @contextmanager
    def lent(self, key: FactorKey, make: Callable[[], oc.CholeskyFactor]) -> Iterator[oc.CholeskyFactor]:
        """The factor of a key, which stays open: the one that is here, or one that is made in its place."""
        if self._factor is not None and self._key is not None and key.agrees(self._key):
            self.reused += 1
        else:
            self._forget()
            self._factor, self._key = make(), key
        self._is_lent = True
        try:
            yield self._factor
        finally:
            self._is_lent = False

    def close(self) -> None:
        """Close the factor, and give up its memory."""
        self._forget()
        self.memory.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _forget(self) -> None:
        factor, self._factor, self._key = self._factor, None, None
        if factor is not None:
            factor.close()
