"""Cholesky factorization of dense matrices: from options to a plan, its execution, the factor and its report."""
