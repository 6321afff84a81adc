"""From scores and labels to metrics, sets and reports."""
