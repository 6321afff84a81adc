"""Examples: each runs on its own, in less than a minute, as `python -m examples.NAME`."""
