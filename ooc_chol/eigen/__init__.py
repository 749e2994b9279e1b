"""Eigenpairs and singular triplets of sparse matrices that may be larger than a device, each with its certificate."""
