"""The types of numbers in which products of sparse matrices and what stands on them are stored, computed and summed."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np


class Precision(Enum):
    """A triple of types, each F (float32) or D (float64): storage, compute, accumulate.

    Vectors are *stored* in the first type. An entry of the matrix, which is stored exactly, is multiplied by an entry of a vector
    in the second, and the products of a row are added in it. The third is the type of what is carried from one product to the
    next: the sum of a row is rounded to it once, and that is what is stored.

    Notes
    -----
    ``FDF`` has half the bytes of ``DDD`` in every vector, and one rounding to float32 an entry more. The names are those of
    Sgherzi, Parravicini and Santambrogio's eigensolver in mixed precision (2022).

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.Precision("FDF").storage.name, oc.Precision.FDF.compute.name
    ('float32', 'float64')
    """

    FFF = "FFF"
    FDF = "FDF"
    DDD = "DDD"

    @property
    def storage(self) -> np.dtype[Any]:
        """Type in which vectors are stored."""
        return _TYPES[self.value[0]]

    @property
    def compute(self) -> np.dtype[Any]:
        """Type in which entries are multiplied, and the products of a row added."""
        return _TYPES[self.value[1]]

    @property
    def accumulate(self) -> np.dtype[Any]:
        """Type of what is carried on: that to which the sum of a row is rounded."""
        return _TYPES[self.value[2]]


_TYPES: dict[str, np.dtype[Any]] = {"F": np.dtype(np.float32), "D": np.dtype(np.float64)}
