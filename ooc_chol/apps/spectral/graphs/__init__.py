"""Graphs: what they are made of, their components, and files of parts."""
