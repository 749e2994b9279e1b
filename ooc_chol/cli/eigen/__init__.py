"""``ooc-chol eigsh`` and ``ooc-chol svds``: eigenpairs and singular triplets of sparse matrices in files."""
