"""Internals of ``ooc_chol.tensors`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.tensors.device_space": ("DeviceTensorSpace",),
    "ooc_chol.tensors.host_space": ("HostTensorSpace",),
    "ooc_chol.tensors.imputation": ("space_of",),
    "ooc_chol.tensors.plan": ("shares_of",),
    "ooc_chol.tensors.predictions": ("paying_count", "step_seconds"),
    "ooc_chol.tensors.problem": ("given_of",),
    "ooc_chol.tensors.schedule": (
        "ALL_LAMBDAS",
        "ALL_THE_SAME",
        "ALL_ZERO",
        "CALLBACK",
        "INTERRUPTED",
        "NOISE_FLOOR",
        "NOTHING_MISSING",
        "noise_floor",
    ),
    "ooc_chol.tensors.share": ("TensorProblem",),
    "ooc_chol.tensors.space": ("AbstractTensorSpace", "StepFigures", "TensorSeconds"),
}
MODULES = {
    "fourier": "ooc_chol.tensors.fourier",
    "host_space": "ooc_chol.tensors.host_space",
    "imputation": "ooc_chol.tensors.imputation",
    "planning": "ooc_chol.tensors.plan",
    "share": "ooc_chol.tensors.share",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
