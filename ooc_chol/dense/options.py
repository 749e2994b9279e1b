"""Options of a factorization."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from ooc_chol.precision.moduli import ResidueBasis

#: Largest order at which products through residues take one modulus more unless told otherwise. Up to there native FP64 can be
#: more accurate than 50 bits (2.3 times LAPACK's residual at order 16384, 54 bits 0.6 times); at 65536 and above 50 bits had a
#: third to a seventh of the largest residual of native FP64 on an H200.
MOST_ROWS_OF_14 = 32768


def default_moduli(n: int) -> int:
    """Moduli at which a factor of order ``n`` is as accurate as native FP64: 14 (54 bits) for small ones, 13 (50 bits) above."""
    return 14 if n <= MOST_ROWS_OF_14 else 13


@dataclass(frozen=True)
class FactorOptions:
    """What the user asked of a factorization, before anything is resolved against a matrix or a machine.

    Parameters
    ----------
    tile_size : int or None
        Order of a tile; None lets the planner choose.
    devices : str, sequence of str, int or None
        Names such as ``"host:0"``, a count, or None for every visible GPU, else the host.
    memory_budget : int, str or None
        Bytes of device memory per device, for tiles and workspace.
    host_budget : int, str or None
        Bytes of host memory for L when it is kept in memory.
    policy : str
        Name in :data:`ooc_chol.dense.planner.policy.POLICIES`.
    objective : {"seconds", "bytes"}
        What the planner makes least.
    fp64 : {"auto", "native", "residue"}
        How FP64 products are computed.
    moduli : int or None
        Number of moduli of products through residues; None takes as many as native FP64 is accurate, or as a threshold needs.
    precision_threshold : float or None
        Most error relative to ``||A||_F`` that storing tiles in narrow formats may cause; None for FP64.
    precision_rule : {"unit-roundoff", "paper"}
        Rule by which formats are chosen.
    half_products : bool, "fp8" or None
        Whether products through residues run in FP16, or in FP8 too, where the threshold allows; None in FP16 where rates say
        that it is faster.
    """

    tile_size: int | None = None
    devices: str | tuple[str, ...] | int | None = None
    memory_budget: int | str | None = None
    host_budget: int | str | None = None
    policy: str = "planned"
    objective: str = "seconds"
    fp64: str = "auto"
    moduli: int | None = None
    precision_threshold: float | None = None
    precision_rule: str = "unit-roundoff"
    half_products: bool | str | None = None

    def __post_init__(self) -> None:
        if self.tile_size is not None and (isinstance(self.tile_size, bool) or not isinstance(self.tile_size, int)):
            raise TypeError(f"tile_size is a {type(self.tile_size).__name__}; give an int, or None to let the planner choose")
        if self.tile_size is not None and self.tile_size < 1:
            raise ValueError(f"tile_size is {self.tile_size}, but a tile has at least 1 row")
        if self.objective not in ("seconds", "bytes"):
            raise ValueError(f"objective is {self.objective!r}; there are 'seconds' and 'bytes'")
        if self.fp64 not in ("auto", "native", "residue"):
            raise ValueError(f"fp64 is {self.fp64!r}; there are 'auto', 'native' and 'residue'")
        if self.moduli is not None:
            if isinstance(self.moduli, bool) or not isinstance(self.moduli, int):
                raise TypeError(f"moduli is a {type(self.moduli).__name__}; give an int, or None")
            ResidueBasis(self.moduli)  # refuses a number that cannot be had
        if self.precision_rule not in ("unit-roundoff", "paper"):
            raise ValueError(f"precision_rule is {self.precision_rule!r}; there are 'unit-roundoff' and 'paper'")
        if not (self.half_products is None or isinstance(self.half_products, bool) or self.half_products == "fp8"):
            raise ValueError(f"half_products is {self.half_products!r}; give True, False, 'fp8', or None to choose by rates")
        if self.precision_threshold is not None:
            self._check_precision(self.precision_threshold)
        if self.fp64 == "residue" and self.policy != "planned":
            raise ValueError(f"policy {self.policy!r} orders tiles of native FP64; products through residues have 'planned' only")

    def _check_precision(self, threshold: object) -> None:
        """Refuse a threshold that makes no sense, and policies that store tiles before they are final."""
        if isinstance(threshold, bool) or not isinstance(threshold, Real):
            raise TypeError(f"precision_threshold is a {type(threshold).__name__}; give a number such as 1e-6, or None for FP64")
        if not 0.0 < float(threshold) < 1.0:
            raise ValueError(f"precision_threshold is {threshold!r}, but it must be more than 0 and less than 1, such as 1e-6")
        if self.policy in ("sync", "async"):
            raise ValueError(
                f"policy {self.policy!r} stores half-updated tiles, which formats would round; take 'v1' to 'v3' or 'planned'"
            )
