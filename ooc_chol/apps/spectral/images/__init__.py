"""Normalized cuts of images and affinities."""
