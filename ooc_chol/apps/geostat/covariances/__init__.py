"""Covariance functions: what one must offer, the families, and matrices of them tile by tile."""
