"""Static arguments: ranks, sizes, rates, choices and the names of axes."""

import numbers
import operator
from collections.abc import Hashable, Set
from fractions import Fraction
from typing import Any

import jax
import numpy as np

__all__ = [
    "axis_index",
    "axis_size",
    "choice",
    "describe",
    "mean_set_size",
    "parameters_of_kind",
    "rank",
    "set_sizes",
    "static_boolean",
    "static_error",
    "static_integer",
    "static_positive",
]


def static_integer(
    number: Any, name: str, *, minimum: int, maximum: int | None = None, reason: str = ""
) -> int:
    """Returns a static integer, or raises if it is outside [minimum, maximum].

    Args:
        number: the user's argument, a Python or NumPy integer, never traced.
        name: the argument's name.
        minimum: the smallest allowed value.
        maximum: the largest allowed value; no limit if `None`.
        reason: the origin of the maximum, for the message.
    """
    value = _as_int(number, name)
    if value < minimum or (maximum is not None and value > maximum):
        allowed = f"at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        if maximum is not None and maximum < minimum:
            allowed = f"at least {minimum} and at most {maximum}, which is impossible"
        suffix = f" ({reason})" if reason else ""
        raise ValueError(f"{name} must be {allowed}{suffix}, got {value}.")
    return value


def rank(k: Any, maximum: int, *, reason: str = "the number of classes") -> int:
    """Returns the static rank or set size `k`, or raises if it is outside [1, maximum]."""
    return static_integer(k, "k", minimum=1, maximum=maximum, reason=reason)


def set_sizes(sizes: Any, name: str, num_classes: int) -> tuple[int, ...]:
    """Returns static set sizes from 1 to the number of classes, or raises for others or none."""
    try:
        given = tuple(sizes)
    except TypeError as error:
        raise TypeError(f"{name} must be a sequence of integers, got {sizes!r}.") from error
    if not given:
        raise ValueError(f"{name} must have at least one set size, got {sizes!r}.")
    return tuple(
        static_integer(size, name, minimum=1, maximum=num_classes, reason="the number of classes")
        for size in given
    )


def mean_set_size(k: Any, num_classes: int | None = None) -> Fraction:
    """Returns a static mean set size as an exact fraction, or raises if it is outside [1, L].

    The float 1.15 differs a little from the decimal 1.15, so 100 sets of that mean size could lose
    or gain a class by rounding. The fraction equals the shortest decimal for the float.
    """
    exact = _as_decimal(k, "k")
    if exact < 1 or (num_classes is not None and exact > num_classes):
        allowed = (
            "at least 1"
            if num_classes is None
            else f"from 1 to {num_classes} (the number of classes)"
        )
        raise ValueError(f"k must be {allowed}, got {k}.")
    return exact


def static_error(error: Any, *, below: Fraction = Fraction(1)) -> Fraction:
    """Returns a static error as an exact fraction, or raises if it is outside [0, `below`)."""
    exact = _as_decimal(error, "error")
    if not 0 <= exact < below:
        raise ValueError(f"error must be at least 0 and less than {float(below):g}, got {error}.")
    return exact


def static_positive(number: Any, name: str) -> Fraction:
    """Returns a static number as an exact fraction, or raises if it is not positive."""
    exact = _as_decimal(number, name)
    if exact <= 0:
        raise ValueError(f"{name} must be greater than 0, got {number}.")
    return exact


def _as_int(number: Any, name: str) -> int:
    if isinstance(number, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static integer, got a traced value: mark it static under jit."
        )
    if isinstance(number, bool | np.bool_):
        raise TypeError(f"{name} must be an integer, got {number}.")
    try:
        return operator.index(number)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {describe(number)}.") from error


def _as_decimal(number: Any, name: str) -> Fraction:
    if isinstance(number, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static number, got a traced value: mark it static under jit."
        )
    if isinstance(number, bool | np.bool_) or not isinstance(number, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {describe(number)}.")
    if not np.isfinite(float(number)):
        raise ValueError(f"{name} must be a finite number, got {number}.")
    return Fraction(str(number))


def axis_index(axis: Any, ndim: int) -> int:
    """Returns `axis` counted from the front, or raises if the array does not have it."""
    index = _as_int(axis, "axis")
    if not -ndim <= index < ndim:
        raise ValueError(f"axis must be from {-ndim} to {ndim - 1}, got {index}.")
    return index % ndim


def axis_size(axis_name: Hashable | None, name: str = "axis_name") -> int:
    """Returns the number of devices along a mapped axis, 1 for `None`; raises for other names."""
    if axis_name is None:
        return 1
    try:
        # JAX takes a list here, and refuses it later.
        hash(axis_name)
        return jax.lax.axis_size(axis_name)
    except (NameError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be None or the name of an axis that pmap, shard_map or vmap binds around "
            f"this call, got {axis_name!r}."
        ) from error


def static_boolean(given: Any, name: str) -> bool:
    """Returns a static boolean, or raises for anything else."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static boolean, got a traced value: mark it static under jit."
        )
    if not isinstance(given, bool | np.bool_):
        raise TypeError(f"{name} must be a boolean, got {given!r} of type {type(given).__name__}.")
    return bool(given)


def choice(given: Any, name: str, allowed: tuple[str, ...]) -> str:
    """Returns a static string, or raises if it is not one of those that are allowed."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} must be a static string, got a traced value: mark it static under jit."
        )
    if not isinstance(given, str) or given not in allowed:
        listed = ", ".join(map(repr, allowed[:-1])) + f" or {allowed[-1]!r}"
        got = repr(given) if isinstance(given, str) else describe(given)
        raise ValueError(f"{name} must be {listed}, got {got}.")
    return given


def parameters_of_kind(
    kind: str, parameters: dict[str, Any], *, needed: Set[str], possible: Set[str] = frozenset()
) -> dict[str, Any]:
    """Returns the parameters that were given, by name, or raises if the kind does not have them.

    Args:
        kind: the user's choice, for the message.
        parameters: the parameters of all kinds; `None` stands for one that was not given.
        needed: the names of those that the kind needs.
        possible: the names of others that it may have.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in sorted(needed - given.keys()):
        raise ValueError(f"{name} must be given for kind {kind!r}, got None.")
    for name in sorted(given.keys() - needed - possible):
        raise ValueError(f"{name} must be None for kind {kind!r}, got {describe(given[name])}.")
    return given


def describe(given: Any) -> str:
    """A short description of the user's argument on one line; of an array, its shape."""
    if isinstance(given, jax.Array | np.ndarray):
        return f"an array of shape {given.shape}"
    words = repr(given)
    kind = f"type {type(given).__name__}"
    return f"{words} of {kind}" if len(words) <= 60 and "\n" not in words else f"one of {kind}"
