"""Internals of ``ooc_chol.eigen`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.eigen.asked": ("DEFAULT_TOL", "Sizes"),
    "ooc_chol.eigen.chebyshev": ("ChebyshevFilter", "FilteredSpace", "chosen_filter"),
    "ooc_chol.eigen.checkpoint": ("KIND",),
    "ooc_chol.eigen.device_space": ("DeviceSpace", "open_space"),
    "ooc_chol.eigen.early_array": ("EarlyArray",),
    "ooc_chol.eigen.exchange": ("Window",),
    "ooc_chol.eigen.factor_size": ("ORDERING", "factor_size"),
    "ooc_chol.eigen.forecast": ("Forecast",),
    "ooc_chol.eigen.habits": ("OF_EIGSH", "OF_SVDS"),
    "ooc_chol.eigen.krylov": ("KrylovBasis", "Ritz"),
    "ooc_chol.eigen.lanczos": ("Lanczos",),
    "ooc_chol.eigen.lobpcg": ("Lobpcg", "lobpcg_capacity"),
    "ooc_chol.eigen.operator_space": ("OperatorSpace",),
    "ooc_chol.eigen.plan": ("EigshProblem", "PASSES_OF_BLOCK"),
    "ooc_chol.eigen.planning": ("kept_panels", "planned_eigsh"),
    "ooc_chol.eigen.preconditioners": ("Preconditioner",),
    "ooc_chol.eigen.predictions": ("pass_seconds",),
    "ooc_chol.eigen.space_plan": ("plan_space",),
    "ooc_chol.eigen.wanted": ("Wanted",),
}
MODULES = {
    "asked": "ooc_chol.eigen.asked",
    "early_array": "ooc_chol.eigen.early_array",
    "lanczos": "ooc_chol.eigen.lanczos",
    "methods": "ooc_chol.eigen.methods",
    "planning": "ooc_chol.eigen.planning",
    "svds": "ooc_chol.eigen.svds",
    "svds_plan": "ooc_chol.eigen.svds_plan",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
