"""Devices: memory that computes. To add a kind, subclass :class:`ooc_chol.interfaces.AbstractDevice`."""
