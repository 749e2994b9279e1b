"""The tile kernels of each kind of device: POTRF, TRSM, SYRK and GEMM behind one interface."""
