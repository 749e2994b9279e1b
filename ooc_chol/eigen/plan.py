"""The plan of an eigensolver: columns of a panel and of the basis, memory of each device, bytes and seconds of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ooc_chol.calls.page import Line
from ooc_chol.calls.plan import AbstractPlan
from ooc_chol.config import format_bytes
from ooc_chol.display.prints import brief_repr
from ooc_chol.eigen.asked import Sizes
from ooc_chol.eigen.elsewhere import DevicesElsewhere
from ooc_chol.eigen.predictions import PassSeconds, wanted_ring
from ooc_chol.eigen.space_plan import SpacePlan, plan_space
from ooc_chol.errors import BudgetError
from ooc_chol.precision.triples import Precision
from ooc_chol.sparse.dividing import RING_SLOTS
from ooc_chol.sparse.elsewhere import matrix_text, worker_lines
from ooc_chol.sparse.pass_rates import PassRates
from ooc_chol.sparse.plan import NO_DIAGONALS, Diagonals, MultiplyPlan, device_text
from ooc_chol.tasks.row_blocks import RowBlocks

#: Passes with blocks of so many columns, of those with single vectors (measured: docs/decisions/0021-eigensolvers.md).
PASSES_OF_BLOCK = {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.31}
#: Devices that have lines of their own on the printed page.
_MOST_DEVICES = 8
#: Links that have lines of their own there.
_MOST_LINKS = 2


@dataclass(frozen=True)
class EigshProblem:
    """Problem of a plan: a matrix, its precision, and where it is computed."""

    blocks: RowBlocks | None  #: None for a matrix that multiplies by itself, on the host
    precision: Precision
    devices: tuple[str, ...]
    budget_bytes: int
    tier: str = "memory"
    diagonals: Diagonals = NO_DIAGONALS
    rates: PassRates | None = None  #: Those by which seconds are predicted; None where none are known
    packed_bytes: int = 0  #: Bytes of host memory that the call packs the matrix in
    order: int = 0  #: Rows of a matrix without blocks
    why: str = ""  #: Why it is the host, in a clause, where no device was named and no GPU is to be used
    threads: int | None = None  #: Those of each device, where it is not this machine's cores that they share

    __repr__ = brief_repr

    @property
    def n(self) -> int:
        """Rows of the matrix."""
        return self.order if self.blocks is None else self.blocks.shape[0]

    def on(self, there: DevicesElsewhere) -> EigshProblem:
        """The problem on devices of other processes."""
        return replace(self, devices=there.names, budget_bytes=there.budget_bytes, threads=there.threads, rates=there.rates)

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
        assert self.blocks is not None
        return plan_space(
            self.blocks,
            precision=self.precision,
            block=sizes.block,
            capacity=sizes.panels + 1,
            devices=self.devices,
            budget_bytes=self.budget_bytes,
            tier=self.tier,
            diagonals=self.diagonals,
            rates=self.rates,
            ring_slots=ring_slots,
            threads=self.threads,
        )


#: Where eigenvalues are that are wanted of a shift, in words.
_OF_SIGMA = {"LM": "nearest to", "LA": "at or above", "SA": "at or below"}


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


@dataclass(frozen=True, repr=False)
class EigshPlan(AbstractPlan):
    """How eigenpairs are looked for; it holds no matrix data and no device. Its unit is a pass: a product with one panel.

    Parameters
    ----------
    problem : EigshProblem
        The matrix and the devices.
    k : int
        Eigenpairs.
    which : str
        From which end.
    method : str
        ``"lanczos"``, ``"lobpcg"``, ``"shift-invert"``, or ``"dense"`` where the basis would be the whole space.
    sizes : Sizes
        Columns of a panel, and panels of the basis.
    capacity : int
        Panels that there is room for.
    kept_panels : int
        Panels that a restart of Lanczos keeps.
    basis : SpacePlan or None
        Panels that each device holds; None where the basis is in host memory, or none.
    products : MultiplyPlan or None
        Products of packed blocks with vectors in host memory; None where devices hold the basis, A multiplies by itself, or it is
        so small that SciPy multiplies.
    choice : BlockChoice or None
        The number of columns that was chosen of several, with what is predicted; None where none was.
    others : tuple of BlockChoice
        Other blocks that were compared; nothing where the user gave the block.
    cluster : MultiplyPlan or None
        Products on the workers of a cluster, where there is one; with a basis on devices that lies there too.
    sigma : float or None
        The shift that was asked for, as ``which="SM"`` asks for 0.
    """

    call: ClassVar[str] = "eigsh"
    unit: ClassVar[str] = "pass"

    problem: EigshProblem
    k: int
    which: str
    method: str
    sizes: Sizes
    capacity: int
    kept_panels: int = 0
    basis: SpacePlan | None = None
    products: MultiplyPlan | None = None
    choice: BlockChoice | None = None
    others: tuple[BlockChoice, ...] = ()
    cluster: MultiplyPlan | None = None
    sigma: float | None = None

    @property
    def wanted_text(self) -> str:
        """The pairs that are wanted, in words."""
        pairs = f"{self.k} eigenpair{'s' * (self.k != 1)}"
        if self.sigma is None:
            return f"{pairs} ({self.which})"
        return f"{pairs} ({_OF_SIGMA[self.which]} sigma = {self.sigma!r})"

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices that take part."""
        products = self._products
        return self.problem.devices if products is None else products.devices

    @property
    def is_small(self) -> bool:
        """True if SciPy multiplies a packed matrix, with the basis in host memory."""
        return self.method == "lanczos" and self.basis is None and self.problem.blocks is not None

    @property
    def _products(self) -> MultiplyPlan | None:
        """Products on devices."""
        return self.products if self.basis is None else self.basis.products

    @property
    def budget_bytes(self) -> int:
        """Most bytes on each device."""
        return self.problem.budget_bytes

    @property
    def space(self) -> SpacePlan:
        """Panels that each device holds.

        Raises
        ------
        ValueError
            The problem is solved as a dense one, or the basis is in host memory.
        """
        if self.basis is None:
            what = "is solved as a dense one" if self.method == "dense" else "has its basis in host memory"
            raise ValueError(f"a matrix of order {self.problem.n} {what}: there is no basis on devices to be planned")
        return self.basis

    @property
    def block(self) -> int:
        """Columns of a panel."""
        return self.sizes.block

    @property
    def ncv(self) -> int:
        """Columns of the basis; of a dense problem its order."""
        return self.problem.n if self.method == "dense" else self.sizes.columns

    @property
    def kept(self) -> int:
        """Columns that a restart keeps."""
        return self.kept_panels * self.block

    @property
    def seconds(self) -> float | None:
        """Predicted seconds of a pass after the first; None where no rates are known, A is in a file, or vectors on the host."""
        found = None if self.choice is None else self.choice.seconds
        return None if found is None else found.total

    @property
    def _vector_bytes(self) -> int:
        """Bytes of a vector as it is stored."""
        return self.problem.n * self.problem.precision.storage.itemsize

    @property
    def _own_bytes(self) -> int:
        """Bytes of a basis in host memory; of a dense problem those of the matrix and of its eigenvectors."""
        if self.method == "dense":
            return 16 * self.problem.n**2
        blocks = self.problem.blocks
        unpacked = 16 * blocks.n_entries if blocks is not None and self.is_small else 0
        return (self.capacity + 1) * self.block * self._vector_bytes + unpacked

    @property
    def peak_bytes(self) -> int:
        """Most bytes that any device allocates."""
        if self.basis is not None:
            return self.basis.peak_bytes
        return self._own_bytes if self.products is None else self.products.peak_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory for the pairs, for A where the call packs it, and for a basis that devices do not keep.

        The factor of a shift is not among them, whose size depends on the entries of A.
        """
        beside = 0 if self.products is None else self._own_bytes
        return self.k * self._vector_bytes + self.problem.packed_bytes + beside

    @property
    def bytes(self) -> Mapping[str, int]:
        """Bytes of blocks over each link in the first pass."""
        return self.link_bytes()

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
        products = self._products
        return {} if products is None else products.link_bytes(passes)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of vectors that the devices copy from each other in a pass."""
        return 0 if self.basis is None else self.basis.products.exchanged_bytes

    def figures(self) -> Mapping[str, object]:
        """The matrix, the method, the basis, and later passes."""
        blocks, first, two = self.problem.blocks, self.link_bytes(1), self.link_bytes(2)
        n = self.problem.n
        found: dict[str, object] = {
            "shape": [n, n],
            "entries": None if blocks is None else blocks.n_entries,
            "stored_bytes": None if blocks is None else blocks.nbytes,
            "k": self.k,
            "which": self.which,
            "method": self.method,
            "precision": self.problem.precision.value,
            "tier": self.problem.tier,
            "why_devices": self.problem.why,
            "block": self.block,
            "ncv": self.ncv,
            "kept": self.kept,
            "later_bytes": {name: nbytes - first.get(name, 0) for name, nbytes in two.items()},
            "exchanged_bytes": self.exchanged_bytes,
        }
        if self.basis is not None:
            found["memory"] = self.basis.memory()
        if self.sigma is not None:
            found["sigma"] = self.sigma
        if self.choice is not None:
            found["choices"] = {str(each.block): each.cost for each in (self.choice, *self.others)}
        return found

    def facts(self) -> Mapping[str, object]:
        """The problem, the method and the basis."""
        facts: dict[str, object] = {"n": self.problem.n, "k": self.k, "which": self.which, "method": self.method}
        facts |= {"precision": self.problem.precision.value, "ncv": self.ncv}
        if self.method != "dense":
            facts |= {"block": self.block, "devices": self.problem.devices}
        return facts | {"peak": format_bytes(self.peak_bytes)}

    def lines(self) -> Iterator[Line]:
        """The method, blocks, the memory of each device, what moves, and predicted seconds."""
        blocks, problem = self.problem.blocks, self.problem
        entries = "" if blocks is None else f" with {blocks.n_entries} entries"
        yield "", f"Plan: {self.wanted_text} of a matrix of order {problem.n}{entries} in {problem.precision.value}"
        yield "method", self._method_text()
        if problem.why:
            yield "devices", f"{', '.join(self.devices)}, {problem.why}"
        if self.choice is not None:
            yield "block", self._choice_text()
        if blocks is None:
            yield "matrix", "multiplies by itself, on the host"
            yield "memory", f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)}"
        else:
            where = "in memory" if problem.tier == "memory" else f"in a {problem.tier}"
            sizes = f"{len(blocks.blocks)} blocks of up to {format_bytes(blocks.largest_bytes)}"
            yield "matrix", f"{format_bytes(blocks.nbytes)} {where}, {sizes}"
            if self.cluster is None or self.basis is not None:
                yield from self._device_lines()
            if self.cluster is None:
                yield from self._moves()
            elif self.basis is None:
                yield from worker_lines(self.cluster)
            else:
                between = f"{format_bytes(self.exchanged_bytes)} between workers in each product"
                yield "network", matrix_text(self.cluster) + between
        yield "host", f"{format_bytes(self.host_bytes)} of host memory"
        yield "seconds", self._seconds_text()
        yield "passes", "unknown: they depend on the spectrum; the report counts them"

    def _device_lines(self) -> Iterator[Line]:
        """Parts of the memory of each device."""
        products = self._products
        parts = {} if self.basis is None else self.basis.memory()
        if products is None:
            yield "memory", f"{format_bytes(self.peak_bytes)} of {format_bytes(self.budget_bytes)}, all in host memory"
        for share in products.shares[:_MOST_DEVICES] if products else ():
            yield "device", device_text(share)
            held = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts.get(share.device, {}).items() if nbytes)
            peak = f"peak {format_bytes(share.peak_bytes)} of {format_bytes(self.budget_bytes)}"
            yield "memory", f"{held}; {peak}" if held else peak
        if products and len(products.shares) > _MOST_DEVICES:
            yield "", f"  ... and {len(products.shares) - _MOST_DEVICES} more devices"

    def _method_text(self) -> str:
        if self.method == "dense":
            return f"dense, by LAPACK on the host: {self.problem.n} eigenpairs in {format_bytes(self._own_bytes)}"
        basis = f"a basis of {self.ncv} vectors, panels of {self.block}"
        if self.method == "lobpcg":
            return f"LOBPCG: {basis}"
        if self.method == "shift-invert":
            return f"block Lanczos with thick restarts on the inverse, on the host: {basis}"
        a_restart = self.capacity - self.kept_panels - 1
        plural = "es" * (a_restart != 1)
        return f"block Lanczos with thick restarts: {basis}; a restart keeps {self.kept} and comes after {a_restart} pass{plural}"

    def _choice_text(self) -> str:
        assert self.choice is not None
        if not self.others:
            return f"{self.block} columns"
        ordered = sorted((self.choice, *self.others), key=lambda each: each.block)
        if self.choice.cost is None:
            return f"{self.block} of {', '.join(str(each.block) for each in ordered)}, as no seconds are predicted"
        least = self.choice.cost
        costs = ", ".join(f"{each.block}: {each.cost / least:.3g}" for each in ordered if each.cost is not None)
        return f"{self.block} columns, by predicted seconds of all passes (relative: {costs})"

    def _moves(self) -> Iterator[Line]:
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
        seconds = None if self.choice is None else self.choice.seconds
        if self.basis is None or self.method != "lanczos":
            return "of a pass unknown: only those of Lanczos on devices are predicted"
        if seconds is None:
            return "of a pass unknown: no rates of this machine; `ooc-chol bench rates --passes` measures them"
        own = f"products {seconds.product:.3g}, orthogonalization {seconds.orthogonalization:.3g}"
        if seconds.link is None or seconds.total is None:
            return f"of a pass unknown: they follow the file, whose rate is not known; by measured rates {own}"
        beside = f", of which {seconds.overlap:.3g} beside orthogonalization" if seconds.overlap else ""
        return f"{seconds.total:.3g} a pass, by measured rates: link {seconds.link:.3g}{beside}; {own}"
