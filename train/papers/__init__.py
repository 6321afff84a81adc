"""What belongs to the papers and the evidence: published numbers, tables and figures."""
