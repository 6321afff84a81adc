"""`train.evaluate`: what the sets of a classifier are worth on labelled examples."""
