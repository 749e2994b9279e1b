"""Internals of ``ooc_chol.sparse`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.sparse.ahead": ("made_ahead",),
    "ooc_chol.sparse.device_graphs": ("device_runs",),
    "ooc_chol.sparse.dividing": ("RING_SLOTS", "plan_products"),
    "ooc_chol.sparse.host_graphs": ("host_runs", "ranges_within"),
    "ooc_chol.sparse.keeping": ("evenly_kept",),
    "ooc_chol.sparse.linear_operator": ("PackedLinearOperator",),
    "ooc_chol.sparse.operator": ("operator_of",),
    "ooc_chol.sparse.pack": ("How", "packed_in_file", "packed_in_memory"),
    "ooc_chol.sparse.pass_rates": ("pass_rates_problem", "store_pass_rates"),
    "ooc_chol.sparse.plan": ("Diagonals", "NO_DIAGONALS", "panel_groups", "panel_widths"),
    "ooc_chol.sparse.planning": ("assumed_blocks", "diagonals_of", "planned"),
    "ooc_chol.sparse.rows": ("AbstractRows", "RowCounts", "Rows"),
    "ooc_chol.sparse.sources": ("rows_of",),
    "ooc_chol.sparse.transpose": ("transposed_rows",),
}
MODULES = {
    "block_csr": "ooc_chol.sparse.block_csr",
    "canonical": "ooc_chol.sparse.canonical",
    "compressed": "ooc_chol.sparse.sources.compressed",
    "edges": "ooc_chol.sparse.sources.edges",
    "npz": "ooc_chol.sparse.sources.npz",
    "scattered": "ooc_chol.sparse.sources.scattered",
    "text": "ooc_chol.sparse.sources.text",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
