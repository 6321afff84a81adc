"""Studies: arms and seeds make runs, and the runs a table."""
