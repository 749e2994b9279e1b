"""How bisections are made, and what they have cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import ooc_chol.toolbox as tb
from ooc_chol.apps.spectral.solving.lowest import Lowest, SolverOptions, solver_options

#: Most notes of a report; the others are counted.
_MOST_NOTES = 12


@final
@dataclass(frozen=True)
class Settings:
    """Arguments of a partition, checked."""

    balance: float
    vectors: int
    search: int
    refine: bool
    seed: int
    solver: SolverOptions

    def key(self) -> dict[str, Any]:
        """All that bits depend on, beside the solver."""
        return {"balance": self.balance.hex(), **{name: getattr(self, name) for name in ("vectors", "search", "refine", "seed")}}


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Settings by the arguments of a call, by name; ``ValueError`` or ``TypeError`` for what makes no sense."""
    room, refine = tb.real_number(given["balance"], "balance"), given["refine"]
    if not 0.0 <= room < 1.0:
        raise ValueError(f"balance is {room:g}; give by how much parts may weigh more than their targets: 0, or a number below 1")
    if not isinstance(refine, bool):
        raise TypeError(f"refine is {refine!r:.40}; give True or False")
    least = {"seed": 0, "vectors": 1, "search": 0}
    seed, vectors, search = (tb.whole_number(given[name], name, least=value) for name, value in least.items())
    return Settings(room, vectors, search, refine, seed, solver_options(given, seed))


@final
@dataclass
class Tally:
    """Costs of the bisections of a partition, and notes on them."""

    components: int = 0
    bisections: int = 0
    passes: int = 0
    solve_seconds: float = 0.0
    search_seconds: float = 0.0
    refine_seconds: float = 0.0
    planned: Mapping[str, int] = field(default_factory=dict)  #: Bytes over links
    executed: Mapping[str, int] = field(default_factory=dict)
    first: Lowest | None = None  #: Eigenpairs of the first bisection that needed some
    candidates: tuple[str, ...] = ()  #: Of the same
    _notes: dict[str, None] = field(default_factory=dict)

    def note(self, *notes: str) -> None:
        """Tell something once."""
        self._notes.update(dict.fromkeys(notes))

    @property
    def seconds(self) -> float:
        """Seconds of all steps."""
        return self.solve_seconds + self.search_seconds + self.refine_seconds

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users, in their order."""
        told = tuple(self._notes)
        more = len(told) - _MOST_NOTES
        return told if more <= 0 else (*told[:_MOST_NOTES], f"There are {more} more notes like these.")
