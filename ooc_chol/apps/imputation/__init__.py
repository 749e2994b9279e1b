"""Graph-tensor imputation: matrices at the vertices of a graph, whole ones of which, or entries, are missing.

>>> import numpy as np
>>> import ooc_chol as oc
>>> from ooc_chol.apps import imputation
>>> step = np.roll(np.eye(60), 1, axis=1)
>>> ring = step + step.T
>>> true = oc.testing.low_rank_tensor(ring, 20, 20, 1)
>>> mask = oc.testing.random_mask(true.shape, 0.8)
>>> found = (
...     imputation.ConvolutionalImputer(ring).fit(true, mask).transform()
... )
>>> imputation.relative_error(found, true, ~mask) < 1e-3
True
"""

from importlib import import_module
from typing import TYPE_CHECKING

import ooc_chol.toolbox as tb

if TYPE_CHECKING:
    from ooc_chol.apps.imputation.crossvalidation import CrossValidation as CrossValidation
    from ooc_chol.apps.imputation.crossvalidation import cross_validate as cross_validate
    from ooc_chol.apps.imputation.crossvalidation import held_out_error as held_out_error
    from ooc_chol.apps.imputation.estimator import ConvolutionalImputer as ConvolutionalImputer
    from ooc_chol.apps.imputation.files import TensorFile as TensorFile
    from ooc_chol.apps.imputation.files import read_mask as read_mask
    from ooc_chol.apps.imputation.files import read_tensor as read_tensor
    from ooc_chol.apps.imputation.files import write_tensor as write_tensor
    from ooc_chol.apps.imputation.graphs import neighbour_graph as neighbour_graph
    from ooc_chol.apps.imputation.graphs import read_graph as read_graph
    from ooc_chol.apps.imputation.scores import neighbour_means as neighbour_means
    from ooc_chol.apps.imputation.scores import observed_mask as observed_mask
    from ooc_chol.apps.imputation.scores import relative_error as relative_error

#: Public names by the module that is imported when one of them is first asked for: scikit-learn and SciPy take their time.
_NAMES = {
    "crossvalidation": ("CrossValidation", "cross_validate", "held_out_error"),
    "estimator": ("ConvolutionalImputer",),
    "files": ("TensorFile", "read_mask", "read_tensor", "write_tensor"),
    "graphs": ("neighbour_graph", "read_graph"),
    "scores": ("neighbour_means", "observed_mask", "relative_error"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with tb.guarded_imports():
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
