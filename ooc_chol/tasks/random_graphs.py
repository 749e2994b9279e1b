"""Edges of a random graph, each a function of the seed and its number: what every device computes in whole numbers.

Edge ``e`` has the words ``mix(key + (WORDS e + j + 1) GOLDEN)``, j = 0, 1, ...: SplitMix64 (Steele, Lea and Flood, 2014), entered
at any place. In R-MAT (Chakrabarti, Zhan and Faloutsos, 2004) a word holds four draws of 16 bits, from its lowest bits on; draw
number ``i`` chooses the quadrant that decides bit ``i`` of both ends. The ends are then relabelled by a bijection of ``scale``
bits, without which vertex 0 would be the largest hub. In a uniform graph the two halves of word 0 are the ends.
"""

from __future__ import annotations

from dataclasses import dataclass

#: SplitMix64's increment, and the multipliers of its mixing function with the shifts before each and after both.
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS, SHIFTS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB), (30, 27, 31)
#: Words that an edge may use, whether it does or not, and draws of one word.
WORDS, DRAWS = 8, 4
#: Bits of a draw: probabilities are multiples of 2**-16.
DRAW_BITS = 16
#: Odd multipliers of the rounds of relabelling.
ROUNDS = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F)
#: Largest scale: columns are int32, and there are at most 2**31 - 1 of them.
LARGEST_SCALE = 30
_WORD = (1 << 64) - 1


def mix(x: int) -> int:
    """SplitMix64's bijection of 64 bits."""
    x ^= x >> SHIFTS[0]
    x = x * MULTIPLIERS[0] & _WORD
    x ^= x >> SHIFTS[1]
    x = x * MULTIPLIERS[1] & _WORD
    return x ^ x >> SHIFTS[2]


@dataclass(frozen=True)
class EdgeDraw:
    """All that decides the edges of a random graph."""

    scale: int  #: There are ``2**scale`` vertices, 1 to :data:`LARGEST_SCALE`
    n_edges: int  #: Edges that are drawn, loops and duplicates included
    seed: int  #: Of 64 bits
    #: Of R-MAT: draws below the first fall into quadrant (0, 0), then (0, 1), then (1, 0), all others (1, 1). None: uniform.
    thresholds: tuple[int, int, int] | None
    directed: bool  #: Whether an edge is the entry (u, v) alone, and not (v, u) too

    @property
    def n_vertices(self) -> int:
        """Rows and columns of the matrix."""
        return 1 << self.scale

    @property
    def n_drawn(self) -> int:
        """Entries that are drawn, those of loops and duplicates included."""
        return self.n_edges * (1 if self.directed else 2)

    @property
    def key(self) -> int:
        """Where the words of the edges begin."""
        return mix((self.seed + GOLDEN) & _WORD)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Offsets that each round of relabelling adds, of 32 bits."""
        return tuple(mix(self.seed + (2 + number) * GOLDEN & _WORD) >> 32 for number in range(len(ROUNDS)))

    @property
    def fold(self) -> int:
        """By how many bits each round of relabelling shifts."""
        return self.scale // 2 + 1

    @property
    def bucket_bits(self) -> int:
        """Leading bits of a vertex by which rows are counted: 4,096 buckets, or as many as there are vertices."""
        return min(self.scale, 12)
