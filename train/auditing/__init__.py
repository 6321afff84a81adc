"""Likely wrong labels: each example is judged by a head that was not trained on it."""
