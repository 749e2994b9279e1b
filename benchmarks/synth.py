"""Synthetic data exactly as ExaGeoStat generates them, so that its users can compare figure by figure.

python -m benchmarks synth --n 2000 --theta 1,0.1,0.5 --output field.csv
"""

from __future__ import annotations

import argparse
import math
import operator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from benchmarks.running import Options, Parser
from ooc_chol.apps.geostat.cli.cluster import on_cluster
from ooc_chol.apps.geostat.cli.exageostat import THETA_HELP, add_kernel, check_kernel, theta
from ooc_chol.apps.geostat.cli.files import check_files
from ooc_chol.apps.geostat.cli.options import add_settings, factor_settings
from ooc_chol.apps.geostat.cli.parser import SpellingParser
from ooc_chol.apps.geostat.cli.summary import model_text
from ooc_chol.apps.geostat.covariances.covariance import Matern
from ooc_chol.apps.geostat.data.layers import Column, Layer, check_layer, write_layer
from ooc_chol.apps.geostat.data.observations import Mean, Observations, make_observations
from ooc_chol.apps.geostat.data.spec import DataSpec
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings, factored

#: Largest seed: LAPACK's ``iseed`` has 12 bits a word. Seeds 0 and 1 have the same sites, as ``srand(0)`` is ``srand(1)``.
LARGEST_SEED = 4095

#: Each site is moved from the middle of its cell by less than this share of the cell's width.
_JITTER = 0.4

#: Coordinates are multiples of 1/65535.
_LATTICE = 2**16 - 1

#: Words of state of glibc's ``rand()``, the lag of its shorter tap, and the outputs that ``srand`` throws away.
_RAND_WORDS, _RAND_TAP, _RAND_DISCARDED = 31, 3, 310

#: Multiplier of LAPACK's ``dlaruv``, a multiplicative congruential generator modulo ``2**48``.
_DLARUV_MULTIPLIER, _DLARUV_BITS = 33952834046453, 48


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A sample of a Gaussian field, made by :func:`synthesize`."""

    coordinates: NDArray[np.float64]
    values: NDArray[np.float64]
    model: Matern
    seed: int

    __repr__ = tb.brief_repr

    def observations(self, mean: Mean = "zero") -> Observations:
        """The sample as observations, for likelihoods and fits."""
        return make_observations(self.coordinates, self.values, mean=mean)


def synthesize(
    model: Matern,
    n: int,
    *,
    seed: int = 0,
    dimension: int = 2,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> Synthetic:
    """Generate ``z = L e`` at the sites and with the normals that ExaGeoStat takes for this seed.

    Notes
    -----
    ``L`` is the Cholesky factor in FP64, so that the quadratic form at the generating model is ``e' e`` whatever the model is.
    Values agree with ExaGeoStat's to rounding (some units of the last place times the condition), sites to the bit. One
    factorization and ``n**2`` flops.

    Examples
    --------
    >>> sample = synthesize(Matern(1.0, 0.1, 0.5), 16)
    >>> [round(float(z), 6) for z in sample.values[:2]]
    [-1.272336, -2.5907]
    """
    sites = synthetic_sites(n, seed=seed, dimension=dimension)
    normals = lapack_normals(n, seed=seed)
    with factored(model, sites, settings or FactorSettings(), is_solved_with=False, progress=progress) as factor:
        return Synthetic(sites, factor.matmul(normals), model, seed)


def synthetic_sites(n: int, *, seed: int = 0, dimension: int = 2) -> NDArray[np.float64]:
    """Sites of ExaGeoStat's generator: a grid, each point moved at random in its cell, along a Morton curve.

    Notes
    -----
    As ExaGeoStatCPP's ``LocationGenerator``. The grid has ``ceil(n**(1/dimension))`` points an axis, with the exact root here.
    There it is the C library's ``cbrt``, which in some versions is a little too large at cubes (27 gives 4 instead of 3): built
    with one of these, its grid in three dimensions is finer than this one.

    Examples
    --------
    >>> [round(float(x), 12) for x in synthetic_sites(16)[0]]
    [0.193041886015, 0.103883421073]
    """
    n, seed = _check(n, seed)
    if dimension not in (2, 3):
        raise ValueError(f"dimension is {dimension}, but sites are made in 2 and 3 dimensions")
    side = math.isqrt(n - 1) + 1 if dimension == 2 else _cube_side(n)
    uniform = np.array(glibc_rand(dimension * n, seed=seed), dtype=np.float64).reshape(n, dimension) / 2.0**31
    # the last index runs fastest
    cell = np.stack(np.unravel_index(np.arange(n), (side,) * dimension), axis=1)
    moved = ((cell + 1) - 0.5 + (uniform * (2 * _JITTER) - _JITTER)) / side
    lattice = (moved * _LATTICE + 0.5).astype(np.uint64)
    return np.asarray(lattice[np.argsort(_morton_keys(lattice), kind="stable")] / _LATTICE)


def glibc_rand(count: int, *, seed: int) -> list[int]:
    """The first ``count`` results of the GNU C library's ``rand()`` after ``srand(seed)``.

    The additive feedback generator of 31 words (``TYPE_3``): ``r[i] = r[i-3] + r[i-31]`` modulo ``2**32``, lowest bit dropped.
    Its first words come from the Lehmer generator ``16807 r`` modulo ``2**31 - 1``.

    Examples
    --------
    >>> glibc_rand(2, seed=1)
    [1804289383, 846930886]
    """
    words = [seed or 1]
    for _ in range(_RAND_WORDS - 1):
        words.append(16807 * words[-1] % (2**31 - 1))
    words += words[:_RAND_TAP]
    mask = 2**32 - 1
    for i in range(len(words), len(words) + _RAND_DISCARDED + count):
        words.append((words[i - _RAND_TAP] + words[i - _RAND_WORDS]) & mask)
    return [word >> 1 for word in words[len(words) - count :]]


def lapack_normals(n: int, *, seed: int) -> NDArray[np.float64]:
    """Standard normals of LAPACK's ``dlarnv(3, iseed, n)`` with ``iseed = (seed, seed, seed, 1)``.

    Box and Muller's ``sqrt(-2 log u) cos(2 pi u')`` with two uniforms each from ``x <- 33952834046453 x`` modulo ``2**48``.
    SciPy does not wrap this routine.

    Examples
    --------
    >>> round(float(np.sum(lapack_normals(16, seed=0) ** 2)), 12)
    18.99339708262
    """
    n, seed = _check(n, seed)
    start = (((seed << 12 | seed) << 12 | seed) << 12) | 1
    # products wrap modulo 2**64, which leaves the lower 48 bits right
    powers = np.multiply.accumulate(np.full(2 * n, _DLARUV_MULTIPLIER, dtype=np.uint64))
    state = (powers * np.uint64(start)) & np.uint64(2**_DLARUV_BITS - 1)
    first, second = (state.astype(np.float64) / 2.0**_DLARUV_BITS).reshape(n, 2).T
    return np.asarray(np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second))


def _morton_keys(lattice: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits of all axes interleaved four apart, also in two dimensions; the last axis has the highest bit."""
    keys = np.zeros(len(lattice), dtype=np.uint64)
    for bit in range(16):
        for axis in range(lattice.shape[1]):
            keys |= ((lattice[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(4 * bit + axis)
    return keys


def _cube_side(n: int) -> int:
    """The smallest ``m`` with ``m**3 >= n``."""
    side = max(1, round(math.cbrt(n)) - 1)
    while side**3 < n:
        side += 1
    return side


def _check(n: int, seed: int) -> tuple[int, int]:
    """Number and seed as integers, or ``ValueError`` where one is out of range."""
    n, seed = operator.index(n), operator.index(seed)
    if n < 1:
        raise ValueError(f"{n} observations are asked for, but at least one is needed")
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed is {seed}, but LAPACK's generator takes 0 to {LARGEST_SEED}")
    return n, seed


class PARSER(SpellingParser, Parser):
    """A parser that minds neither case nor dashes, as ExaGeoStat's does not."""


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--n", type=int, required=True, help="number of observations")
    parser.add_argument("--theta", "--ttheta", "--itheta", "--initial-theta", type=theta, required=True, help=THETA_HELP)
    parser.add_argument("--seed", type=int, default=0, help="0 to 4095 (default: 0)")
    parser.add_argument("--dimension", type=_dimension, default=2, metavar="2D|3D", help="unit square or unit cube (default: 2D)")
    add_kernel(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DATA.csv",
        help="write x, y (and z in three dimensions) and value here; .nc, .gpkg or .parquet too",
    )
    add_settings(parser)


def run(options: Options) -> int:
    """Generate sites and values, and write them."""
    return on_cluster(_written)(options) or 0


def _written(options: argparse.Namespace) -> int:
    check_layer(options.output, "synthetic data")
    check_kernel(options.kernel, options.theta)
    check_files(options, [], [tb.Output("--output", options.output)])
    sample = synthesize(
        options.theta, options.n, seed=options.seed, dimension=options.dimension, settings=factor_settings(options)
    )
    spec = DataSpec("csv", "", tuple("xyz"[: options.dimension]), "value")
    title = f"synthetic data of seed {options.seed}"
    layer = Layer(spec, sample.coordinates, {"value": Column(sample.values)}, title)
    write_layer(options.output, layer, replace=options.force)
    print(f"{options.n} observations of {model_text(options.theta)} in {options.output}, of seed {options.seed}")
    return 0


def _dimension(text: str) -> int:
    dimensions = {"2d": 2, "2": 2, "3d": 3, "3": 3}
    if text.lower() not in dimensions:
        raise argparse.ArgumentTypeError(f"{text!r} is not 2D or 3D (space-time data are not generated here)")
    return dimensions[text.lower()]
