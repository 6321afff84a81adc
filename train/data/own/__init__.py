"""The user's own images and features: found in folders or tables, and read in place."""
