"""Matrices, graphs and tensors to try things on: random graphs, and tensors of low rank with entries missing.

>>> import ooc_chol as oc
>>> oc.testing.urand(4, 2).shape
(16, 16)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_chol.sparse.generators import RandomGraph as RandomGraph
    from ooc_chol.sparse.generators import rmat as rmat
    from ooc_chol.sparse.generators import urand as urand
    from ooc_chol.tensors.generators import low_rank_tensor as low_rank_tensor
    from ooc_chol.tensors.generators import random_mask as random_mask

#: Public names by the module that is imported when one of them is first asked for.
_NAMES = {
    "sparse.generators": ("RandomGraph", "rmat", "urand"),
    "tensors.generators": ("low_rank_tensor", "random_mask"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a public name."""
    from ooc_chol.process.public_names import public_name

    value = globals()[name] = public_name(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
