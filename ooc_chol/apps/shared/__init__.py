"""Helpers shared by several applications, on public names of ``ooc_chol``."""
