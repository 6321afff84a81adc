"""Evaluates a classifier: on a split, on new labelled data, or by scores in files."""
