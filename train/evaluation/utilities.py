"""Utilities of sets: what a set of each size is worth if it has the label.

Nothing is computed here: flags are checked without waiting for JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from train.foundation import fields

# The names that users give, with the kind of `topk_jax.sets.set_utilities` and its parameters.
_NAMED: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "precision": ("precision", {}),
    "f1": ("f_beta", {"beta": 1.0}),
    "u65": ("u65", {}),
    "u80": ("u80", {}),
}
# The kinds whose parameters are given, with these and what they may be.
_WITH_PARAMETERS: Mapping[str, Mapping[str, fields.Field]] = {
    "f_beta": {"beta": fields.Number(above=0)},
    "reject": {"alpha": fields.Number(at_least=0, at_most=1), "beta": fields.Number(above=0)},
}
_VALUE = fields.Number(at_least=0)
IN_WORDS = (
    f"{', '.join(_NAMED)}, f_beta=BETA, reject=ALPHA,BETA, or numbers between commas, as "
    "1,0.7,0.5: the worth of a set of 1, 2, 3 classes that has the label"
)


@dataclass(frozen=True)
class Utility:
    """A utility.

    Attributes:
        kind: the kind of `topk_jax.sets.set_utilities`; None for a free utility.
        parameters: the parameters of the kind.
        values: of a free utility, the worth of a set of 1, 2, … classes; larger sets are worth
            nothing.
    """

    kind: str | None
    parameters: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    values: tuple[float, ...] = ()


def wrong(text: str) -> str | None:
    """What a text must be instead of a utility; None if it is one."""
    try:
        named(text)
    except ValueError as error:
        return str(error)
    return None


def named(text: str) -> Utility:
    """The utility of a flag.

    Raises:
        ValueError: it is not one; the message is what it must be.
    """
    if text in _NAMED:
        return Utility(*_NAMED[text])
    kind, has_parameters, rest = text.partition("=")
    if has_parameters and kind in _WITH_PARAMETERS:
        allowed = _WITH_PARAMETERS[kind]
        given = _numbers(rest)
        if len(given) != len(allowed):
            raise ValueError(f"{kind}={','.join(allowed).upper()}, with numbers for these")
        for (name, may_be), value in zip(allowed.items(), given, strict=True):
            if must_be := may_be(value):
                raise ValueError(f"{kind} with {name.upper()} {must_be}")
        return Utility(kind, dict(zip(allowed, given, strict=True)))
    values = _numbers(text)
    if not values or any(map(_VALUE, values)) or not any(values):
        raise ValueError(f"one of {IN_WORDS}")
    return Utility(None, values=values)


def _numbers(text: str) -> tuple[float, ...]:
    """The numbers between commas; none if the text is something else."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        return ()
