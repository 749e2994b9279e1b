"""Cuts in the span of eigenvectors, and their refinement."""
