"""Keys of results and checkpoints, one mechanism for the calls of all systems."""
