"""Several runs: planned for arms and their searches, made, collected and printed."""
