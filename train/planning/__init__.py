"""Compiles programs for machines that are not here, and reports what is in them."""
