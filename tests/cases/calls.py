"""How a case and the reference of its name are called alike, with which arrays."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tests import reference
from tests.cases.case import Case, draw

NUM_EXAMPLES, NUM_CLASSES = 12, 8
BROKEN = 5
Arrays = dict[str, Any]


def drawn(case: Case) -> Arrays:
    """Numbers of the normal law."""
    return draw((NUM_EXAMPLES,), NUM_CLASSES)


def tied(case: Case) -> Arrays:
    """Multiples of 1/64, many of them equal."""
    rng, arrays = np.random.default_rng(3), drawn(case)
    counts = rng.multinomial(64, np.full(NUM_CLASSES, 1 / NUM_CLASSES), NUM_EXAMPLES)
    shares = counts.astype(np.float32) / 64
    logits = rng.integers(-2, 3, (2, *shares.shape)).astype(np.float32)
    return arrays | {
        "logits": logits[0],
        "others": logits[1],
        "probabilities": shares,
        "log_probabilities": np.log(np.maximum(shares, 1 / 64)),
        "outliers": rng.integers(0, 5, NUM_EXAMPLES).astype(np.float32) / 4,
    }


def with_nan(case: Case) -> Arrays:
    """One number of one example of the first array is NaN."""
    arrays = tied(case)
    array = _first(case, arrays)
    array[(BROKEN, 1)[: array.ndim]] = np.nan
    return arrays


def out_of_range(case: Case) -> Arrays:
    """Labels, and groups, below and above their range."""
    arrays = tied(case)
    for name in ("labels", "groups"):
        arrays[name][[1, 7]] = -1, NUM_CLASSES
    return arrays


def left_out(case: Case) -> Arrays:
    """Some examples do not count, and are what padding and a broken network give."""
    arrays = tied(case)
    counts = arrays["counts"] = np.arange(NUM_EXAMPLES) % 3 != 1
    first = _first(case, arrays)
    if first.dtype.kind == "f":
        first[~counts] = np.nan
    arrays["labels"][~counts] = -100
    return arrays


def variations(case: Case) -> list[Callable[[Case], Arrays]]:
    """The arrays that make a difference to the case."""
    found: list[Callable[[Case], Arrays]] = [drawn, tied]
    names = {*case.arrays.values()}
    if names and _first(case, drawn(case)).dtype.kind == "f":
        found.append(with_nan)
    if names & {"labels", "groups"}:
        found.append(out_of_range)
    if case.takes("where") and "where" not in case.arrays:
        found.append(left_out)
    return found


def _first(case: Case, arrays: Arrays) -> np.ndarray:
    found: np.ndarray = arrays[next(iter(case.arrays.values()))]
    return found


def arguments(case: Case, arrays: Arrays) -> Arrays:
    """The arrays by the names of the arguments."""
    where = {"where": "counts"} if "counts" in arrays else {}
    return {argument: arrays[name] for argument, name in {**case.arrays, **where}.items()}


def referred(case: Case, parameters: Arrays | None = None) -> Callable[..., Any]:
    """The reference of the case's name. It gets no function of ours, but its own of that name.

    Args:
        case: the case.
        parameters: by default, those of the case.
    """
    room = reference.heads if case.public.startswith("heads.") else reference
    given = case.resolved(NUM_CLASSES) if parameters is None else parameters
    own = {name: _own(value) for name, value in given.items()}
    return functools.partial(getattr(room, case.public.partition(".")[2]), **own)


def _own(value: Any) -> Any:
    if isinstance(value, functools.partial):
        return functools.partial(_own(value.func), **value.keywords)
    return getattr(reference, value.__name__) if inspect.isfunction(value) else value


def readings(tree: Any) -> list[np.ndarray]:
    """The numbers of a result; of a tally those that it says."""
    if not hasattr(tree, "macro_mean"):
        leaves = jax.tree.leaves(tree)
    else:
        leaves = [tree.total, tree.count, tree.mean()]
        if np.ndim(tree.count):
            leaves += [tree.macro_mean(), tree.macro_mean(np.arange(np.size(tree.count)) % 3 > 0)]
    return [np.asarray(leaf, np.float64) for leaf in leaves]


def assert_equal(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Relative to the numbers, and to a fifth of 1."""
    for one, other in zip(readings(ours), readings(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 5)
