"""Surroundings of every run on devices, whatever it computes: passes, scans over blocks, and no thread or memory stays."""
