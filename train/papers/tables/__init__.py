"""The papers' tables, planned, run and collected."""
