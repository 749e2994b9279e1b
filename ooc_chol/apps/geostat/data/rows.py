"""Names of rows in the caller's data, for messages: whatever was left out or reordered since."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Rows:
    """How rows are called where they came from."""

    numbers: NDArray[np.intp]  #: (n,) number of each row there
    noun: str = "observation"
    where: str = "(counted from zero)"

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """The rows at ``indices``, in that order."""
        return replace(self, numbers=self.numbers[indices])

    def named(self, *indices: int) -> str:
        """Some rows in words, such as ``observations 3 and 17 (counted from zero)``."""
        numbers = " and ".join(str(self.numbers[index]) for index in indices)
        return f"{self.noun}{'s' * (len(indices) > 1)} {numbers} {self.where}"


def counted_rows(n: int, noun: str = "observation") -> Rows:
    """Rows that are called by their number in an array."""
    return Rows(np.arange(n), noun)
