"""The one room that knows devices and processes."""
