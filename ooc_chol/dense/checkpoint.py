"""Record of a checkpoint beside its tiles: the matrix, the choices, and the tiles computed again until now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ooc_chol.dense.fingerprint import Fingerprint
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.programs.layouts import ResidueLayout
from ooc_chol.precision.escalation import Escalation, EscalationState, Remedy
from ooc_chol.tasks.tiling import TileGrid

#: Version of what is written here; another one is not gone on from.
VERSION = 2


@dataclass(frozen=True)
class Progress:
    """How far a factorization in mixed precision has come: what was computed again, and what was tried already."""

    escalations: tuple[Escalation, ...] = ()
    rows: tuple[int, ...] = ()

    @classmethod
    def of(cls, escalations: Sequence[Escalation], state: EscalationState) -> Self:
        """The progress as it is now."""
        return cls(tuple(escalations), tuple(sorted(state.rows)))

    def state(self, grid: TileGrid) -> EscalationState:
        """State of the escalations so far, to resume from."""
        return EscalationState(grid, set(self.rows))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The progress that :meth:`to_dict` told."""
        return cls(tuple(_escalation(*step) for step in content["escalations"]), tuple(map(int, content["rows"])))

    def to_dict(self) -> dict[str, Any]:
        """The progress as plain data, remedies by their names."""
        steps = [
            [step.remedy.value, step.column, step.minor, step.work, None if step.bound is None else str(step.bound)]
            for step in self.escalations
        ]
        return {"escalations": steps, "rows": list(self.rows)}


def _escalation(remedy: str, column: int | None, minor: int | None, work: float, bound: str | None) -> Escalation:
    """A step of escalation from plain data; a bound is a text, as it may be infinite, which JSON does not know."""
    return Escalation(Remedy(remedy), column, minor, work, None if bound is None else float(bound))


@dataclass(frozen=True)
class CheckpointRecord:
    """Record in the header of a factor file, so that a later call can resume from its tiles."""

    fingerprint: Fingerprint
    fp64: str  #: Engine: ``"native"`` or ``"residue"``
    moduli: int | None  #: Moduli where all is FP64 through residues, and with a threshold those that were asked for
    half_products: bool | None  #: As it was asked for
    narrow: bool  #: Whether products run in FP16
    budget_bytes: int  #: Budget of each device when the file was made
    precision_threshold: float | None
    precision_rule: str
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def of(cls, plan: Plan, options: FactorOptions, fingerprint: Fingerprint, progress: Progress | None = None) -> Self:
        """The record of a factorization by ``plan``, which was made for ``options``."""
        return cls(
            fingerprint,
            plan.layout.engine,
            plan.moduli if options.precision_threshold is None else options.moduli,
            options.half_products,
            isinstance(plan.layout, ResidueLayout) and plan.layout.has_fp16,
            plan.budgets[0].budget_bytes,
            options.precision_threshold,
            options.precision_rule,
            progress or Progress(),
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, for a header."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"version": VERSION, **plain, "fingerprint": self.fingerprint.to_dict(), "progress": self.progress.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The record that a header holds; ``KeyError``, ``TypeError`` or ``ValueError`` where it is none."""
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']!r} of a checkpoint")
        threshold, moduli = content["precision_threshold"], content["moduli"]
        return cls(
            Fingerprint.from_dict(content["fingerprint"]),
            str(content["fp64"]),
            None if moduli is None else int(moduli),
            content["half_products"],
            bool(content["narrow"]),
            int(content["budget_bytes"]),
            None if threshold is None else float(threshold),
            str(content["precision_rule"]),
            Progress.from_dict(content["progress"]),
        )

    def pinned(self, asked: FactorOptions, tile_size: int) -> FactorOptions:
        """``asked``, with what it leaves open as it is here, as far as bits depend on it."""
        narrow = asked.half_products if asked.half_products is not None or self.fp64 == "native" else self.narrow
        return replace(
            asked,
            tile_size=tile_size if asked.tile_size is None else asked.tile_size,
            fp64=self.fp64 if asked.fp64 == "auto" else asked.fp64,
            moduli=self.moduli if asked.moduli is None else asked.moduli,
            half_products=narrow if asked.precision_threshold is not None else asked.half_products,
        )

    def conflicts(self, asked: FactorOptions, tile_size: int) -> dict[str, tuple[str, str]]:
        """Options that ``asked`` gives otherwise than they are here, by name: as they are here, and there."""
        both: dict[str, tuple[object, object]] = {
            "precision_threshold": (self.precision_threshold, asked.precision_threshold),
            "precision_rule": (self.precision_rule, asked.precision_rule),
        }
        if asked.tile_size is not None:
            both["tile_size"] = (tile_size, asked.tile_size)
        if asked.fp64 != "auto":
            both["fp64"] = (self.fp64, asked.fp64)
        if asked.moduli is not None and (self.moduli is not None or self.precision_threshold is None):
            both["moduli"] = (self.moduli, asked.moduli)
        if asked.half_products not in (None, self.half_products, self.narrow):
            both["half_products"] = (self.half_products, asked.half_products)
        return {name: (str(here), str(there)) for name, (here, there) in both.items() if here != there}


#: Fields of a record that JSON holds as they are.
_PLAIN = ("fp64", "moduli", "half_products", "narrow", "budget_bytes", "precision_threshold", "precision_rule")
