"""``ooc-chol spectral``: bisect, partition, segment, demo."""
