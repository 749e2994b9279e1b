"""Work as data: tiles of a grid, and the tile tasks of a factorization."""
