"""Which format holds which tile, which arithmetic makes which product, and what that costs in accuracy."""
