"""The command line of the application."""
