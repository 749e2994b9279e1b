"""The lowest eigenvectors of Laplacians, and their preconditioners."""
