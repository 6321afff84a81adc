"""What the references share: one example at a time in float64, and derivatives by differences."""

import functools
import inspect
import math
from fractions import Fraction

import numpy as np


def float64(values):
    """The values in float64, half precision and bfloat16 included."""
    return np.asarray(values).astype(np.float64)


def classes_last(scores, axis=-1):
    """The scores in float64 with the axis of the classes moved to the end."""
    return np.moveaxis(float64(scores), axis, -1)


def valid(logits, label):
    """Whether one example can have a plausible value: a label in [0, L) and no NaN."""
    return 0 <= label < logits.shape[-1] and not np.isnan(logits).any()


def each_example(function):
    """Turn a function of one (logits, label) into one of `[..., L]` and `[...]`, NaN where invalid.

    The result of an example is a number or an array; a broken example gives NaN of that shape, and
    one that does not count zeros.
    """
    scores, label = list(inspect.signature(function).parameters)[:2]

    @functools.wraps(function)
    def batched(*arrays, where=None, **parameters):
        given = dict(zip((scores, f"{label}s"), arrays, strict=False)) | parameters
        logits, labels = float64(given.pop(scores)), np.asarray(given.pop(f"{label}s"))
        counted = np.broadcast_to(True if where is None else where, labels.shape)
        rows = logits.reshape(-1, logits.shape[-1])
        results = []
        with np.errstate(over="ignore", divide="ignore"):
            for row, own, counts in zip(rows, labels.flat, counted.flat, strict=True):
                if counts and valid(row, own):
                    results.append(np.asarray(function(row, own, **given), np.float64))
                else:
                    shape = np.shape(function(np.zeros_like(row), 0, **given))
                    results.append(np.full(shape, np.nan if counts else 0.0))
        return np.reshape(results, (*labels.shape, *results[0].shape))

    return batched


def one_hot(index, size):
    """A vector of `size` zeros with a one at `index`."""
    return np.eye(size)[index]


def margin_of(margins, label):
    """The margin of one class, whether one is given for all or one a class."""
    margins = float64(margins)
    return margins if margins.ndim == 0 else margins[label]


def exact(number):
    """A number as the decimal fraction it is written as: 0.1 is 1/10, not the nearest double."""
    return Fraction(str(float(number)))


def whole_part(number, count):
    """`floor(number * count)` in exact arithmetic."""
    return math.floor(exact(number) * count)


def sigmoid(logits):
    """`1 / (1 + exp(-z))`, from the side that does not overflow."""
    return np.exp(-np.logaddexp(0.0, -float64(logits)))


def log_softmax(logits):
    """`s - log sum exp(s)` along the last axis."""
    logits = float64(logits)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def finite_difference_gradient(function, x, step):
    """Central differences of the sum of `function(x)` in every entry of `x`."""
    x = float64(x)
    gradient = np.zeros_like(x)
    for position in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[position] += step
        below[position] -= step
        gradient[position] = np.sum(function(above) - function(below)) / (2.0 * step)
    return gradient


def finite_difference_jacobian(function, x, step):
    """Central differences of each output of `function(x)`: the output's shape, then that of `x`."""
    x = float64(x)
    jacobian = np.zeros((*np.shape(function(x)), *x.shape))
    for position in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[position] += step
        below[position] -= step
        jacobian[(..., *position)] = (function(above) - function(below)) / (2.0 * step)
    return jacobian
