"""Spectral partitions of graphs and segmentation of images by normalized cuts.

>>> import scipy.sparse
>>> from ooc_chol.apps import spectral
>>> ring = scipy.sparse.diags_array(
...     [1.0, 1.0, 1.0, 1.0], offsets=[-11, -1, 1, 11], shape=(12, 12)
... )
>>> halves = spectral.bisect(ring)
>>> halves.cut, halves.sizes.tolist()
(2.0, [6.0, 6.0])
"""

from importlib import import_module
from typing import TYPE_CHECKING

import ooc_chol.toolbox as tb

if TYPE_CHECKING:
    from ooc_chol.apps.spectral.estimators import NormalizedCut as NormalizedCut
    from ooc_chol.apps.spectral.estimators import SpectralPartition as SpectralPartition
    from ooc_chol.apps.spectral.graphs.files import read_partition as read_partition
    from ooc_chol.apps.spectral.graphs.files import write_partition as write_partition
    from ooc_chol.apps.spectral.graphs.graph import Graph as Graph
    from ooc_chol.apps.spectral.graphs.sources import as_graph as as_graph
    from ooc_chol.apps.spectral.graphs.sources import read_graph as read_graph
    from ooc_chol.apps.spectral.images.normalized import normalized_cut as normalized_cut
    from ooc_chol.apps.spectral.images.normalized import plan_normalized_cut as plan_normalized_cut
    from ooc_chol.apps.spectral.partitions.bisect import bisect as bisect
    from ooc_chol.apps.spectral.partitions.bisect import plan_bisect as plan_bisect
    from ooc_chol.apps.spectral.partitions.kway import partition as partition
    from ooc_chol.apps.spectral.partitions.kway import plan_partition as plan_partition
    from ooc_chol.apps.spectral.plans import PartitionPlan as PartitionPlan
    from ooc_chol.apps.spectral.results import Partition as Partition
    from ooc_chol.apps.spectral.results import PartitionReport as PartitionReport
    from ooc_chol.apps.spectral.results import Segmentation as Segmentation
    from ooc_chol.apps.spectral.results import SegmentationReport as SegmentationReport
    from ooc_chol.apps.spectral.results import Split as Split

#: Public names by the module that is imported when one of them is first asked for: scikit-learn and SciPy take their time.
_NAMES = {
    "estimators": ("NormalizedCut", "SpectralPartition"),
    "graphs.files": ("read_partition", "write_partition"),
    "graphs.graph": ("Graph",),
    "graphs.sources": ("as_graph", "read_graph"),
    "images.normalized": ("normalized_cut", "plan_normalized_cut"),
    "partitions.bisect": ("bisect", "plan_bisect"),
    "partitions.kway": ("partition", "plan_partition"),
    "plans": ("PartitionPlan",),
    "results": ("Partition", "PartitionReport", "Segmentation", "SegmentationReport", "Split"),
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
