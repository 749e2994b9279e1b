"""Options of a factorization, sizes written by people, and the one place that reads environment variables."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

from ooc_chol.residues import ResidueBasis

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTP", start=1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGTP", start=1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_bytes(size: int | str, what: str = "size") -> int:
    """Bytes meant by ``size``: a whole number, or text such as ``"80 GB"`` (powers of 1000) or ``"16 GiB"`` (powers of 1024).

    Parameters
    ----------
    size : int or str
        The size.
    what : str
        Name of the option, for the error.

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    ValueError
        The text is not a number with one of the units, or the size is not positive.
    TypeError
        ``size`` is neither int nor str.

    Examples
    --------
    >>> parse_bytes("1.5 KiB"), parse_bytes("80 GB")
    (1536, 80000000000)
    """
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise TypeError(f"{what} is a {type(size).__name__}; give bytes as an int, or text such as '16 GiB' or '80 GB'")
    if isinstance(size, int):
        value = size
    else:
        match = _SIZE.fullmatch(size)
        unit = match[2].upper() if match else "?"
        if match is None or unit not in _UNITS:
            raise ValueError(f"{what}: {size!r} is not a size; write for example 500000000, '80 GB', '16 GiB' or '512 MiB'")
        value = round(float(match[1]) * _UNITS[unit])
    if value <= 0:
        raise ValueError(f"{what} is {size!r}; it must be more than zero bytes")
    return value


def whole_pages(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages of 4096 bytes.

    Examples
    --------
    >>> whole_pages(1), whole_pages(8192)
    (4096, 8192)
    """
    return -(-nbytes // 4096) * 4096


def format_bytes(count: float) -> str:
    """``count`` bytes for a reader, in powers of 1000.

    Examples
    --------
    >>> format_bytes(205_000_000_000), format_bytes(12)
    ('205 GB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def cache_directory() -> Path:
    """Folder for measured rates: ``OOC_CHOL_CACHE``, else ``XDG_CACHE_HOME/ooc_chol``, else ``~/.cache/ooc_chol``."""
    if own := os.environ.get("OOC_CHOL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ooc_chol"


def emulation_variables() -> tuple[str, ...]:
    """Environment variables that are set and switch cuBLAS to emulated arithmetic."""
    names = ("CUBLAS_EMULATE_DOUBLE_PRECISION", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY")
    return tuple(name for name in names if os.environ.get(name))


def commit_override() -> str | None:
    """``OOC_CHOL_COMMIT``: the commit that a copy of the tree without its history was made from."""
    return os.environ.get("OOC_CHOL_COMMIT")


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
        Name in :data:`ooc_chol.planning.policy.POLICIES`.
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
