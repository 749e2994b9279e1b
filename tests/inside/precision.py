"""Internals of ``ooc_chol.precision`` and ``ooc_chol.formats`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.formats": (
        "COMPLEX128",
        "COMPLEX64",
        "FORMATS",
        "FP16",
        "FP32",
        "FP64",
        "FP8",
        "Floats",
        "PrecisionFormat",
        "Rounding",
        "TYPES",
        "decode",
        "encode",
        "largest_magnitude",
    ),
    "ooc_chol.precision.accounting": ("ErrorEstimate", "estimated_error"),
    "ooc_chol.precision.certified": (
        "certified_bound",
        "fp64_bound",
        "largest_share",
        "least_bound",
        "least_bound_of_order",
        "ordinary_power",
        "safety_factor",
    ),
    "ooc_chol.precision.certified_answers": ("LARGEST_GAP", "least_share"),
    "ooc_chol.precision.escalation": (
        "Escalation",
        "EscalationState",
        "Escalations",
        "LOCAL_WORK",
        "MOST_WORK",
        "Remedy",
        "row_tiles",
    ),
    "ooc_chol.precision.measured_products": ("MeasuredProducts",),
    "ooc_chol.precision.moduli": ("MOST_MODULI", "MOST_ROWS", "MOST_TERMS", "ROW_SLACK", "ResidueBasis"),
    "ooc_chol.precision.norms": ("FactorNorms", "MatrixNorms", "PROBES", "Probes", "SAFETY", "foreseen_pivot", "sample_step"),
    "ooc_chol.precision.products": ("FP16_SUM_ERROR", "expected_share", "narrow_of"),
    "ooc_chol.precision.tile_formats": (
        "LEAST_RESIDUE_PART",
        "PRODUCTS_PART",
        "PrecisionMap",
        "RULES",
        "STORING_PART",
        "choose_formats",
        "enough_moduli",
        "most_moduli_needed",
        "pivot_threshold",
        "rounding_of_rows",
    ),
}

MODULES = {"norms": "ooc_chol.precision.norms"}

__getattr__ = names_of(__name__, NAMES, MODULES)
