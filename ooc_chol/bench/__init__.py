"""Measurements that anyone can repeat: this package beside the vendor's routines, one JSON file per claim."""
