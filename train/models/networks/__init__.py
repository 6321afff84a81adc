"""Networks without their heads, a family a file."""
