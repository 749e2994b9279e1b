"""The program of a device: its steps, what they cost, and the checks that they can run."""
