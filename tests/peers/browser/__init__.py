"""Tests of the page in headless Chromium: `make test-browser`."""
