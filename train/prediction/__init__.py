"""From image files to sets of classes, for people and for other programs."""
