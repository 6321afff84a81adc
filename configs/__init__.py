"""Configurations: one file per recipe."""
