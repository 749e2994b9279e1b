"""Prediction: kriging and its kinds, grids, cross-validation, scores, simulation."""
