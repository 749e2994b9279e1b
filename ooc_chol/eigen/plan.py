"""The plan of an eigensolver: columns of a panel and of the basis, memory of each device, bytes and seconds of a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ooc_chol.config import format_bytes
from ooc_chol.display.prints import brief_repr, one_line
from ooc_chol.eigen.asked import Sizes
from ooc_chol.eigen.predictions import PassSeconds, wanted_ring
from ooc_chol.eigen.space_plan import SpacePlan, plan_space
from ooc_chol.errors import BudgetError
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.dividing import RING_SLOTS
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import NO_DIAGONALS, Diagonals, device_text
from ooc_chol.tasks.row_blocks import RowBlocks

#: Passes with blocks of so many columns, of those with single vectors (measured: decision 55).
PASSES_OF_BLOCK = {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.31}
#: Devices that have lines of their own on the printed page.
_MOST_DEVICES = 8
#: Links that have lines of their own there.
_MOST_LINKS = 2


@dataclass(frozen=True)
class EigshProblem:
    """Problem of a plan: a matrix, its precision, and where it is computed."""

    blocks: RowBlocks
    precision: Precision
    devices: tuple[str, ...]
    memory_budget: int | str | None = None
    tier: str = "memory"
    diagonals: Diagonals = NO_DIAGONALS
    rates: PassRates | None = None  #: Those by which seconds are predicted; by default what was measured on this machine

    __repr__ = brief_repr

    @property
    def n(self) -> int:
        """Rows of the matrix."""
        return self.blocks.shape[0]

    def space(self, sizes: Sizes, kept_panels: int) -> SpacePlan:
        """The plan of a space, its ring as deep as the link needs and memory holds; BudgetError where there is no room."""
        least = self._space(sizes, RING_SLOTS)
        for slots in range(wanted_ring(least, kept_panels), RING_SLOTS, -1):
            try:
                return self._space(sizes, slots)
            except BudgetError:
                continue
        return least

    def _space(self, sizes: Sizes, ring_slots: int) -> SpacePlan:
        space = plan_space(
            self.blocks,
            precision=self.precision,
            block=sizes.block,
            capacity=sizes.panels + 1,
            devices=self.devices,
            memory_budget=self.memory_budget,
            tier=self.tier,
            diagonals=self.diagonals,
            ring_slots=ring_slots,
        )
        return space if self.rates is None else replace(space, products=replace(space.products, rates=self.rates))


@dataclass(frozen=True)
class BlockChoice:
    """A number of columns of a panel that was looked at."""

    block: int  #: Columns of a panel
    space: SpacePlan  #: What the devices hold with it
    kept_panels: int  #: Panels that a restart keeps
    seconds: PassSeconds | None  #: Predicted seconds of a pass; None without rates

    @property
    def cost(self) -> float | None:
        """Seconds of a pass, times the passes that it takes of those with single vectors; None where they are not known."""
        total = None if self.seconds is None else self.seconds.total
        return None if total is None else PASSES_OF_BLOCK[self.block] * total


@dataclass(frozen=True)
class EigshPlan:
    """How eigenpairs are looked for; it holds no matrix data and no device.

    Parameters
    ----------
    problem : EigshProblem
        The matrix and the devices.
    k : int
        Eigenpairs.
    which : str
        From which end.
    method : str
        ``"lanczos"``, or ``"dense"`` where the basis would be the whole space.
    choice : BlockChoice or None
        Columns of a panel and of the basis, with the memory of each device; None where ``method`` is ``"dense"``.
    others : tuple of BlockChoice
        What else was looked at; nothing where the user gave the block.
    """

    problem: EigshProblem
    k: int
    which: str
    method: str
    choice: BlockChoice | None
    others: tuple[BlockChoice, ...] = ()

    @property
    def space(self) -> SpacePlan:
        """Panels that each device holds.

        Raises
        ------
        ValueError
            The problem is solved as a dense one.
        """
        return self._chosen.space

    @property
    def _chosen(self) -> BlockChoice:
        if self.choice is None:
            raise ValueError(f"a matrix of order {self.problem.n} is solved as a dense one: there is no basis to be planned")
        return self.choice

    @property
    def block(self) -> int:
        """Columns of a panel."""
        return self._chosen.block

    @property
    def capacity(self) -> int:
        """Panels of the basis."""
        return self._chosen.space.capacity

    @property
    def ncv(self) -> int:
        """Columns of the basis; there is one panel more for what a product leaves."""
        return self.problem.n if self.choice is None else self.block * (self.capacity - 1)

    @property
    def kept(self) -> int:
        """Columns that a restart keeps."""
        return self._chosen.kept_panels * self.block

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of a pass after the first; None where no rates are known, or A is in a file."""
        found = None if self.choice is None else self.choice.seconds
        return None if found is None else found.total

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates; of a dense problem the bytes of the matrix and of its eigenvectors."""
        return 16 * self.problem.n**2 if self.choice is None else self.space.peak_bytes

    def link_bytes(self, passes: int = 1) -> dict[str, int]:
        """Bytes of blocks over each link in so many passes, from the first one on.

        Parameters
        ----------
        passes : int
            Products with a panel, one after the other.

        Returns
        -------
        dict of str to int
            By names such as ``"memory->cuda:0"``; a link that nothing crosses is left out.
        """
        return {} if self.choice is None else self.space.products.link_bytes(passes)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of vectors that the devices copy from each other in a pass."""
        return 0 if self.choice is None else self.space.products.exchanged_bytes

    def to_dict(self) -> dict[str, object]:
        """The plan's figures as plain data.

        Returns
        -------
        dict
            Numbers, texts, lists and dicts that JSON can hold; bytes and seconds.
        """
        blocks = self.problem.blocks
        found: dict[str, object] = {
            "shape": list(blocks.shape),
            "entries": blocks.n_entries,
            "stored_bytes": blocks.nbytes,
            "k": self.k,
            "which": self.which,
            "method": self.method,
            "precision": self.problem.precision.value,
            "devices": list(self.problem.devices),
            "tier": self.problem.tier,
            "ncv": self.ncv,
            "peak_bytes": self.peak_bytes,
        }
        if self.choice is None:
            return found
        first, two = self.link_bytes(1), self.link_bytes(2)
        return found | {
            "block": self.block,
            "kept": self.kept,
            "budget_bytes": self.space.products.budget_bytes,
            "memory": self.space.memory(),
            "bytes_first": first,
            "bytes_later": {name: nbytes - first.get(name, 0) for name, nbytes in two.items()},
            "bytes_exchanged": self.exchanged_bytes,
            "seconds": self.seconds,
            "choices": {str(each.block): each.cost for each in (self.choice, *self.others)},
        }

    def __repr__(self) -> str:
        facts: dict[str, object] = {"n": self.problem.n, "k": self.k, "which": self.which, "method": self.method}
        facts |= {"precision": self.problem.precision.value, "ncv": self.ncv}
        if self.choice is not None:
            facts |= {"block": self.block, "devices": self.problem.devices}
        return one_line(self, facts | {"peak": format_bytes(self.peak_bytes)})

    def __str__(self) -> str:
        return "\n".join(f"  {name:<10} {text}" if name else text for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        """The lines of the printed page."""
        blocks, problem = self.problem.blocks, self.problem
        pairs = f"{self.k} eigenpair{'s' * (self.k != 1)} ({self.which})"
        title = f"Plan: {pairs} of a matrix of order {problem.n} with {blocks.n_entries} entries in {problem.precision.value}"
        yield "", title
        if self.choice is None:
            yield "method", f"dense, by LAPACK on the host: {problem.n} eigenpairs in {format_bytes(self.peak_bytes)}"
            return
        yield "method", self._method_text()
        yield "block", self._choice_text()
        products = self.space.products
        where = "in memory" if products.tier == "memory" else f"in a {products.tier}"
        yield (
            "matrix",
            f"{format_bytes(blocks.nbytes)} {where}, {len(blocks.blocks)} blocks of up to {format_bytes(blocks.largest_bytes)}",
        )
        parts = self.space.memory()
        for share in products.shares[:_MOST_DEVICES]:
            yield "device", device_text(share)
            held = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts[share.device].items() if nbytes)
            yield "memory", f"{held}; peak {format_bytes(share.peak_bytes)} of {format_bytes(products.budget_bytes)}"
        if len(products.shares) > _MOST_DEVICES:
            yield "", f"  ... and {len(products.shares) - _MOST_DEVICES} more devices"
        yield from self._moves()
        yield "seconds", self._seconds_text()
        yield "passes", "unknown: they depend on the spectrum; the report counts them"

    def _method_text(self) -> str:
        a_restart = self.capacity - self._chosen.kept_panels - 1
        basis = f"a basis of {self.ncv} vectors, panels of {self.block}"
        plural = "es" * (a_restart != 1)
        return f"block Lanczos with thick restarts: {basis}; a restart keeps {self.kept} and comes after {a_restart} pass{plural}"

    def _choice_text(self) -> str:
        if not self.others:
            return f"{self.block} columns"
        if self._chosen.cost is None:
            return f"{self.block} of {', '.join(str(each.block) for each in self._ordered)}, as no seconds are predicted"
        least = self._chosen.cost
        costs = ", ".join(f"{each.block}: {each.cost / least:.3g}" for each in self._ordered if each.cost is not None)
        return f"{self.block} columns, by predicted seconds of all passes (relative: {costs})"

    @property
    def _ordered(self) -> list[BlockChoice]:
        return sorted((self._chosen, *self.others), key=lambda each: each.block)

    def _moves(self) -> Iterator[tuple[str, str]]:
        first, two = self.link_bytes(1), self.link_bytes(2)
        if len(first) > _MOST_LINKS:
            begun, both = sum(first.values()), sum(two.values())
            first, two = {f"{len(first)} links": begun}, {f"{len(first)} links": both}
        for link, nbytes in first.items():
            yield "moves", f"{link}: {format_bytes(nbytes)} the first pass, {format_bytes(two[link] - nbytes)} each later one"
        if not first:
            yield "moves", "no block: all are read in place"
        if self.exchanged_bytes:
            yield "", f"  {'':<10} {format_bytes(self.exchanged_bytes)} of vectors among the devices each pass"

    def _seconds_text(self) -> str:
        seconds = self._chosen.seconds
        if seconds is None:
            return "of a pass unknown: no rates of this machine; `ooc-chol bench rates --passes` measures them"
        own = f"products {seconds.product:.3g}, orthogonalization {seconds.orthogonalization:.3g}"
        if seconds.link is None or seconds.total is None:
            return f"of a pass unknown: they follow the file, whose rate is not known; by measured rates {own}"
        beside = f", of which {seconds.overlap:.3g} beside orthogonalization" if seconds.overlap else ""
        return f"{seconds.total:.3g} a pass, by measured rates: link {seconds.link:.3g}{beside}; {own}"
