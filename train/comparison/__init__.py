"""Finished runs beside each other: grouped by what differs, with means over their seeds."""
