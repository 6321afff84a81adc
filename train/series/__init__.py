"""Several runs: planned, made one after another, found again, and their means over seeds."""
