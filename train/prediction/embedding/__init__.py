"""Writes the features of a network below its head, for images in files."""
