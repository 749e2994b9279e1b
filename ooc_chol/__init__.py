"""Out-of-core Cholesky factorization that plans, executes and explains.

>>> import numpy as np
>>> import ooc_chol as oc
>>> L = oc.cholesky(np.array([[4.0, 0.0], [2.0, 5.0]]))
>>> float(round(L.logdet(), 6))
2.772589
"""

from ooc_chol.config import FactorOptions as FactorOptions
from ooc_chol.driver import cholesky as cholesky
from ooc_chol.driver import plan as plan
from ooc_chol.errors import BudgetError as BudgetError
from ooc_chol.errors import NonFiniteError as NonFiniteError
from ooc_chol.errors import NotPositiveDefiniteError as NotPositiveDefiniteError
from ooc_chol.errors import OocCholError as OocCholError
from ooc_chol.errors import RefinementError as RefinementError
from ooc_chol.errors import ScheduleError as ScheduleError
from ooc_chol.errors import TierError as TierError
from ooc_chol.factor import CholeskyFactor as CholeskyFactor
from ooc_chol.factor import HalfSolveSums as HalfSolveSums
from ooc_chol.factor import InverseTraces as InverseTraces
from ooc_chol.factor import load as load
from ooc_chol.kernels.cuda.source import cuda_source as cuda_source
from ooc_chol.listing import devices as devices
from ooc_chol.memory.host_memory import HostMemory as HostMemory
from ooc_chol.memory.sources import from_function as from_function
from ooc_chol.planning.plan import Plan as Plan
from ooc_chol.runtime.report import FactorReport as FactorReport
from ooc_chol.symmetric import symm as symm
from ooc_chol.team import map_in_threads as map_in_threads
from ooc_chol.tracing.records import Trace as Trace

__version__ = "0.1.0.dev0"
