"""Sizes written by people, pages, and the one place that reads environment variables."""

from __future__ import annotations

import math
import operator
import os
import pwd
import re
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}{byte}": 1000**power for power, prefix in enumerate("KMGTP", start=1) for byte in ("B", "")}
_UNITS |= {f"{prefix}I{byte}": 1024**power for power, prefix in enumerate("KMGTP", start=1) for byte in ("B", "")}
_SIZE = re.compile(r"\s*((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Z]*)\s*")

#: Most digits of a number of devices.
_MOST_DIGITS = 20
_GIVE_BYTES = "give bytes as an int, or text such as '16 GiB' or '80 GB'"


def whole_number(value: object, what: str, advice: str = "give an int", *, least: int | None = None) -> int:
    """``value`` as an int: one of Python's or NumPy's, or anything else with ``__index__``, but no bool.

    Parameters
    ----------
    value : object
        Object that a caller gave.
    what : str
        Name in the message.
    advice : str
        The end of the message.
    least : int, optional
        Smallest number that makes sense.

    Returns
    -------
    int
        The same number.

    Raises
    ------
    TypeError
        It is no whole number.
    ValueError
        It is less than ``least``.

    Examples
    --------
    >>> import numpy as np
    >>> whole_number(np.int64(64), "tile_size")
    64
    """
    if type(value).__name__ != "bool" and isinstance(value, SupportsIndex):  # NumPy's, too, which older ones take as an index
        try:
            number = operator.index(value)
        except TypeError:  # an array has the method whatever it holds
            pass
        else:
            if least is not None and number < least:
                raise ValueError(f"{what} is {number}; give {least} or more")
            return number
    raise TypeError(f"{what} is a {type(value).__name__}; {advice}")


def real_number(value: object, what: str) -> float:
    """``value`` as a float, which may be NaN or infinite: one of Python's or NumPy's numbers, but no bool and no text.

    Parameters
    ----------
    value : object
        Object that a caller gave.
    what : str
        Name in the message.

    Returns
    -------
    float
        The same number.

    Raises
    ------
    TypeError
        It is no real number.

    Examples
    --------
    >>> real_number(3, "tol")
    3.0
    """
    if type(value).__name__ not in ("bool", "bool_") and not isinstance(value, str | bytes) and isinstance(value, SupportsFloat):
        try:
            return float(value)
        except TypeError:  # an array has the method whatever it holds
            pass
    raise TypeError(f"{what} is a {type(value).__name__}; give a number")


def parse_count(text: str) -> int:
    """The whole number that ``text`` is: ``"100000"``, ``"100_000"`` or ``"1e5"``."""
    try:
        return int(text)
    except ValueError:
        pass
    match = _SIZE.fullmatch(text)
    if match is None or match[2] or not float(match[1]).is_integer():
        raise ValueError(f"{text!r:.80} is not a whole number; write for example 100000 or 1e5")
    return int(float(match[1]))


def parse_bytes(size: object, what: str = "size") -> int:
    """Bytes meant by ``size``: a whole number, or text such as ``"80 GB"`` (powers of 1000) or ``"16 GiB"`` (powers of 1024).

    A float is a whole number where it has no fraction, as ``8e9`` has none; ``"80 G"`` and ``"16 Gi"`` leave the B out.

    Parameters
    ----------
    size : int, float or str
        Object that a caller gave.
    what : str
        Name in messages.

    Returns
    -------
    int
        The bytes, 1 or more.

    Raises
    ------
    ValueError, TypeError
        It is no size, or not more than zero bytes.

    Examples
    --------
    >>> parse_bytes("1.5 KiB"), parse_bytes("80 GB"), parse_bytes(8e9)
    (1536, 80000000000, 8000000000)
    """
    if not isinstance(size, str):
        is_whole = isinstance(size, float) and size.is_integer()
        value = int(size) if is_whole else whole_number(size, what, _GIVE_BYTES)  # type: ignore[call-overload]
    else:
        match = _SIZE.fullmatch(size)
        unit = match[2].upper() if match else "?"
        if match is None or unit not in _UNITS:
            raise ValueError(f"{what}: {size!r:.80} is not a size; write for example 500000000, '80 GB', '16 GiB' or '512 MiB'")
        count = float(match[1]) * _UNITS[unit]
        if not math.isfinite(count):
            raise ValueError(f"{what} is {size!r:.80}, more bytes than can be counted")
        value = round(count)
    if value <= 0:
        raise ValueError(f"{what} is {size!r:.80}; it must be more than zero bytes")
    return value


def parse_devices(text: str) -> int | tuple[str, ...]:
    """Parse the devices that :func:`ooc_chol.cholesky` or a command takes: a count, or names with commas between."""
    if text.strip().isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    return tuple(name.strip() for name in text.split(",") if name.strip()) or (text,)


#: Bytes of a page: what device memory is cut into, and what buffers and files are aligned to for direct I/O.
PAGE_BYTES = 4096


def whole_pages(nbytes: int) -> int:
    """``nbytes`` rounded up to whole pages of :data:`PAGE_BYTES`."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


def format_bytes(count: float) -> str:
    """Write bytes for a reader, in powers of 1000.

    Parameters
    ----------
    count : float
        Bytes.

    Returns
    -------
    str
        Such as ``"1.5 GB"``.
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def long_time(seconds: float) -> str:
    """Seconds in the unit that people use for so long a time, in brackets behind a space; nothing for less than five minutes."""
    if seconds < 300:
        return ""
    for unit, each, most in (("minutes", 60, 7200), ("hours", 3600, 172800)):
        if seconds < most:
            return f" ({seconds / each:.0f} {unit})"
    return f" ({seconds / 86400:,.0f} days)"


def cache_directory() -> Path | None:
    """Folder for measured rates: ``OOC_CHOL_CACHE``, else ``XDG_CACHE_HOME/ooc_chol``, else ``~/.cache/ooc_chol``.

    None where that leads nowhere, as without a home.
    """
    if own := os.environ.get("OOC_CHOL_CACHE"):
        return Path(own)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "ooc_chol"
    home = _home()
    return None if home is None else home / ".cache" / "ooc_chol"


def _home() -> Path | None:
    """The user's home, as ``HOME`` or else the system says; None where neither names a folder from the root on."""
    home = os.environ.get("HOME")
    if home is None:
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return Path(home) if os.path.isabs(home) else None


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


def visible_gpus(count: int) -> list[str]:
    """``CUDA_VISIBLE_DEVICES`` of processes that are to see one of this one's ``count`` GPUs, for each of them."""
    told = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return told[:count] if len(told) >= count else [str(number) for number in range(count)]
