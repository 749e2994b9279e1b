"""Estimation: likelihoods with gradient and information, searches, uncertainty."""
