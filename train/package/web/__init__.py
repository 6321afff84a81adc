"""A classifier with its sets as a page in a browser."""
