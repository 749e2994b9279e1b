"""Output for people: objects on one line, bars of progress, small pictures, and options in the words of a shell."""
