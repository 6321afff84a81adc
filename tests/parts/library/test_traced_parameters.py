"""Traced parameters outside their range: the result is NaN, as a `ValueError` cannot be raised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.cases import CASES_WITH_HEADS
from tests.cases.case import draw

# An example of each class.
NUM_EXAMPLES = NUM_CLASSES = 8
# A step function of the logits.
WITHOUT_GRADIENT = {"losses.cardinality_costs"}


def first_with_each_parameter():
    """The cases, and which of their parameters have a range and are in no case before."""
    seen = set()
    for case in CASES_WITH_HEADS:
        ranged = case.ranges.keys() & (case.parameters.keys() | case.arrays.keys())
        if new := sorted(name for name in ranged if (case.public, name) not in seen):
            seen |= {(case.public, name) for name in new}
            yield pytest.param(case, new, id=f"{case.name}-{'-'.join(new)}")


def arrays():
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    alternating = np.arange(NUM_EXAMPLES) % 2 == 0
    return drawn | {"labels": np.arange(NUM_EXAMPLES, dtype=np.int32), "hits": alternating}


def is_marked(results):
    """Whether no number and no class of the results could be taken for a right one."""
    return all(
        not leaf.any() if leaf.dtype == bool else np.isnan(leaf).all()
        for leaf in map(np.asarray, jax.tree.leaves(results))
    )


@pytest.mark.parametrize(("case", "names"), [*first_with_each_parameter()])
def test_a_traced_parameter_out_of_its_range_gives_nan(case, names):
    drawn = arrays()
    given = {argument: drawn[name] for argument, name in case.arrays.items()}
    rest = given | case.resolved(NUM_CLASSES)
    right = {name: jnp.asarray(rest.pop(name)) for name in names}
    first = next(iter(given), None)
    has_gradient = case.slopes > 0 and case.public not in WITHOUT_GRADIENT

    @jax.jit
    def result_and_gradient(traced):
        if not has_gradient:
            return case.function(**rest, **traced), None

        def total(array):
            result = case.function(**rest | {first: array}, **traced)
            return result.sum(), result

        gradient, result = jax.grad(total, has_aux=True)(given[first])
        return result, gradient

    result, _ = result_and_gradient(right)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(result))
    assert not is_marked(result)
    for name in names:
        for value in case.ranges[name].wrong(NUM_CLASSES):
            traced = right | {name: jnp.asarray(value, right[name].dtype)}
            result, gradient = result_and_gradient(traced)
            assert is_marked(result), (name, value, result)
            if has_gradient:
                # A class that cannot be selected never has a derivative.
                marked = np.isnan(gradient).any(axis=-1)
                assert marked.all(), (name, value, gradient)
            with pytest.raises(ValueError, match=rf"\b{name}\b"):
                case.function(**rest, **right | {name: np.asarray(value)})
