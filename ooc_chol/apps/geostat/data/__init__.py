"""Data in and out: files, reference systems, observations, synthetic data."""
