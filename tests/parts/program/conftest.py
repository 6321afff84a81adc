"""What is collected of the tests of the program."""

# Commands: they define flags of the same names as other commands, which modules here import.
collect_ignore = [
    *("interrupted.py", "small_photographs.py"),
    "prediction/small_published.py",
]
