"""People's own images and features: found in folders or tables, and read where they lie."""
