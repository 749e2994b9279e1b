"""Internals of ``ooc_chol.tasks`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.tasks.bounds": ("beaumont_bytes", "compulsory_bytes", "tile_bytes_of"),
    "ooc_chol.tasks.cholesky": ("Task", "TaskKind", "finish", "flops", "update"),
    "ooc_chol.tasks.degree_order": ("deals", "dealt"),
    "ooc_chol.tasks.operations": (
        "Convert",
        "Diagonal",
        "FileLink",
        "Fold",
        "Gemm",
        "INVERSES",
        "Invert",
        "LOWER_SHARE",
        "Link",
        "Load",
        "Operation",
        "Place",
        "Pool",
        "Potrf",
        "Product",
        "Pull",
        "Reconstruct",
        "STEP",
        "STREAM_NAMES",
        "StepKind",
        "Store",
        "StreamKind",
        "Syrk",
        "Trsm",
        "step_key",
    ),
    "ooc_chol.tasks.panels": ("Panel", "candidate_panels", "own_rows_need", "tallest_group", "uniform_panels", "varying_panels"),
    "ooc_chol.tasks.random_graphs": ("EdgeDraw", "MULTIPLIERS", "SHIFTS", "mix"),
    "ooc_chol.tasks.random_panels": ("panel_key", "random_rows"),
    "ooc_chol.tasks.row_blocks": (
        "CHUNK_ROWS",
        "GROUP_ENTRIES",
        "GROUP_ROWS",
        "RowBlock",
        "RowBlocks",
        "SEGMENT_ENTRIES",
        "ValueKind",
    ),
    "ooc_chol.tasks.tiling": ("Index", "TileGrid"),
    "ooc_chol.tasks.windows": ("Window", "whole_triangle"),
    "ooc_chol.tasks.work_groups": ("work_groups",),
}

__getattr__ = names_of(__name__, NAMES)
