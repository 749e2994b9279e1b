"""The check sweep: whether random vectors, orthogonal to what was found, lead to an eigenvalue that was missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.krylov import KrylovBasis, Ritz
from ooc_chol.eigen.wanted import Wanted, keys

#: Random vectors of a sweep, and how often each is multiplied.
VECTORS, PASSES = 4, 10
#: Part of the room for products that the frontier has where there is not enough for all.
FRONTIER_PART = 0.25
#: Part of the products that is enough where the basis has no room for all.
_ENOUGH = 0.4


class Sweep(NamedTuple):
    """Work and findings of a sweep."""

    passes: int  #: Products with a panel
    vectors: int  #: Random vectors it began with
    missed: int  #: Wanted pairs that others must make room for
    ritz: Ritz  #: Pairs of the basis with the vectors of the sweep
    is_restarted: bool  #: Whether the wanted vectors are others than before


def sweep(
    basis: KrylovBasis,
    wanted: Wanted,
    found: NDArray[np.float64],
    margin: NDArray[np.float64],
    seed: int,
    passes: int,
    restart: Callable[[Ritz], None],
) -> Sweep:
    """Look for eigenvalues beyond those that were found.

    Shapes: ``margin`` (k,). 4 random vectors, 10 products with each: a wider block begins with as many as it has, a narrower one
    with as many products in all, since long chains tell close eigenvalues apart. Where the basis has no room for that, products
    are fewer, and the frontier has a quarter of them; where they are less than two fifths, ``restart`` makes room until all are
    made, or one is found that was missed. A random vector has a part in every eigenspace that is orthogonal to what was found,
    which products with A enlarge where its eigenvalue is extreme. It is a test and no proof.
    """
    space, k = basis.space, wanted.k
    basis.shrink(-(-k // space.block))
    older = list(basis.frontier)
    room = space.capacity - basis.used - len(older)  # panels, when the frontier may have to move
    ends = [basis.join(seed * VECTORS)]
    goal = passes * -(-VECTORS // space.block)
    steps = most = max(0, min(goal, room - 1))
    # What was missed may lie in part in the frontier, to which random vectors are made orthogonal: it is multiplied too where
    # there is room for both, and some times where there is not even enough for these.
    fewer = most if (room - 1) // (1 + len(older)) >= most else 0
    if most == room - 1:
        fewer = max(fewer, int(FRONTIER_PART * most) // max(1, len(older)))
        steps = most - fewer * len(older)
    for step in range(steps):
        chains = [*ends, *older] if step < fewer else ends
        multiplied = [basis.multiply(end) for end in chains]
        ends, older = multiplied[:1], multiplied[1:] if step < fewer else older
    ends += older
    basis.frontier = [*ends, *(panel for panel in basis.frontier if panel not in ends)]
    before, made = keys(found[:k], wanted.which) + margin, steps + fewer * len(older)

    def looked() -> tuple[Ritz, int]:
        """Ritz pairs, and how many were missed."""
        basis.read()
        ritz = basis.ritz(wanted.which)
        return ritz, int(np.count_nonzero(keys(ritz.values[:k], wanted.which) > before))

    (ritz, missed), is_short = looked(), made < _ENOUGH * goal
    while is_short and made < goal and not missed:
        restart(ritz)
        end, *others = basis.frontier
        while made < goal and not basis.is_full:
            end, made = basis.multiply(end), made + 1
        basis.frontier = [end, *others]
        ritz, missed = looked()
    return Sweep(made, space.block, missed, ritz, is_short)
