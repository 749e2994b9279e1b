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
    "fallback_share",
    "joules",
    "device_bytes",
    "setup_seconds",
    "predicted_seconds",
}

ENGINE_FIELDS = {"native": set(), "residue": {"moduli"}, "mixed": {"certified_bound"}}
