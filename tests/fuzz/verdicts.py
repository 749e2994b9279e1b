"""What may come of a case: a result, or an error that the package raises on purpose."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

import ooc_chol as oc

#: The package, and benchmarks, which read results.
_OURS = tuple(str(Path(oc.__file__).parents[1] / name) for name in ("ooc_chol", "benchmarks"))


def unwanted(error: BaseException) -> str:
    """Why an error must not reach a user; empty for one that may.

    Of the package's own errors all may. A plain ``ValueError`` or ``TypeError`` may where a line ``raise`` of the package raised
    it, and an ``OSError`` also where the system refused, which it says by a number.
    """
    if isinstance(error, oc.OocCholError) or type(error).__module__.partition(".")[0] == "ooc_chol":
        return _bad_text(error)
    if isinstance(error, OSError):
        return "" if error.errno is not None or _is_raised_here(error) else "an OSError of others"
    if type(error) not in (ValueError, TypeError):
        return f"a {type(error).__name__}"
    return _bad_text(error) if _is_raised_here(error) else f"a {type(error).__name__} that nothing here raised"


def _is_raised_here(error: BaseException) -> bool:
    """Tell whether a line of ours that begins with ``raise`` raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(_OURS) and line.startswith("raise")


def _bad_text(error: BaseException) -> str:
    """What is wrong with a message: nothing in it, or more than a screen."""
    text = str(error)
    return "no message" if not text.strip() else "a message of more than 4000 characters" if len(text) > 4000 else ""


def where(error: BaseException) -> str:
    """The error and its last frames, on one line."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    path = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return f"{type(error).__name__}: {error!s:.160}  [{path}]"
