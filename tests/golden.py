"""Files of what must not change unnoticed: fields as plain text, digests where that is long, and which field differs.

Bits belong to a BLAS library on one kind of processor, which their file names: tests with the marker ``golden_bits(path)`` are
deselected and counted elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from tests.inside.kernels import blas_identity

#: Letters of a list that is told itself, and those that are shown of a longer one, which is told by a digest.
_MOST_LETTERS, _SHOWN = 160, 24


class GoldenFile(NamedTuple):
    """A file of what was recorded, and the module that writes it anew."""

    path: Path
    module: str

    def read(self) -> Any:
        """Records of the file."""
        return json.loads(self.path.read_text(encoding="utf-8"))

    def write(self, content: Any) -> None:
        """Record anew."""
        self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def differences(self, found: Any, recorded: Any) -> str:
        """Fields that are not as they were recorded, and what writes them anew; nothing where all are."""
        here, there = flat(found), flat(recorded)
        lines = [
            f"{name or 'it'} is {here.get(name, 'gone')!r}, and was {there.get(name, 'not there')!r}"
            for name in dict.fromkeys([*there, *here])
            if name not in here or name not in there or here[name] != there[name]
        ]
        anew = f"if that is meant, python -m {self.module} writes {self.path.name} anew: a commit of its own with its reason"
        return "\n".join([*lines, anew]) if lines else ""


def digest(content: bytes | str) -> str:
    """SHA-256."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def told(value: Any) -> Any:
    """Plain data as JSON has it: arrays by type, shape and digest, long lists by a digest."""
    if isinstance(value, Mapping):
        return {str(name): told(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {digest(np.ascontiguousarray(value).tobytes())}"
    if isinstance(value, np.generic):
        return told(value.item())
    if isinstance(value, list | tuple):
        text = json.dumps(value)
        return text if len(text) <= _MOST_LETTERS else f"{text[:_SHOWN]}... {digest(text)}"
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Plain data by the names of fields and of those within them."""
    if not (isinstance(value, Mapping) and value):
        return {name: value}
    found: dict[str, Any] = {}
    for field, each in value.items():
        found |= flat(each, f"{name}: {field}" if name else str(field))
    return found


def without(value: Any, names: Collection[str]) -> Any:
    """Plain data with a mark in place of what fields of these names hold: that they are there is held."""
    if isinstance(value, Mapping):
        return {name: "left out" if name in names else without(each, names) for name, each in value.items()}
    return [without(each, names) for each in value] if isinstance(value, list | tuple) else value


def names_of(value: Any) -> dict[str, Any]:
    """Names of the fields of plain data and of those within them, not what they hold; of a list those of its first entry."""
    fields = value[0] if isinstance(value, list | tuple) else value
    within = {str(name): names_of(each) for name, each in fields.items() if isinstance(each, Mapping) and each}
    return {"fields": " ".join(map(str, fields)), **within}


def library() -> str:
    """The BLAS library to which bits belong."""
    return " ".join(blas_identity().values())


def versions() -> str:
    """The packages whose arithmetic results pass through as well."""
    return f"numpy {np.__version__}, scipy {scipy.__version__}"


@cache
def holds_here(path: Path) -> bool:
    """Tell whether bits here are those of a file: of one library and, where it names them, of the same versions."""
    record = json.loads(path.read_text(encoding="utf-8"))
    return bool(record["library"] == library() and record.get("versions", versions()) == versions())
