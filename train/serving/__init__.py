"""An exported program behind HTTP: requests read within limits, answered in batches."""
