"""Sizes written by people, pages, and the one place that reads environment variables."""

from __future__ import annotations

import os
import re
from pathlib import Path

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTP", start=1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGTP", start=1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-zA-Z]*)\s*")


def parse_bytes(size: int | str, what: str = "size") -> int:
    """Bytes meant by ``size``: a whole number, or text such as ``"80 GB"`` (powers of 1000) or ``"16 GiB"`` (powers of 1024).

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


def parse_devices(text: str) -> int | tuple[str, ...]:
    """What a text means that :func:`ooc_chol.cholesky` or a command takes for devices: a count, or names with commas between.

    Examples
    --------
    >>> parse_devices("2"), parse_devices("host:0, host:1")
    (2, ('host:0', 'host:1'))
    """
    if text.strip().isdecimal():
        return int(text)
    return tuple(name.strip() for name in text.split(",") if name.strip()) or (text,)


#: Bytes of a page: what device memory is cut into, and what buffers and files are aligned to for direct I/O.
PAGE_BYTES = 4096


def whole_pages(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages of :data:`PAGE_BYTES`.

    Examples
    --------
    >>> whole_pages(1), whole_pages(8192)
    (4096, 8192)
    """
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


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


def blas_threads_asked() -> int | None:
    """Threads that OpenBLAS is told to start: ``OPENBLAS_NUM_THREADS``, else ``OMP_NUM_THREADS``; None where by cores."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if (text := os.environ.get(name, "").strip()).isdecimal() and int(text) > 0:
            return int(text)
    return None


def commit_override() -> str | None:
    """``OOC_CHOL_COMMIT``: the commit that a copy of the tree without its history was made from."""
    return os.environ.get("OOC_CHOL_COMMIT")
