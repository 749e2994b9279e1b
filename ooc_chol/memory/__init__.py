"""Memory that stores, and the bookkeeping of memory that computes."""
