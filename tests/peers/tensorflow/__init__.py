"""Tests of what tfds's own builders prepare, which need TensorFlow: `make test-prepare`."""
