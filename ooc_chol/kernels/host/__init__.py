"""Tile kernels of the host."""
