"""Rules of sets for the classes of a classifier, and reports of how good sets are."""
