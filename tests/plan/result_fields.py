"""The fields of a result file."""

from __future__ import annotations

FIELDS = {
    "case", "commit", "date", "machine", "devices", "n", "tile_size", "engine", "precision_threshold", "covariance", "source",
    "budget_bytes", "seconds", "tflops", "peers", "bytes", "logdet", "exposed_copy_share",
}  # fmt: skip

GPU_FIELDS = {
    "policy",
    "dgemm_tflops",
    "residual",
    "joules",
    "device_bytes",
    "setup_seconds",
    "predicted_seconds",
}

#: Of a file of whole calls, and of each line of it.
CALL_FIELDS = {"case", "commit", "date", "machine", "options", "lines"}
CALL_LINE_FIELDS = {
    "measured", "n", "engine", "tile_size", "first_call", "wall_seconds", "inner_seconds", "medians", "ours_over_fastest",
}  # fmt: skip

ENGINE_FIELDS = {"native": set(), "residue": {"moduli"}, "mixed": {"certified_bound"}}
