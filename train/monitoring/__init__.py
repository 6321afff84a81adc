"""Sets after deployment: whether outcomes keep the promise, one after the other."""
