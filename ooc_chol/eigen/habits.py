"""Arguments of SciPy's and CuPy's eigensolvers, and what to do without them."""

from __future__ import annotations

_RANDOM = "starting vectors are the same in every run: leave it out, or give others as v0"
_PASSES = "most products are called max_passes"
#: Those of ``scipy.sparse.linalg.eigsh``, and of its kin.
OF_EIGSH = {
    "maxiter": _PASSES,
    "max_iter": _PASSES,
    "rng": _RANDOM,
    "random_state": _RANDOM,
    "seed": _RANDOM,
    "Minv": "M is factored: give M itself",
    "mode": "with sigma it is shift-invert, 'normal', always: leave it out",
    "X": "starting vectors are called v0",
    "num_eigenvalues": "it is called k",
    "n_components": "it is called k",
    "device": "it is called devices",
    "precond": "it is called preconditioner",
}
#: Those of ``scipy.sparse.linalg.svds``, and of scikit-learn's.
OF_SVDS = {
    "maxiter": _PASSES,
    "max_iter": _PASSES,
    "n_iter": _PASSES,
    "rng": _RANDOM,
    "random_state": _RANDOM,
    "seed": _RANDOM,
    "solver": "there is one, block Lanczos on a square of A: leave it out",
    "options": "it has none: leave it out",
    "n_components": "it is called k",
    "full_matrices": "u and vt have k vectors each: leave it out",
    "compute_uv": "it is called return_singular_vectors",
    "device": "it is called devices",
}
