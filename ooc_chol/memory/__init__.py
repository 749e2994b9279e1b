"""Memory that stores: files, host memory for results, and the sources of A."""
