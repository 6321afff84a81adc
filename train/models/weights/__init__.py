"""Weights from third-party files, and files for third-party networks."""
