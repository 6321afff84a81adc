"""Functions of examples, lowered to ONNX and run in ONNX Runtime, beside themselves in JAX."""

import jax
import numpy as np

from train.classifiers import onnx_runtime
from train.package.onnx import lowering

# Sums of a few numbers, in another order or with other instructions, in units of the largest.
ROUNDING = 2e-6


def lowered(function, examples):
    """The function in ONNX Runtime, of any number of examples [n, ...]."""
    outputs = jax.eval_shape(lambda array: as_tuple(function(array)), examples)
    names = [f"output {number}" for number in range(len(outputs))]
    content = lowering.make(
        lambda array: as_tuple(function(array)),
        "examples",
        examples.shape[1:],
        examples.dtype,
        names,
        {},
    )
    return onnx_runtime.load(content)


def check(function, examples, bound=ROUNDING):
    """All examples, and the first alone, in ONNX Runtime and in JAX."""
    call = lowered(function, examples)
    expected = [np.asarray(one) for one in as_tuple(jax.jit(function)(examples))]
    for rows in (slice(None), slice(0, 1)):
        for found, wanted in zip(call(examples[rows]), expected, strict=True):
            assert found.dtype == wanted.dtype
            if wanted.dtype != np.float32:
                np.testing.assert_array_equal(found, wanted[rows])
                continue
            finite = wanted[np.isfinite(wanted)]
            largest = np.abs(finite).max(initial=1)
            np.testing.assert_allclose(found, wanted[rows], rtol=0, atol=bound * largest)


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)
