"""Compiles programs for machines that are not here, and says what is in them."""
