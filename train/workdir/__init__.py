"""The files of a run: what is written while it goes on, and what is read back."""
