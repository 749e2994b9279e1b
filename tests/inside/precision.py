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
    "ooc_chol.precision.certified": ("certified_bound", "largest_share", "least_bound", "ordinary_power", "safety_factor"),
    "ooc_chol.precision.escalation": (
        "Escalation",
        "EscalationState",
        "Escalations",
        "LOCAL_WORK",
        "MOST_RESTARTS",
        "MOST_WORK",
        "Remedy",
        "panel_tiles",
        "row_tiles",
    ),
    "ooc_chol.precision.moduli": ("MOST_MODULI", "MOST_ROWS", "MOST_TERMS", "ROW_SLACK", "ResidueBasis"),
    "ooc_chol.precision.norms": ("FactorNorms", "MatrixNorms", "PROBES", "Probes", "SAFETY", "sample_step"),
    "ooc_chol.precision.products": (
        "FP16_SUM_ERROR",
        "NarrowProducts",
        "ProductForm",
        "SHARE",
    ),
    "ooc_chol.precision.tile_formats": ("LEAST_RESIDUE_SHARE", "PrecisionMap", "RESIDUE_PART", "RULES", "choose_formats"),
}

__getattr__ = names_of(__name__, NAMES)
