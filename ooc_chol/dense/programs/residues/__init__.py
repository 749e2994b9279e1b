"""Programs of products through residues: rows, the strips of residues that they need, and how strips move."""
