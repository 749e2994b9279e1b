"""Arguments of METIS, KaHIP, scikit-learn and scikit-image, and what to do without them."""

from __future__ import annotations

_OF_ALL = {
    "random_state": "it is called seed",
    "rng": "it is called seed",
    "maxiter": "most products are called max_passes",
    "eigen_solver": "smoothed aggregation is preconditioner='amg'",
    "eigen_tol": "it is called tol",
    "n_components": "eigenvectors that are searched are called vectors",
    "device": "it is called devices",
}
_OF_GRAPHS = _OF_ALL | {
    "tpwgts": "it is called target_sizes",
    "ufactor": "it is called balance: 0.03 lets parts weigh 3 % more than their targets",
    "imbalance": "it is called balance",
    "epsilon": "it is called balance",
    "vwgt": "it is called vertex_weights",
    "node_weights": "it is called vertex_weights",
    "weight": "weights of edges are the entries of A",
    "eweights": "weights of edges are the entries of A",
    "adjwgt": "weights of edges are the entries of A",
}
_COUNTS = ("k", "nparts", "n_parts", "nblocks", "n_clusters", "n_segments")
#: Those of bisections.
OF_BISECTIONS = _OF_GRAPHS | dict.fromkeys(_COUNTS, "it makes two parts; more are partition(A, n_parts)")
#: Those of partitions into any number of parts.
OF_PARTITIONS = _OF_GRAPHS | dict.fromkeys(_COUNTS, "it is called n_parts")
#: Those of segmentations.
OF_SEGMENTATIONS = (
    _OF_ALL
    | dict.fromkeys(_COUNTS, "it is called n_segments")
    | {
        "thresh": "it is called max_ncut",
        "num_cuts": "it is called split_points",
        "n_splits": "it is called split_points",
        "sigma": "it is called sigma_i, of values, and sigma_x, of distances",
        "channel_axis": "colours are the last axis: leave it out",
    }
)
#: Those of estimators: of scikit-learn's, and of the functions beside them.
OF_ESTIMATORS = {
    "n_jobs": "threads are those of BLAS: leave it out",
    "n_init": "clusters are no k-means: leave it out",
    "assign_labels": "clusters are no k-means: leave it out",
    "gamma": "give the affinity itself as X, or affinity='nearest_neighbors'",
}
