"""Shares the work of one command among processes, and merges what they have written."""
