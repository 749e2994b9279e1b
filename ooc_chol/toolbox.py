"""For applications: files, checks, printing, threads and CUDA C as ooc_chol itself has them; names here may change.

Types of what calls return, beside those of ``ooc_chol`` itself, are here for annotations and ``isinstance``. An application
imports ``ooc_chol`` and this module alone, by custom as ``oc`` and ``tb``:

>>> import ooc_chol.toolbox as tb
>>> tb.parse_json('{"n": 100}')
{'n': 100}
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_chol.calls.habits import answering as answering
    from ooc_chol.calls.machine import Machine as Machine
    from ooc_chol.calls.options import Option as Option
    from ooc_chol.calls.options import add_words as add_words
    from ooc_chol.calls.options import checked as checked
    from ooc_chol.calls.options import documented as documented
    from ooc_chol.calls.page import AbstractPage as AbstractPage
    from ooc_chol.calls.page import link_lines as link_lines
    from ooc_chol.calls.plan import AbstractPlan as AbstractPlan
    from ooc_chol.calls.progress import Progress as Progress
    from ooc_chol.calls.progress import open_reporter as open_reporter
    from ooc_chol.calls.progress import progress_reporter as progress_reporter
    from ooc_chol.calls.report import AbstractPlannedReport as AbstractPlannedReport
    from ooc_chol.calls.report import AbstractReport as AbstractReport
    from ooc_chol.calls.report import CallBytes as CallBytes
    from ooc_chol.calls.report import CallSeconds as CallSeconds
    from ooc_chol.cluster.plan import ClusterPlan as ClusterPlan
    from ooc_chol.cluster.report import ClusterReport as ClusterReport
    from ooc_chol.config import format_bytes as format_bytes
    from ooc_chol.config import parse_bytes as parse_bytes
    from ooc_chol.config import real_number as real_number
    from ooc_chol.config import whole_number as whole_number
    from ooc_chol.dense.batch_factor import BatchReport as BatchReport
    from ooc_chol.dense.factor import HalfSolveSums as HalfSolveSums
    from ooc_chol.dense.factor import InverseTraces as InverseTraces
    from ooc_chol.dense.factor import SignAndLogdet as SignAndLogdet
    from ooc_chol.dense.factor import TransposedFactor as TransposedFactor
    from ooc_chol.dense.factor.solves import joined_columns as joined_columns
    from ooc_chol.dense.report import FactorReport as FactorReport
    from ooc_chol.dense.stores.header import FACTOR_FILES as FACTOR_FILES
    from ooc_chol.display.drawing import Drawing as Drawing
    from ooc_chol.display.drawing import notebook_html as notebook_html
    from ooc_chol.display.prints import brief_repr as brief_repr
    from ooc_chol.display.prints import one_line as one_line
    from ooc_chol.display.shell_words import shell_words as shell_words
    from ooc_chol.display.suggestions import SuggestingParser as SuggestingParser
    from ooc_chol.eigen.plan import EigshPlan as EigshPlan
    from ooc_chol.eigen.report import EigshReport as EigshReport
    from ooc_chol.eigen.singular import SvdsReport as SvdsReport
    from ooc_chol.eigen.svds_plan import SvdsPlan as SvdsPlan
    from ooc_chol.extras import install_hint as install_hint
    from ooc_chol.files.inputs import input_bytes as input_bytes
    from ooc_chol.files.inputs import input_file as input_file
    from ooc_chol.files.inputs import input_lines as input_lines
    from ooc_chol.files.inputs import parse_json as parse_json
    from ooc_chol.files.inputs import plain_array as plain_array
    from ooc_chol.files.outputs import FileKind as FileKind
    from ooc_chol.files.outputs import Output as Output
    from ooc_chol.files.outputs import check_outputs as check_outputs
    from ooc_chol.files.outputs import output_file as output_file
    from ooc_chol.files.outputs import output_folder as output_folder
    from ooc_chol.hardware.registry import resolve_devices as resolve_devices
    from ooc_chol.kernels.cuda.blocks import cuda_names as cuda_names
    from ooc_chol.kernels.cuda.blocks import run_cuda_blocks as run_cuda_blocks
    from ooc_chol.kernels.cuda.source import cuda_source as cuda_source
    from ooc_chol.kernels.host.blas import blas_threads as blas_threads
    from ooc_chol.precision.certified import CertifiedBound as CertifiedBound
    from ooc_chol.precision.certified_answers import CertifiedAnswers as CertifiedAnswers
    from ooc_chol.precision.certified_answers import CertifiedSignAndLogdet as CertifiedSignAndLogdet
    from ooc_chol.precision.certified_answers import CertifiedSolution as CertifiedSolution
    from ooc_chol.precision.certified_answers import CertifiedValue as CertifiedValue
    from ooc_chol.process.address_space import check_room as check_room
    from ooc_chol.process.address_space import guarded_imports as guarded_imports
    from ooc_chol.process.team import kept_threads as kept_threads
    from ooc_chol.process.team import map_in_threads as map_in_threads
    from ooc_chol.process.threads import called_beside as called_beside
    from ooc_chol.sparse.elsewhere import ClusterProducts as ClusterProducts
    from ooc_chol.sparse.plan import MultiplyPlan as MultiplyPlan
    from ooc_chol.sparse.product import Product as Product
    from ooc_chol.sparse.report import MultiplyReport as MultiplyReport
    from ooc_chol.sparse.sources.npy import input_npy as input_npy
    from ooc_chol.sparse.sources.npz import input_npz as input_npz
    from ooc_chol.sparse.sources.others import is_dense as is_dense
    from ooc_chol.sparse.sources.others import networkx_adjacency as networkx_adjacency
    from ooc_chol.sparse.sweep_cuts import SweepCuts as SweepCuts
    from ooc_chol.tensors.plan import TensorPlan as TensorPlan
    from ooc_chol.tensors.problem import observed_mask as observed_mask
    from ooc_chol.tensors.problem import real_tensor as real_tensor
    from ooc_chol.tensors.report import HeldOut as HeldOut
    from ooc_chol.tensors.report import ImputeReport as ImputeReport
    from ooc_chol.tensors.schedule import LambdaRow as LambdaRow
    from ooc_chol.tracing.records import TRACE_FILES as TRACE_FILES

#: Public names by the module that is imported when one of them is first asked for.
_NAMES = {
    "calls.habits": ("answering",),
    "calls.machine": ("Machine",),
    "calls.options": ("Option", "add_words", "checked", "documented"),
    "calls.page": ("AbstractPage", "link_lines"),
    "calls.plan": ("AbstractPlan",),
    "calls.progress": ("Progress", "open_reporter", "progress_reporter"),
    "calls.report": ("AbstractPlannedReport", "AbstractReport", "CallBytes", "CallSeconds"),
    "cluster.plan": ("ClusterPlan",),
    "cluster.report": ("ClusterReport",),
    "config": ("format_bytes", "parse_bytes", "real_number", "whole_number"),
    "dense.batch_factor": ("BatchReport",),
    "dense.factor": ("HalfSolveSums", "InverseTraces", "SignAndLogdet", "TransposedFactor"),
    "dense.factor.solves": ("joined_columns",),
    "dense.report": ("FactorReport",),
    "dense.stores.header": ("FACTOR_FILES",),
    "display.drawing": ("Drawing", "notebook_html"),
    "display.prints": ("brief_repr", "one_line"),
    "display.shell_words": ("shell_words",),
    "display.suggestions": ("SuggestingParser",),
    "eigen.plan": ("EigshPlan",),
    "eigen.report": ("EigshReport",),
    "eigen.singular": ("SvdsReport",),
    "eigen.svds_plan": ("SvdsPlan",),
    "extras": ("install_hint",),
    "files.inputs": ("input_bytes", "input_file", "input_lines", "parse_json", "plain_array"),
    "files.outputs": ("FileKind", "Output", "check_outputs", "output_file", "output_folder"),
    "hardware.registry": ("resolve_devices",),
    "kernels.cuda.blocks": ("cuda_names", "run_cuda_blocks"),
    "kernels.cuda.source": ("cuda_source",),
    "kernels.host.blas": ("blas_threads",),
    "precision.certified": ("CertifiedBound",),
    "precision.certified_answers": ("CertifiedAnswers", "CertifiedSignAndLogdet", "CertifiedSolution", "CertifiedValue"),
    "process.address_space": ("check_room", "guarded_imports"),
    "process.team": ("kept_threads", "map_in_threads"),
    "process.threads": ("called_beside",),
    "sparse.elsewhere": ("ClusterProducts",),
    "sparse.plan": ("MultiplyPlan",),
    "sparse.product": ("Product",),
    "sparse.report": ("MultiplyReport",),
    "sparse.sources.npy": ("input_npy",),
    "sparse.sources.npz": ("input_npz",),
    "sparse.sources.others": ("is_dense", "networkx_adjacency"),
    "sparse.sweep_cuts": ("SweepCuts",),
    "tensors.plan": ("TensorPlan",),
    "tensors.problem": ("observed_mask", "real_tensor"),
    "tensors.report": ("HeldOut", "ImputeReport"),
    "tensors.schedule": ("LambdaRow",),
    "tracing.records": ("TRACE_FILES",),
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
