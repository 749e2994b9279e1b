"""Out-of-core Cholesky factorization that plans, executes and explains.

>>> import numpy as np
>>> import ooc_chol as oc
>>> L = oc.cholesky(np.array([[4.0, 0.0], [2.0, 5.0]]))
>>> float(round(L.logdet(), 6))
2.772589
"""

from ooc_chol.dense.driver import cholesky as cholesky
from ooc_chol.dense.driver import plan as plan
from ooc_chol.dense.factor import CholeskyFactor as CholeskyFactor
from ooc_chol.dense.factor import HalfSolveSums as HalfSolveSums
from ooc_chol.dense.factor import InverseTraces as InverseTraces
from ooc_chol.dense.factor import load as load
from ooc_chol.dense.options import FactorOptions as FactorOptions
from ooc_chol.dense.planner.plan import Plan as Plan
from ooc_chol.dense.report import FactorReport as FactorReport
from ooc_chol.dense.symmetric import symm as symm
from ooc_chol.errors import BudgetError as BudgetError
from ooc_chol.errors import NonFiniteError as NonFiniteError
from ooc_chol.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from ooc_chol.errors import OocCholError as OocCholError
from ooc_chol.errors import OutputError as OutputError
from ooc_chol.errors import PlanSizeError as PlanSizeError
from ooc_chol.errors import PrecisionError as PrecisionError
from ooc_chol.errors import PrecisionWarning as PrecisionWarning
from ooc_chol.errors import RatesWarning as RatesWarning
from ooc_chol.errors import RefinementError as RefinementError
from ooc_chol.errors import ScheduleError as ScheduleError
from ooc_chol.errors import TierError as TierError
from ooc_chol.kernels.cuda.source import cuda_source as cuda_source
from ooc_chol.listing import devices as devices
from ooc_chol.memory.host_memory import HostMemory as HostMemory
from ooc_chol.memory.sources import from_function as from_function
from ooc_chol.outputs import FileKind as FileKind
from ooc_chol.outputs import Output as Output
from ooc_chol.outputs import check_outputs as check_outputs
from ooc_chol.outputs import output_file as output_file
from ooc_chol.precision.certified import CertifiedBound as CertifiedBound
from ooc_chol.team import map_in_threads as map_in_threads
from ooc_chol.tracing.records import TRACE_FILES as TRACE_FILES
from ooc_chol.tracing.trace import Trace as Trace

__version__ = "0.1.0.dev0"
