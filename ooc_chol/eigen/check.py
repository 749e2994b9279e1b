"""The check sweep: whether random vectors, orthogonal to what was found, lead to an eigenvalue that was missed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.krylov import KrylovBasis, Ritz
from ooc_chol.eigen.wanted import Wanted, keys

#: Random vectors of a sweep, and how often each is multiplied.
VECTORS, PASSES = 4, 10


class Sweep(NamedTuple):
    """What a sweep did and found."""

    passes: int  #: Products with a panel
    vectors: int  #: Random vectors it began with
    missed: int  #: Wanted pairs that others must make room for
    ritz: Ritz  #: Pairs of the basis with the vectors of the sweep


def sweep(
    basis: KrylovBasis,
    wanted: Wanted,
    found: NDArray[np.float64],
    margin: NDArray[np.float64],
    seed: int,
    passes: int = PASSES,
) -> Sweep:
    """Look for eigenvalues beyond those that were found.

    Parameters
    ----------
    basis : KrylovBasis
        Just restarted with the pairs that were found, all converged. Their vectors stay where they are, the first columns, unless
        the basis is restarted; all else makes room for the sweep.
    wanted : Wanted
        What is looked for.
    found : array
        Values that were found, the most wanted first.
    margin : (k,) array
        By how much another value must be beyond each to count.
    seed : int
        Of the random vectors, another one for each sweep.
    passes : int
        Products with each random vector.

    Returns
    -------
    Sweep
        With more than 0 pairs missed where Ritz values of the larger basis go beyond those found by more than the margin.

    Notes
    -----
    4 random vectors, 10 products with each: a block of fewer columns takes several panels; a wider one begins with as many as
    it has. Where the basis has no room for that, it is fewer vectors and then fewer products. A random vector has a part in every
    eigenspace that is orthogonal to what was found, which products with A enlarge where its eigenvalue is extreme. It is a test
    and no proof.
    """
    space, k = basis.space, wanted.k
    basis.shrink(-(-k // space.block))
    older = len(basis.frontier)
    room = space.capacity - basis.used - older  # panels, when the frontier may have to move
    chains = max(1, min(-(-VECTORS // space.block), room // (passes + 1)))
    ends = [basis.join(seed * VECTORS + chain) for chain in range(chains)]
    steps = max(0, min(passes, room // chains - 1))
    for _ in range(steps):
        ends = [basis.multiply(end) for end in ends]
    basis.frontier = [*ends, *(panel for panel in basis.frontier if panel not in ends)]
    basis.read()
    ritz = basis.ritz(wanted.which)
    before, after = keys(found[:k], wanted.which), keys(ritz.values[:k], wanted.which)
    missed = int(np.count_nonzero(after > before + margin))
    return Sweep(steps * chains, chains * space.block, missed, ritz)
