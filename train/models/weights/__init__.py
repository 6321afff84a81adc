"""Weights of other people's files, and files for other people's networks."""
