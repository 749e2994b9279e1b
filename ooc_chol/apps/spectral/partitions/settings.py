"""How bisections are made, and what they have cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from ooc_chol.apps.spectral.arguments import SolverWords, check_words, real_number, whole_number
from ooc_chol.apps.spectral.solving.lowest import Lowest, SolverOptions

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


def settings_of(balance: float, vectors: int, search: int, refine: bool, seed: int, solver: SolverWords) -> Settings:
    """Settings; ``ValueError`` or ``TypeError`` for what makes no sense."""
    check_words(solver)
    room = real_number(balance, "balance")
    if not 0.0 <= room < 1.0:
        raise ValueError(f"balance is {room:g}; give by how much parts may weigh more than their targets: 0, or up to 1")
    if not isinstance(refine, bool):
        raise TypeError(f"refine is {refine!r:.40}; give True or False")
    number = whole_number(seed, "seed", 0)
    vectors, search = whole_number(vectors, "vectors", 1), whole_number(search, "search", 0)
    return Settings(room, vectors, search, refine, number, SolverOptions(seed=number, **solver))


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
    first: Lowest | None = None  #: Eigenpairs of the first bisection that needed some
    candidates: tuple[str, ...] = ()  #: Of the same
    _notes: dict[str, None] = field(default_factory=dict)

    def note(self, *notes: str) -> None:
        """Tell something once."""
        self._notes.update(dict.fromkeys(notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users, in their order."""
        told = tuple(self._notes)
        more = len(told) - _MOST_NOTES
        return told if more <= 0 else (*told[:_MOST_NOTES], f"There are {more} more notes like these.")
