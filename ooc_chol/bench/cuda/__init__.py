"""Rates of vendors' libraries and of the hardware itself, measured on GPUs."""
