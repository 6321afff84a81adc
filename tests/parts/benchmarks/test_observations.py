"""The benchmark of the ways to combine scores, with few scores of a known law."""
