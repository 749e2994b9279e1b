"""Linear algebra for matrices that outgrow a GPU, or the machine.

Dense Cholesky factors, geostatistics, sparse eigenpairs, partitions of graphs, sparse gradients, and imputation on graphs.

>>> import numpy as np
>>> import ooc_chol as oc
>>> L = oc.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
>>> float(round(L.logdet(), 6))
2.772589
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_chol import diff as diff
    from ooc_chol import errors as errors
    from ooc_chol import rates as rates
    from ooc_chol import testing as testing
    from ooc_chol import toolbox as toolbox
    from ooc_chol.api.cholesky import cholesky as cholesky
    from ooc_chol.api.devices import devices as devices
    from ooc_chol.api.eigsh import eigsh as eigsh
    from ooc_chol.api.eigsh import plan_eigsh as plan_eigsh
    from ooc_chol.api.impute import impute as impute
    from ooc_chol.api.impute import plan_impute as plan_impute
    from ooc_chol.api.load import load as load
    from ooc_chol.api.multiply import multiply as multiply
    from ooc_chol.api.multiply import plan_multiply as plan_multiply
    from ooc_chol.api.plan import plan as plan
    from ooc_chol.api.solve import logdet as logdet
    from ooc_chol.api.solve import solve as solve
    from ooc_chol.api.svds import plan_svds as plan_svds
    from ooc_chol.api.svds import svds as svds
    from ooc_chol.cluster.opening import open_cluster as open_cluster
    from ooc_chol.dense.batch_factor import BatchFactor as BatchFactor
    from ooc_chol.dense.factor import CholeskyFactor as CholeskyFactor
    from ooc_chol.dense.options import FactorOptions as FactorOptions
    from ooc_chol.dense.planner.plan import Plan as Plan
    from ooc_chol.dense.symmetric import symm as symm
    from ooc_chol.eigen.pairs import Eigenpairs as Eigenpairs
    from ooc_chol.eigen.singular import SingularTriplets as SingularTriplets
    from ooc_chol.errors import BudgetError as BudgetError
    from ooc_chol.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
    from ooc_chol.errors import OocCholError as OocCholError
    from ooc_chol.memory.host_memory import HostMemory as HostMemory
    from ooc_chol.memory.sources import from_function as from_function
    from ooc_chol.precision.triples import Precision as Precision
    from ooc_chol.sparse.block_csr import BlockCSR as BlockCSR
    from ooc_chol.sparse.multiplier import Multiplier as Multiplier
    from ooc_chol.sparse.multiplier import multiplier as multiplier
    from ooc_chol.sparse.operator import Operator as Operator
    from ooc_chol.sparse.operator import laplacian as laplacian
    from ooc_chol.sparse.pack import block_csr as block_csr
    from ooc_chol.sparse.sources.edges import edge_list as edge_list
    from ooc_chol.sparse.sources.metis import metis_graph as metis_graph
    from ooc_chol.tensors.fourier import GraphFourier as GraphFourier
    from ooc_chol.tensors.report import Imputed as Imputed
    from ooc_chol.tracing.trace import Trace as Trace

__version__ = "0.1.0"

#: Public names by the module that is imported when one of them is first asked for: the whole package takes a tenth of a second,
#: and a process that imports it need not use it. A test holds this table and the imports above together.
_NAMES = {
    "api.cholesky": ("cholesky",),
    "api.devices": ("devices",),
    "api.eigsh": ("eigsh", "plan_eigsh"),
    "api.impute": ("impute", "plan_impute"),
    "api.load": ("load",),
    "api.multiply": ("multiply", "plan_multiply"),
    "api.plan": ("plan",),
    "api.solve": ("logdet", "solve"),
    "api.svds": ("plan_svds", "svds"),
    "cluster.opening": ("open_cluster",),
    "dense.batch_factor": ("BatchFactor",),
    "dense.factor": ("CholeskyFactor",),
    "dense.options": ("FactorOptions",),
    "dense.planner.plan": ("Plan",),
    "dense.symmetric": ("symm",),
    "eigen.pairs": ("Eigenpairs",),
    "eigen.singular": ("SingularTriplets",),
    "errors": ("BudgetError", "NotPositiveDefiniteError", "OocCholError"),
    "memory.host_memory": ("HostMemory",),
    "memory.sources": ("from_function",),
    "precision.triples": ("Precision",),
    "sparse.block_csr": ("BlockCSR",),
    "sparse.multiplier": ("Multiplier", "multiplier"),
    "sparse.operator": ("Operator", "laplacian"),
    "sparse.pack": ("block_csr",),
    "sparse.sources.edges": ("edge_list",),
    "sparse.sources.metis": ("metis_graph",),
    "tensors.fourier": ("GraphFourier",),
    "tensors.report": ("Imputed",),
    "tracing.trace": ("Trace",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
#: Modules with public names of their own, imported when they are first asked for.
_MODULES = ("diff", "errors", "rates", "testing", "toolbox")
__all__ = [*_MODULE_OF, *_MODULES]


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ooc_chol.process.public_names import public_name

    value = globals()[name] = public_name(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
