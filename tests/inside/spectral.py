"""Internals of ``ooc_chol.apps.spectral`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.apps.spectral.cutting.best": ("best_cut",),
    "ooc_chol.apps.spectral.cutting.levelling": ("levelled",),
    "ooc_chol.apps.spectral.cutting.refine": ("refine",),
    "ooc_chol.apps.spectral.cutting.rows": ("Rows",),
    "ooc_chol.apps.spectral.cutting.search": ("search_cuts",),
    "ooc_chol.apps.spectral.cutting.splits": ("Splits",),
    "ooc_chol.apps.spectral.cutting.target": ("Target",),
    "ooc_chol.apps.spectral.demo": ("demo_image", "metis", "wing_mesh"),
    "ooc_chol.apps.spectral.estimators": ("neighbour_graph",),
    "ooc_chol.apps.spectral.graphs.components": ("components",),
    "ooc_chol.apps.spectral.graphs.packing": ("fill", "grain", "nearest_sum", "pack", "ways"),
    "ooc_chol.apps.spectral.graphs.subgraph": ("Subgraph",),
    "ooc_chol.apps.spectral.images.affinity": ("Scales", "check_scales", "pixel_affinity"),
    "ooc_chol.apps.spectral.images.branches": ("grow",),
    "ooc_chol.apps.spectral.images.features": ("Features", "features_of"),
    "ooc_chol.apps.spectral.images.gpu_cuts": ("GpuCuts",),
    "ooc_chol.apps.spectral.images.noise": ("noise_of", "smoothed"),
    "ooc_chol.apps.spectral.images.parts": ("followed", "parts_of"),
    "ooc_chol.apps.spectral.images.reading": ("read_image",),
    "ooc_chol.apps.spectral.images.sweep": ("SweepOptions", "best_bipartition", "ncut_profile", "normalized_cut_of"),
    "ooc_chol.apps.spectral.partitions.clusters": ("Level",),
    "ooc_chol.apps.spectral.partitions.multilevel": ("evened_parts", "refined_together"),
    "ooc_chol.apps.spectral.partitions.pieces": ("gathered",),
    "ooc_chol.apps.spectral.partitions.shares": ("shares_of", "slack_of", "text_of_least"),
    "ooc_chol.apps.spectral.pictures": (
        "part_colours",
        "partition_figure",
        "save_figure",
        "segments_figure",
        "spectral_coordinates",
    ),
    "ooc_chol.apps.spectral.solving.eigenpairs": ("Within", "chosen_way", "lowest_eigenpairs"),
    "ooc_chol.apps.spectral.solving.lowest": ("Lowest", "SolverOptions", "solver_options"),
    "ooc_chol.apps.spectral.solving.near": ("Near",),
    "ooc_chol.apps.spectral.solving.preconditioners": ("SmoothedAggregation", "TooDenseError"),
    "ooc_chol.apps.spectral.solving.ways": ("precision_for",),
}
MODULES = {
    "affinity": "ooc_chol.apps.spectral.images.affinity",
    "best": "ooc_chol.apps.spectral.cutting.best",
    "normalized": "ooc_chol.apps.spectral.images.normalized",
    "packing": "ooc_chol.apps.spectral.graphs.packing",
    "parts": "ooc_chol.apps.spectral.images.parts",
    "refine_module": "ooc_chol.apps.spectral.cutting.refine",
    "refinement": "ooc_chol.apps.spectral.partitions.refinement",
    "regions": "ooc_chol.apps.spectral.images.regions",
    "runs": "ooc_chol.apps.spectral.graphs.runs",
    "search": "ooc_chol.apps.spectral.cutting.search",
    "sweep": "ooc_chol.apps.spectral.images.sweep",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
