"""Uses finished runs: predicts sets of classes for images, and exports classifiers."""
