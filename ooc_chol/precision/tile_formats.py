"""In which format each tile is stored, and in which its products are computed: the rule, its map, and the error to expect.

A tile may be stored in a format of unit roundoff u when ``nt ||A_ij||_F / ||A||_F <= precision_threshold / u``: then rounding it
changes A by at most ``precision_threshold ||A||_F / nt``, and all tiles together by at most ``precision_threshold ||A||_F``
(Higham and Mary, Acta Numerica 2022; Ren, Ltaief, Abdulah and Keyes 2024, section IV-C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, sqrt

import numpy as np

from ooc_chol.display.prints import brief_repr
from ooc_chol.formats import FORMATS, FP32, FP64, PrecisionFormat
from ooc_chol.precision.certified import safety_factor
from ooc_chol.precision.moduli import MOST_MODULI, residue_basis
from ooc_chol.precision.norms import PROBES, MatrixNorms, lower_matrix
from ooc_chol.tasks.bounds import compulsory_bytes
from ooc_chol.tasks.tiling import TileGrid

#: Rules by which formats are chosen; the paper's takes machine epsilon where Higham and Mary take the unit roundoff.
RULES = ("unit-roundoff", "paper")
#: Diagonal entries of A beside which float32 holds what is computed of a tile, and what is far smaller, with room to spare.
_FLOAT32_SCALES = 1e-24, 1e30
#: Shares of the threshold that rounding tiles to their formats and products in FP16 may take, as certified, and the share of what
#: these leave that rounding rows of L to integers may. Errors are independent, so that their squares add up: to 0.9 of the
#: threshold. A second factorization, where the first is not certified to be within it, costs far more than a modulus.
STORING_PART = PRODUCTS_PART = 0.5
RESIDUE_PART = 0.8
LEAST_RESIDUE_PART = RESIDUE_PART * sqrt(1.0 - STORING_PART**2 - PRODUCTS_PART**2)
#: Tries to come within the part of storing; what is left then is certified anyway.
_TRIES = 8
#: Of the pivots that are foreseen the share that may be there in truth, and of that the most that noise may come to: the 2-norm
#: of random errors is ``2 / sqrt(n)`` of their Frobenius norm.
_PIVOT_SHARE, _NOISE_SHARE = 0.03, 0.125
#: Smallest threshold that pivots may ask for: FP64 is for all below; and the least pivots that tell anything.
_LEAST_THRESHOLD, _LEAST_PIVOT = 1e-15, 1e-15
#: How many times the expected errors must fit into the threshold, as the certified bound is so many times the measured one.
_CERTIFIED = safety_factor(PROBES)
#: Tiles that a text shows side by side; larger maps are shown in blocks of tiles.
_MOST_SHOWN = 40
#: Pixels of a picture's side, of a line of its legend, and of the legend's width.
_PICTURE_SIZE, _LEGEND_STEP, _LEGEND_WIDTH = 480, 20, 240
#: A line of every picture, by which it is known for one of ours.
SVG_MARK = "<desc>formats of tiles, drawn by ooc_chol</desc>"
#: Colours of the formats in a picture.
_COLOURS = {"fp64": "#0b2f5b", "fp32": "#2f77b8", "fp16": "#8ab8e0", "fp8": "#ee8a2e"}


@dataclass(frozen=True, eq=False)
class PrecisionMap:
    """Formats of all tiles."""

    grid: TileGrid  #: How the matrix is cut into the tiles that have formats
    threshold: float  #: Most error that storing may cause, relative to ``||A||_F``
    rule: str  #: What a format's error is taken to be, one of :data:`RULES`
    norms: MatrixNorms  #: Norms of A by tile and by row, from which the formats were chosen
    formats: tuple[PrecisionFormat, ...]  #: Storage format of each packed tile; diagonal tiles are FP64
    #: Format in which each packed tile receives its updates where the device has one of its own: FP64 or FP32
    products: tuple[PrecisionFormat, ...]
    moduli: int  #: Moduli that suffice for products through residues
    #: What of the threshold all errors together may take: less where the certificate's rounding takes some, or where so much
    #: noise would drown the pivots that are foreseen
    within: float

    __repr__ = brief_repr

    def format_of(self, index: tuple[int, int]) -> PrecisionFormat:
        """Storage format of a tile."""
        return self.formats[self.grid.packed(*index)]

    def product_of(self, index: tuple[int, int]) -> PrecisionFormat:
        """Format in which a tile is updated and solved."""
        return self.products[self.grid.packed(*index)]

    def stored_bytes(self, index: tuple[int, int]) -> int:
        """Bytes of a tile on a link and in its store."""
        return self.format_of(index).stored_bytes(self.grid.entries(*index))

    @cached_property
    def _bytes(self) -> tuple[int, int]:
        """Bytes of all tiles as stored, and of the largest one of a narrow format, 0 where there is none."""
        sizes = np.array([self.grid.size(i) for i in range(self.grid.nt)])
        i, j = np.tril_indices(self.grid.nt)
        counted = Counter(zip(self.formats, (sizes[i] * sizes[j]).tolist(), strict=True))
        stored = {(fmt, entries): fmt.stored_bytes(entries) for fmt, entries in counted}
        narrow = [nbytes for (fmt, _), nbytes in stored.items() if fmt is not FP64]
        return sum(count * stored[tiles] for tiles, count in counted.items()), max(narrow, default=0)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tiles as stored."""
        return self._bytes[0]

    @property
    def counts(self) -> dict[str, int]:
        """Tiles of each format, the widest first; formats without tiles are left out."""
        counted = Counter(fmt.name for fmt in self.formats)
        return {name: counted[name] for name in FORMATS if counted[name]}

    @property
    def product_counts(self) -> dict[str, int]:
        """Tiles that receive their updates in each format."""
        counted = Counter(fmt.name for fmt in self.products)
        return {name: counted[name] for name in FORMATS if counted[name]}

    @property
    def largest_stored_bytes(self) -> int:
        """Bytes of the largest tile of a narrow format; 0 where all are FP64."""
        return self._bytes[1]

    @property
    def estimate(self) -> float:
        """Expected error of storing, relative to ``||A||_F``.

        ``sqrt(2 sum_ij (u_ij w_ij)**2) / (sqrt(3) ||A||_F)`` with the weights w of :class:`MatrixNorms`: rounding errors spread
        evenly up to u.
        """
        roundoffs = np.array([fmt.unit_roundoff if fmt is not FP64 else 0.0 for fmt in self.formats])
        with np.errstate(over="ignore", invalid="ignore"):  # an entry of A may be no number: the factorization will name it
            errors = lower_matrix(self.grid, roundoffs * self.norms.weights) / (self.norms.total or 1.0)
            return sqrt(2.0 * float(np.square(errors).sum()) / 3.0)

    def expected_error(self, moduli: int | None) -> float:
        """Expected error of storing, and of products through so many moduli, relative to ``||A||_F``."""
        rounding = 0.0 if moduli is None else rounding_of_rows(self.norms, moduli) / (self.norms.total or 1.0)
        return sqrt(self.estimate**2 + rounding**2)

    @property
    def is_fp64(self) -> bool:
        """True if nothing is narrow, neither tiles nor products."""
        return all(fmt is FP64 for fmt in (*self.formats, *self.products))

    def widened(self, tiles: Iterable[tuple[int, int]]) -> PrecisionMap:
        """The map with these tiles stored and computed in FP64."""
        formats, products = list(self.formats), list(self.products)
        for index in tiles:
            formats[self.grid.packed(*index)] = products[self.grid.packed(*index)] = FP64
        return replace(self, formats=tuple(formats), products=tuple(products))

    def holding(self, other: PrecisionMap) -> PrecisionMap:
        """The map with every tile stored and computed at least as wide as in ``other``, which is of the same tiles.

        Where ``other`` is wide enough for these norms all is as there, so that its plan serves.
        """
        return replace(
            self,
            formats=tuple(map(_wider, self.formats, other.formats)),
            products=tuple(map(_wider, self.products, other.products)),
            moduli=max(self.moduli, other.moduli),
        )

    def without_float32(self) -> PrecisionMap:
        """The map for a device that computes in FP64 only."""
        return replace(self, products=(FP64,) * self.grid.n_tiles)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        share = self.total_bytes / compulsory_bytes(self.grid, FP64.itemsize)
        heading = (
            f"threshold {self.threshold:g} ({self.rule}): {counts}; {share:.2f} x the bytes of FP64; "
            f"expected error {f'{self.estimate:.1e} ||A||_F' if isfinite(self.estimate) else 'not known'}"
        )
        return "\n".join([heading, *self.rows_of_text()])

    def rows_of_text(self) -> list[str]:
        """The lower triangle, a digit a tile: bytes of an entry; in large maps those of the widest tile of each block."""
        nt = self.grid.nt
        step = -(-nt // _MOST_SHOWN)
        rows = []
        for top in range(0, nt, step):
            cells = []
            for left in range(0, top + 1, step):
                block = (
                    self.format_of((i, j)).itemsize
                    for i in range(top, min(top + step, nt))
                    for j in range(left, min(left + step, i + 1))
                )
                cells.append(str(max(block)))
            rows.append("".join(cells))
        return rows

    def svg(self) -> str:
        """The map as a picture: a square a tile, the darker the wider its format, as text of an SVG file."""
        nt = self.grid.nt
        cell = max(2, _PICTURE_SIZE // nt)
        size = cell * nt
        squares = []
        for i in range(nt):
            first = 0
            for j in range(1, i + 2):  # neighbours of one format become one rectangle
                if j == i + 1 or self.format_of((i, j)) is not self.format_of((i, first)):
                    colour = _COLOURS[self.format_of((i, first)).name]
                    place = f'x="{cell * first}" y="{cell * i}" width="{cell * (j - first)}" height="{cell}"'
                    squares.append(f'<rect {place} fill="{colour}"/>')
                    first = j
        words = ["formats of tiles", f"order {self.grid.n:,}, tiles of {self.grid.nb:,}", f"threshold {self.threshold:g}"]
        legend = [f'<text x="{size * 0.6:g}" y="{_LEGEND_STEP * number + 12}">{line}</text>' for number, line in enumerate(words)]
        for number, (name, count) in enumerate(self.counts.items(), len(words)):
            top = _LEGEND_STEP * number
            legend.append(f'<rect x="{size * 0.6:g}" y="{top}" width="14" height="14" fill="{_COLOURS[name]}"/>')
            legend.append(f'<text x="{size * 0.6 + 20:g}" y="{top + 12}">{name}: {count} tiles</text>')
        width = max(size, round(size * 0.6) + _LEGEND_WIDTH)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{size}" font-family="sans-serif" font-size="13">'
        return "\n".join([head, SVG_MARK, *squares, *legend, "</svg>", ""])


def choose_formats(norms: MatrixNorms, threshold: float, *, rule: str = RULES[0], within: float | None = None) -> PrecisionMap:
    """The map of formats for a threshold, of which errors may take no more than ``within``."""
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"precision_threshold is {threshold!r}, but it must be more than 0 and less than 1, such as 1e-6")
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}, but there are {', '.join(RULES)}")
    within = min(threshold if within is None else within, pivot_threshold(norms))
    part, precision = within, _formats_within(norms, threshold, within, within, rule=rule)
    for _ in range(_TRIES):
        excess = _CERTIFIED * precision.estimate / (STORING_PART * within)
        if not 1.0 < excess < np.inf:
            break
        part /= max(excess, 1.25)
        precision = _formats_within(norms, threshold, within, part, rule=rule)
    storing = min(STORING_PART, _CERTIFIED * precision.estimate / within) if isfinite(precision.estimate) else STORING_PART
    left = RESIDUE_PART * sqrt(1.0 - storing**2 - PRODUCTS_PART**2)
    return replace(precision, moduli=enough_moduli(norms, left * within))


def _formats_within(norms: MatrixNorms, threshold: float, within: float, part: float, *, rule: str) -> PrecisionMap:
    """A map whose tiles are stored as for a threshold of ``part``."""
    grid, allowed = norms.grid, part * norms.total
    i, j = np.tril_indices(grid.nt)
    low, high = _FLOAT32_SCALES
    # float32 holds all that is computed for a tile: entries of L and of A are at most sqrt(A_ii A_jj).
    suits = (norms.least >= low) & (norms.largest <= high)
    suits = suits[i] & suits[j] & (i != j) & np.isfinite(norms.total)
    choices = list(FORMATS.values())
    chosen = np.zeros(grid.n_tiles, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        for number, fmt in enumerate(choices):  # the narrowest that does comes last
            roundoff = fmt.machine_epsilon if rule == "paper" else fmt.unit_roundoff
            chosen[suits & (grid.nt * norms.weights * roundoff <= allowed)] = number
        # Updates in float32 add sum_k ||L_ik|| ||L_jk|| <= sqrt(trace(A_ii) trace(A_jj)), by Cauchy and Schwarz, as
        # sum_k ||L_ik||**2 is a trace.
        roots = np.sqrt(np.maximum(norms.traces, 0.0))
        sums = (chosen > 0) & (grid.nt * FP32.unit_roundoff * roots[i] * roots[j] <= allowed)
    return PrecisionMap(
        grid,
        threshold,
        rule=rule,
        norms=norms,
        formats=tuple(choices[number] for number in chosen.tolist()),
        products=tuple(FP32 if in_float32 else FP64 for in_float32 in sums.tolist()),
        moduli=MOST_MODULI,
        within=within,
    )


def pivot_threshold(norms: MatrixNorms) -> float:
    """The largest threshold whose noise leaves the pivots positive that a sample foresees; infinite where none was taken.

    Noise of ``t ||A||_F`` in all has a 2-norm of ``2 t ||A||_F / sqrt(n)`` where it is random, beside pivots of their share of
    ``trace(A) / n``.
    """
    if norms.pivot is None or not 0.0 < norms.total < np.inf:
        return np.inf
    return max(_NOISE_SHARE * _PIVOT_SHARE * norms.pivot * norms.trace / (sqrt(norms.grid.n) * norms.total), _LEAST_THRESHOLD)


def _wider(one: PrecisionFormat, other: PrecisionFormat) -> PrecisionFormat:
    """That of the smaller unit roundoff."""
    return other if other.unit_roundoff < one.unit_roundoff else one


def enough_moduli(norms: MatrixNorms, part: float) -> int:
    """The least number of moduli whose rounding of rows, as certified, takes no more than ``part``, relative to ``||A||_F``.

    An entry of row i is rounded to a multiple of ``2**-e_i``, so that a sum ``sum_k L_ik L_jk`` errs by ``sqrt((4**-e_i s_j +
    4**-e_j s_i) / 12)`` (root mean square) with ``s_j`` the squares of row j before the diagonal tile, and all of them by
    ``sqrt(sum_i 4**-e_i sum_j s_j / 6)``.
    """
    allowed = part * norms.total
    return next((count for count in range(4, MOST_MODULI) if _CERTIFIED * rounding_of_rows(norms, count) <= allowed), MOST_MODULI)


def rounding_of_rows(norms: MatrixNorms, moduli: int) -> float:
    """Expected error of products through so many moduli, in Frobenius norm."""
    basis, sizes = residue_basis(moduli), np.array([norms.grid.size(i) for i in range(norms.grid.nt)])
    # Of a tile's rows that of the largest diagonal entry has the least exponent.
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.array([2.0 ** -basis.exponent(float(a_ii)) if 0.0 < a_ii < np.inf else np.inf for a_ii in norms.largest])
        return float(np.linalg.norm(np.sqrt(sizes) * steps)) * sqrt(max(0.0, _explained(norms)) / 6)


def _explained(norms: MatrixNorms) -> float:
    """Most of the sum of squares of L in front of diagonal tiles: the trace, or less where tiles are nearly independent.

    For row j it is ``b.T inv(B) b`` with ``b`` the row of A in front of its diagonal tile and B the block above it, hence at most
    ``||b||**2`` over B's least eigenvalue, for which the pivots that are foreseen stand.
    """
    if norms.pivot is None or not 0.0 < norms.trace < np.inf:
        return norms.trace
    lower = lower_matrix(norms.grid, norms.tiles)
    off_diagonal = float(np.square(np.tril(lower, -1)).sum())
    return min(norms.trace, off_diagonal / (norms.trace / norms.grid.n * max(norms.pivot, _LEAST_PIVOT)))


def most_moduli_needed(n: int, threshold: float) -> int:
    """Most that :func:`enough_moduli` comes to for a matrix of order ``n`` whose diagonal is even."""
    for count in range(4, MOST_MODULI):
        # Exponents are whole: a step is less than twice the least. ||A||_F is at least trace / sqrt(n).
        if _CERTIFIED * 2.0 * 2.0 ** -residue_basis(count).bits * sqrt(n / 6) <= LEAST_RESIDUE_PART * threshold:
            return count
    return MOST_MODULI
