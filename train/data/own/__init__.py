"""People's own images: found in folders or listed in tables, and read where they lie."""
