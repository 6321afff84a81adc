"""NumPy generators as functions of a seed and a count: no state is ever stored."""

import numpy as np

# Every use of randomness on the host has a stream of its own; a number is never given to another
# use. The order of the examples is the first, so that it is the one of [seed, epoch].
ORDER, CROPS, LABEL_NOISE, LABEL_ESTIMATES = range(4)


def generator(seed: int, stream: int, count: int = 0) -> np.random.Generator:
    """The generator of a use of randomness, in an epoch or at a step."""
    return np.random.default_rng([seed, count, stream])
