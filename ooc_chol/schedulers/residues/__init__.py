"""The left-looking order through residues."""
