"""Speed and memory of the library and of other implementations, interleaved in one process."""
