"""What a classifier says of examples: scores, in memory and in files, and observations."""
