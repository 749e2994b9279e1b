"""Words of a command line for every option of a factorization."""

from __future__ import annotations

from typing import Any

#: Words of a command line that choose another value than the default, and that value.
WORDS: dict[str, tuple[list[str], Any]] = {
    "tile_size": (["--tile-size", "64"], 64),
    "devices": (["--devices", "host:1, host:0"], ("host:1", "host:0")),
    "memory_budget": (["--memory-budget", "200 kB"], "200 kB"),
    "host_budget": (["--host-budget", "1 GB"], "1 GB"),
    "policy": (["--policy", "v3"], "v3"),
    "objective": (["--objective", "bytes"], "bytes"),
    "fp64": (["--fp64", "residue"], "residue"),
    "moduli": (["--moduli", "8"], 8),
    "precision_threshold": (["--precision-threshold", "1e-4"], 1e-4),
    "precision_rule": ([], "paper"),  # from Python alone
    "half_products": (["--half-products", "yes"], True),
    "strict": (["--no-strict"], False),
    "dtype": (["--dtype", "float32"], "float32"),
}
#: Options of commands.
SHELL_WORDS = [name for name, (words, _) in WORDS.items() if words]
#: Options of factorizations in float64 alone.
FLOAT64_WORDS = [name for name in WORDS if name != "dtype"]
