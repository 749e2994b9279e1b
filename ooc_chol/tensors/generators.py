"""Synthetic graph-tensors, and random choices of what is observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ooc_chol.config import whole_number
from ooc_chol.tensors.fourier import fourier_of, multiple_spaces, orthogonal
from ooc_chol.tensors.schedule import number_of


def low_rank_tensor(
    graph: Any, m: int, n: int, rank: int, *, noise: float = 0.0, seed: int = 0, dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """A random tensor whose slices have a low rank in the Fourier domain of a graph: ``X = U Q Z``, ``Z_k = A_k B_k.T``.

    Q turns the eigenvectors of each multiple eigenvalue at random, so that the tensor does not depend on the choice that U makes.

    Parameters
    ----------
    graph : GraphFourier or graph
        A graph of N vertices, as :class:`ooc_chol.GraphFourier` takes it, or its transform.
    m, n : int
        Rows and columns of a slice.
    rank : int
        Columns of A_k (m, rank) and B_k (n, rank), whose entries are normal; those of X have variance 1 for a whole basis.
    noise : float
        Standard deviation of normal noise that is added to each entry.
    seed : int
        Seed of the random numbers.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    (N, m, n) array
        The tensor. Its own slices are of full rank, sums of many slices of low rank.

    Raises
    ------
    ValueError
        The rank is not one that slices can have, or another number makes no sense.
    TypeError
        ``dtype`` is another, or a number is none.

    Notes
    -----
    Any eigenvectors of a multiple eigenvalue are as good as those of U. In U the slices of an eigenvalue that is there d times
    in a component have up to d times the rank, so that :func:`ooc_chol.impute` knows less of them; of a simple one Q is 1.

    Sun, Yan, Boyd and Donoho, *Convolutional imputation of matrix networks* (2018), section 5, and Zhou and Zhang (2021),
    section 6, test with such tensors.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> ring = np.roll(np.eye(6), 1, axis=1) + np.roll(np.eye(6), -1, axis=1)
    >>> fourier = oc.GraphFourier(ring)
    >>> x = oc.testing.low_rank_tensor(fourier, 5, 4, 2, dtype=np.float64)
    >>> # the inner eigenvalues are double
    >>> x.shape, np.linalg.matrix_rank(fourier.forward(x), tol=1e-9).tolist()
    ((6, 5, 4), [2, 4, 4, 4, 4, 2])
    """
    rows, columns, r = (whole_number(value, name) for value, name in ((m, "m"), (n, "n"), (rank, "rank")))
    if min(rows, columns) < 1 or not 1 <= r <= min(rows, columns):
        raise ValueError(f"slices of {rows} x {columns} have no rank {r}: give m, n of at least 1 and a rank of 1 to min(m, n)")
    if (wanted := np.dtype(dtype)) not in (np.float32, np.float64):
        raise TypeError(f"dtype is {wanted}; give float32 or float64")
    if (spread := number_of("noise", noise)) < 0:
        raise ValueError(f"noise is {spread:g}; give a standard deviation, at least 0")
    fourier, rng = fourier_of(graph), np.random.default_rng(_seed_of(seed))
    left, right = (rng.standard_normal((fourier.n_components, size, r)) for size in (rows, columns))
    transform = np.empty((fourier.n_components, rows, columns), wanted)
    np.matmul(left / np.sqrt(r), right.transpose(0, 2, 1), out=transform, casting="same_kind")
    for space in multiple_spaces(fourier):
        turn = orthogonal(rng.standard_normal((len(space), len(space))))
        for row in range(rows):
            transform[space, row] = turn @ transform[space, row]
    x = fourier.inverse(transform)
    if spread:
        for each in x:
            each += (spread * rng.standard_normal(each.shape)).astype(wanted)
    return x


def random_mask(
    shape: tuple[int, int, int], observed: float, *, by: Literal["slice", "entry"] = "slice", seed: int = 0
) -> NDArray[np.bool_]:
    """A random choice of slices, or entries, that are observed.

    Parameters
    ----------
    shape : (int, int, int)
        Shape of the tensor, (N, m, n).
    observed : float
        Share of all that is observed, from 0 to 1: of slices ``round(observed * N)``, of entries as many of all.
    by : {"slice", "entry"}
        Unit that is observed or missing as a whole.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    (N,) or (N, m, n) bool array
        True where observed.

    Raises
    ------
    ValueError
        The share is not one, or ``by`` is another word.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> (
    ...     int(oc.testing.random_mask((10, 3, 3), 0.8).sum()),
    ...     int(oc.testing.random_mask((10, 3, 3), 0.8, by="entry").sum()),
    ... )
    (8, 72)
    """
    if not 0 <= number_of("observed", observed) <= 1:
        raise ValueError(f"observed is {observed:g}; give a share from 0 to 1")
    if by not in ("slice", "entry"):
        raise ValueError(f"by is {by!r:.40}; give 'slice' or 'entry'")
    if not isinstance(shape, Sequence) or len(shape) != 3:
        raise ValueError(f"shape is {shape!r:.80}, but a tensor has three: slices, and rows and columns of each")
    sizes = shape if by == "entry" else shape[:1]
    count = int(np.prod(sizes))
    mask = np.zeros(count, bool)
    mask[np.random.default_rng(_seed_of(seed)).permutation(count)[: round(observed * count)]] = True
    return mask.reshape(sizes)


def _seed_of(seed: int) -> int:
    """A seed that NumPy takes."""
    if (number := whole_number(seed, "seed")) < 0:
        raise ValueError(f"seed is {number}; give 0 or more")
    return number
