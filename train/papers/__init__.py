"""What belongs to the papers: published numbers, tables and figures."""
