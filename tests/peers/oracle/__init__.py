"""Tests against third-party implementations, which need PyTorch: `make test-oracle`."""
