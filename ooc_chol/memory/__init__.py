"""Memory that stores: host memory for results, files of blocks, and the sources of A."""
