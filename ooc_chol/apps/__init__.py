"""Applications: each uses the public names of ``ooc_chol`` only."""
