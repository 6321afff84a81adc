"""What every room may use: errors, fields, files, flags, the console, and how commands start."""
