"""Sparse matrices larger than a device: packed row blocks, their sources, and products that stream them."""
