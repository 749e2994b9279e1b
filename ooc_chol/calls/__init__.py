"""What each call has, whatever its system: keys of results and checkpoints."""
