"""Rules from texts and from files."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from topk_jax import _checks
from topk_jax.rules import _risk, _selective, _utility  # noqa: F401  # They register their kinds.
from topk_jax.rules._conformal import CONFORMAL
from topk_jax.rules._numbers import whole_number_of
from topk_jax.rules._promise import CalibratedOn
from topk_jax.rules._rule import KINDS, Rule
from topk_jax.taxonomy import Taxonomy

# What may follow a rule, and the kinds that it goes with; None for all.
_MODIFIERS = {"rule": "coverage", "costs": "risk", "max_names": None, "new_score": "coverage"}
# All kinds and conformal rules with what their sets are, for lists of rules.
IN_WORDS: dict[str, str] = {name: kind.words for name, kind in KINDS.items()} | {
    f"coverage, rule={name}": conformal.words for name, conformal in CONFORMAL.items()
}


def parse(text: str) -> Rule:
    r"""The rule of a text, such as `coverage=0.9, rule=aps, max_names=2`; not calibrated.

    A text is `KIND=VALUE`, where KIND is one of `KINDS`, or a conformal rule, which is short for a
    coverage: `aps=0.9`. It may have `rule=` (one of `CONFORMAL`) and `new_score=` after a coverage,
    `costs=` after a risk, and `max_names=` after all of them.

    Args:
        text: the text.

    Returns:
        The rule. Its text is this one, or the long form of it.

    Raises:
        TypeError: `text` is not a text.
        ValueError: there is no such rule; the message says what it may be.

    Example:
        >>> from topk_jax import rules
        >>> rule = rules.parse("aps=0.9, max_names=2")
        >>> print(rule, rule.needs_limits)
        coverage=0.9, rule=aps, max_names=2 True
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {_checks.describe(text)}.")
    first, *rest = re.split(r",\s*(?=[a-z_]+=)", text.strip())
    name, is_pair, value = first.partition("=")
    given = dict(part.split("=", 1) for part in rest)
    is_twice = len(given) < len(rest) or (name in CONFORMAL and "rule" in given)
    if name in CONFORMAL:
        name, given = "coverage", {**given, "rule": name}
    if name not in KINDS or not is_pair:
        raise ValueError(f"a rule must be one of {'=…, '.join(KINDS)}=…; got {text!r}")
    allowed = [one for one, goes_with in _MODIFIERS.items() if goes_with in (None, name)]
    if is_twice or not {*given} <= {*allowed}:
        raise ValueError(f"{name} may be followed by {'=…, '.join(allowed)}=…, once; got {text!r}")
    kind = KINDS[name]
    number = _read(kind.read_value, name, value)
    conformal = given.get("rule", "lac") if name == "coverage" else None
    if conformal is not None and conformal not in CONFORMAL:
        raise ValueError(f"rule must be one of {', '.join(CONFORMAL)}; got {conformal!r}")
    names = given.get("max_names")
    if names is not None and conformal == "taxonomic":
        raise ValueError("max_names cannot follow rule=taxonomic, whose sets have one name each")
    if "" in given.values():
        raise ValueError(f"what follows a rule must have a value; got {text!r}")
    return kind(
        value=number,
        conformal=conformal,
        costs=given.get("costs", "missed") if name == "risk" else None,
        max_names=None if names is None else _read(whole_number_of, "max_names", names),
        new_score=given.get("new_score"),
    )


def from_json(plain: Mapping[str, Any], *, taxonomy: Taxonomy | None = None) -> Rule:
    r"""The rule that `Rule.to_json` has written; its sets are the same.

    Args:
        plain: what a file has.
        taxonomy: what is above the classes, for a rule whose sets have names.

    Returns:
        The rule.

    Raises:
        ValueError: it is damaged, or its sets have names and there is no taxonomy.

    Example:
        >>> from topk_jax import rules
        >>> rule = rules.parse("utility=u65")
        >>> print(rules.from_json(rule.to_json()))
        utility=u65
    """
    try:
        rule = parse(plain["rule"])
        on = plain["calibrated_on"]
        rule = rule.with_numbers(
            limits=_array(plain["limits"]),
            known_to=_number(plain["known_to"]),
            new_from=_number(plain["new_from"]),
            class_counts=_array(plain["class_counts"]),
            calibrated_on=None if on is None else CalibratedOn(**on),
            taxonomy=taxonomy if rule.has_names else None,
        )
        of_rule = {
            "limits": rule.needs_limits,
            "known_to": rule.says_new,
            "new_from": rule.says_new,
            "class_counts": rule.conformal == "pas",
        }
        for name, needs in of_rule.items():
            if needs != (getattr(rule, name) is not None):
                raise ValueError(f"{rule} has {'no ' if needs else ''}{name}")
    except (TypeError, KeyError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"the rule is damaged: {reason}") from error
    if not rule.is_fitted:
        raise ValueError(f"{rule} needs a taxonomy of the classes")
    return rule


def _read(read: Callable[[str], Any], name: str, text: str) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name} must be {error}; got {text!r}") from None


def _number(plain: float | str | None) -> float | None:
    if plain is None:
        return None
    number = float(plain)
    if math.isnan(number):
        raise ValueError("a number is NaN")
    return number


def _array(plain: Any) -> np.ndarray | None:
    if plain is None:
        return None
    if isinstance(plain, list):
        return np.array([_number(one) for one in plain], np.float64)
    return np.asarray(_number(plain))
