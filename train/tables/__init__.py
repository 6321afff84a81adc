"""The papers' tables: published numbers, the runs that make ours, and the two side by side."""
