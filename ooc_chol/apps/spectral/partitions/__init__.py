"""Bisection, and partitions by recursion."""
