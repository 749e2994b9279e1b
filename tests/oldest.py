"""Requirements with the oldest packages that ``pyproject.toml`` allows: every lower bound, taken as the version.

``python -m tests.oldest`` prints what pip installs for ``make test-oldest``: what the package needs, and the tests.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_OWN = re.compile(r"ooc_chol\[([\w,-]+)\]")
_BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")


def oldest(requirements: Sequence[str], extras: dict[str, list[str]]) -> Iterator[str]:
    """Requirements with each lower bound as the version, those of extras of our own included."""
    for requirement in requirements:
        if own := _OWN.fullmatch(requirement):
            for name in own[1].split(","):
                yield from oldest(extras[name], extras)
        else:
            yield _BOUND.sub(r"\1==\2", requirement)


def main() -> None:
    """Print them, a line each."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    print("\n".join(sorted(set(oldest([*project["dependencies"], *extras["dev"]], extras)))))


if __name__ == "__main__":
    main()
