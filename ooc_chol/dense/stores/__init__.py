"""Where tiles of L live: in memory, over A, or in a file."""
