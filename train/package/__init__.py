"""A packaged classifier: one file and its description, and what reads or serves them."""
