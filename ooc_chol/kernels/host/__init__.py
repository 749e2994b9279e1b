"""Kernels of host devices: BLAS, LAPACK and NumPy on the threads of a stream."""
