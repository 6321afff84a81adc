"""The files of a run: what it writes, and what is read back."""
