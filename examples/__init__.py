"""Examples. Run each with `python -m examples.NAME`; each takes less than a minute."""
