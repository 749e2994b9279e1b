"""Internals of ``ooc_chol.diff`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.diff.call_frames": ("FUNCTIONS", "Frame"),
    "ooc_chol.diff.definite": ("CholeskyFactor", "LogDet", "SelectedInverse"),
    "ooc_chol.diff.factor_cache": ("CACHE", "Factor", "FactorCache"),
    "ooc_chol.diff.factors": ("Solve", "TriangularSolve"),
    "ooc_chol.diff.fronts": ("fronts_of",),
    "ooc_chol.diff.functions": ("product_of", "structure_of", "union", "union_of"),
    "ooc_chol.diff.jax_definite": ("_call as definite_call", "_on_the_host as definite_on_the_host", "definite_p"),
    "ooc_chol.diff.jax_device_calls": ("call_of", "finished", "lowering"),
    "ooc_chol.diff.jax_solves": ("_lowered as solve_lowered", "solve_p"),
    "ooc_chol.diff.memory": ("IndexArray", "device_of"),
    "ooc_chol.diff.ops": ("AbstractOp", "Contract", "MatMul", "Sampled", "TransposedMatMul", "run"),
    "ooc_chol.diff.pattern": ("trusted",),
    "ooc_chol.diff.torch_arrays": ("applied",),
    "ooc_chol.diff.triples": ("product_structure",),
}
MODULES = {
    "frames": "ooc_chol.diff.call_frames",
    "fronts": "ooc_chol.diff.fronts",
    "functions": "ooc_chol.diff.functions",
    "jax_device_calls": "ooc_chol.diff.jax_device_calls",
    "ops": "ooc_chol.diff.ops",
    "primitives": "ooc_chol.diff.primitives",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
