"""Internals of ``ooc_chol.bench`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.bench.case": ("ENGINES", "Fp64Case", "HOST_SHARE", "Peer"),
    "ooc_chol.bench.cuda.copy_rates": ("measure_links",),
    "ooc_chol.bench.fp64": ("Session", "run_case"),
    "ooc_chol.bench.imputation": ("edges_of", "errors_of"),
    "ooc_chol.bench.links": ("describe", "run_links"),
    "ooc_chol.bench.meters": ("memory_of_process",),
    "ooc_chol.bench.peers": ("MG_BLOCKS", "measure_peer"),
    "ooc_chol.bench.problem": ("CUDA_CODE", "CovarianceProblem", "MaternTable", "matern"),
    "ooc_chol.bench.results": ("RESULT_FILES", "Measured", "engine_of", "write_json"),
}
MODULES = {
    "case": "ooc_chol.bench.case",
    "devices": "ooc_chol.bench.cuda.devices",
    "fp64": "ooc_chol.bench.fp64",
    "meters": "ooc_chol.bench.meters",
    "peers": "ooc_chol.bench.peers",
    "product_rates": "ooc_chol.bench.cuda.product_rates",
    "suites": "ooc_chol.bench.suites",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
