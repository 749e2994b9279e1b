"""Rates of this machine: measured once on request, stored, and looked up by every later plan."""
