"""What every room may use: errors, fields, files, and what is shown while something takes long."""
