"""State of a run just after a restart: all that it needs to go on to the same bits, besides the vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.chebyshev import ChebyshevFilter
from ooc_chol.eigen.krylov import KrylovState
from ooc_chol.memory.block_files import whole_field

#: Most products, panels and the like that a file can tell of.
_MOST_COUNT = 1 << 48


@dataclass(frozen=True)
class CheckRound:
    """One check sweep."""

    passes: int  #: Products with A that it took
    vectors: int  #: Random vectors that it began with
    missed: int  #: Eigenpairs that it found to be missing; the run went on where there were any


@dataclass
class LanczosCounts:
    """Counts of a run, in products with A, each with one panel."""

    passes: int = 0  #: Products that built the basis, without those below
    restarts: int = 0  #: How often the basis was made small again
    certificate_passes: int = 0  #: Products for residuals in float64
    checks: list[CheckRound] = field(default_factory=list)
    asymmetry: float = 0.0  #: Asymmetry of the projected matrix at the first restart, relative to its largest entry
    degree: int = 1  #: Degree of the Chebyshev filter that was taken; 1 where none was

    def add(self, other: LanczosCounts) -> None:
        """Count what another run of the same call did, too."""
        self.passes, self.restarts = self.passes + other.passes, self.restarts + other.restarts
        self.checks += other.checks

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The counts that ``asdict`` told; ``KeyError``, ``TypeError`` or ``ValueError`` where it did not."""
        rounds, asymmetry, degree = content["checks"], content["asymmetry"], _count(content, "degree")
        if type(rounds) is not list or type(asymmetry) is not float or asymmetry < 0 or not degree:
            raise ValueError(f"checks are {rounds!r:.80}, the asymmetry is {asymmetry!r:.80}, the degree {degree}")
        checks = [CheckRound(*(_count(each, name) for name in ("passes", "vectors", "missed"))) for each in rounds]
        passes, restarts, certificates = (_count(content, name) for name in ("passes", "restarts", "certificate_passes"))
        return cls(passes, restarts, certificates, checks, asymmetry, degree)


@dataclass(frozen=True)
class LanczosState:
    """A run just after a restart; its vectors are the first panels of the space."""

    basis: KrylovState  #: Ritz values that were kept, and what couples them with the frontier
    frontier: tuple[int, ...]  #: Panels of the frontier, in their order
    estimates: NDArray[np.float64]  #: (k,) estimated residuals of the wanted pairs
    scale: float  #: Largest magnitude of a Ritz value until now
    #: Smallest residual that was computed until now, or infinity; with ``stuck`` it tells whether restarts still help
    least: float
    stuck: int  #: How often it has not become smaller
    space_passes: int  #: Products that the space has counted, from which its seeds follow
    counts: LanczosCounts
    #: The polynomial of whose products the basis is, and one with which the next cycle begins
    filter: ChebyshevFilter | None = None
    next_filter: ChebyshevFilter | None = None
    pace: tuple[tuple[int, float], ...] = ()  #: Products, and the least estimate of a wanted residual until then, now and then

    def panels(self, block: int) -> int:
        """Panels of vectors that belong to it."""
        return self.basis.panels(block)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data; numbers that are not whole as texts of all their bits."""
        return {
            "values": _texts(self.basis.values),
            "coupling_rows": len(self.basis.coupling),
            "coupling": _texts(self.basis.coupling),
            "frontier": list(self.frontier),
            "estimates": _texts(self.estimates),
            "scale": self.scale.hex(),
            "least": float(self.least).hex(),
            "stuck": self.stuck,
            "space_passes": self.space_passes,
            "counts": asdict(self.counts),
            "filter": _filter_text(self.filter),
            "next_filter": _filter_text(self.next_filter),
            "pace": [[count, residual.hex()] for count, residual in self.pace],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], block: int) -> Self:
        """The state that :meth:`to_dict` told; ``KeyError``, ``TypeError`` or ``ValueError`` where it makes no sense."""
        values, height = _numbers(content["values"]), _count(content, "coupling_rows")
        coupling = _numbers(content["coupling"]).reshape(height, len(values))
        frontier = tuple(whole_field(panel, "frontier", _MOST_COUNT) for panel in content["frontier"])
        kept = len(values) // block
        if len(values) % block or height != len(frontier) * block or sorted(frontier) != list(range(kept, kept + len(frontier))):
            raise ValueError(f"{len(values)} columns and {height} beyond them are no panels of {block}, {frontier}")
        estimates, scale, least = _numbers(content["estimates"]), float.fromhex(content["scale"]), float.fromhex(content["least"])
        if not (len(estimates) and estimates.min() >= 0 and 0 <= scale < np.inf and least >= 0):
            raise ValueError(f"residuals are estimated as {estimates!s:.80}, the least as {least}, beside values of {scale}")
        return cls(
            KrylovState(values, coupling),
            frontier,
            estimates,
            scale,
            least,
            _count(content, "stuck"),
            _count(content, "space_passes"),
            LanczosCounts.from_dict(content["counts"]),
            _filter_from(content["filter"], kept + len(frontier)),
            _filter_from(content["next_filter"], 0),
            _pace(content.get("pace", [])),  # which checkpoints of earlier versions do not have
        )


def _count(content: Mapping[str, Any], name: str) -> int:
    """A count of products or restarts, or the like."""
    return whole_field(content[name], name, _MOST_COUNT)


def _filter_text(chebyshev: ChebyshevFilter | None) -> list[Any] | None:
    if chebyshev is None:
        return None
    return [chebyshev.degree, chebyshev.center.hex(), chebyshev.half.hex(), chebyshev.panels]


def _filter_from(told: list[Any] | None, used: int) -> ChebyshevFilter | None:
    if told is None:
        return None
    degree, center, half, panels = told
    whole, width = whole_field(degree, "degree", _MOST_COUNT), whole_field(panels, "panels", _MOST_COUNT)
    found = ChebyshevFilter(whole, float.fromhex(center), float.fromhex(half), width)
    if found.degree < 1 or not np.isfinite([found.center, found.half]).all() or not found.half or found.panels < max(used, 2):
        raise ValueError(f"{told} is no filter of a basis of {used} panels")
    return found


def _pace(told: list[Any]) -> tuple[tuple[int, float], ...]:
    if not isinstance(told, list):
        raise TypeError(f"pace is {told!r:.80}, no list")
    return tuple((whole_field(count, "pace", _MOST_COUNT), float(_numbers([residual])[0])) for count, residual in told)


def _texts(numbers: NDArray[np.float64]) -> list[str]:
    return [float(each).hex() for each in numbers.reshape(-1)]


def _numbers(texts: list[str]) -> NDArray[np.float64]:
    found = np.array([float.fromhex(each) for each in texts])
    if not np.isfinite(found).all():
        raise ValueError("some of its numbers are NaN or infinite")
    return found
