"""Writes data sets to disk, for `train.prepare`."""
