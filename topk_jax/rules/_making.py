"""Rules from texts, by calibration, and from files."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import _checks, sets
from topk_jax import taxonomy as trees
from topk_jax.rules._calibration import CalibratedOn, Calibration, TooFewError
from topk_jax.rules._conformal import CONFORMAL
from topk_jax.rules._kinds import COSTS
from topk_jax.rules._rule import KINDS, LEAVES, SIZE, Rule, error_of, number_of
from topk_jax.taxonomy import Taxonomy

__all__ = ["fit", "from_json", "parse"]

# What may follow a rule, and the kinds that it goes with; None for all.
_MODIFIERS = {"rule": "coverage", "costs": "risk", "max_names": None, "new_score": "coverage"}


def parse(text: str) -> Rule:
    r"""The rule of a text, such as `coverage=0.9, rule=aps, max_names=2`; not calibrated.

    Args:
        text: `KIND=VALUE`, where KIND is one of `KINDS`, or a conformal rule, which is short for a
            coverage: `aps=0.9`. It may have `rule=` (one of `CONFORMAL`) and `new_score=` after a
            coverage, `costs=` after a risk, and `max_names=` after all of them.

    Returns:
        The rule. Its text is the long form of this one.

    Example:
        >>> print(parse("aps=0.9, max_names=2"))
        coverage=0.9, rule=aps, max_names=2
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {_checks.describe(text)}.")
    first, *rest = re.split(r",\s*(?=[a-z_]+=)", text.strip())
    name, is_pair, value = first.partition("=")
    if name in CONFORMAL:
        name, rest = "coverage", [f"rule={name}", *rest]
    if name not in KINDS or not is_pair:
        raise ValueError(f"a rule must start with one of {'=…, '.join(KINDS)}=…; got {text!r}")
    given = dict(part.split("=", 1) for part in rest)
    allowed = [one for one, goes_with in _MODIFIERS.items() if goes_with in (None, name)]
    if len(given) < len(rest) or not {*given} <= {*allowed} or "" in given.values():
        raise ValueError(
            f"{name} may be followed by {'=…, '.join(allowed)}=…, each once; got {text!r}"
        )
    conformal = given.get("rule", "lac") if name == "coverage" else None
    if conformal is not None and conformal not in CONFORMAL:
        raise ValueError(f"rule must be one of {', '.join(CONFORMAL)}; got {conformal!r}")
    names = given.get("max_names")
    if names is not None and conformal == "taxonomic":
        raise ValueError("max_names cannot follow rule=taxonomic, whose sets have one name each")
    return KINDS[name](
        value=KINDS[name].read_value(value),
        conformal=conformal,
        costs=given.get("costs", "missed") if name == "risk" else None,
        max_names=None if names is None else int(number_of("max_names", names, SIZE)),
        new_score=given.get("new_score"),
    )


def fit(
    rule: str | Rule,
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    shares: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    class_counts: ArrayLike | None = None,
    taxonomy: Taxonomy | None = None,
    costs: ArrayLike | None = None,
    similar: ArrayLike | None = None,
    outliers: ArrayLike | None = None,
    on: str = "the calibration examples",
) -> Rule:
    r"""The rule with limits that are calibrated on examples with labels.

    With n examples, conformal scores :math:`s_i` of their labels and a coverage
    :math:`1 - \varepsilon`, the limit is

    .. math:: \hat q = s_{(r)}, \qquad r = \lceil (n + 1) (1 - \varepsilon) \rceil,

    and the label of a new example that is exchangeable with these is in its set with a probability
    of at least :math:`1 - \varepsilon`. `Rule.in_words` says what another rule promises. With
    "none of these", half of the error is for the classes, and a quarter for each limit of the
    outlier scores. It runs on the host.

    Args:
        rule: a rule, or its text; see `parse`.
        scores: floating-point, `[n, L]`, such as probabilities; memory maps are read in chunks.
        labels: integer classes, `[n]`; with `shares` the classes that the truth of each example is
            made of, `[n, m]`, the most likely one first.
        shares: the part of each of these, as of votes, `[n, m]`, with sum 1; 0 in unused places.
        groups: what each example belongs to, if those of a group are alike, `[n]`: only counted.
        class_counts: the training examples of each class, `[L]`, for "pas" and the costs "macro".
        taxonomy: what is above the classes, for rules with names and the costs "taxonomy".
        costs: what a set costs without the label, by label, `[L]`, for costs that are not `COSTS`.
        similar: beside `costs`: what a set costs at most, by label and by a class in the set,
            `[L, L]`; 0 for the label itself. By default no class is similar to another one.
        outliers: how unusual each example is, `[n]`, for a rule with a `new_score`.
        on: what the examples are, in words.

    Returns:
        The rule with its limits.

    Example:
        >>> probabilities = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.125, 0.875]])
        >>> rule = fit("coverage=0.75", probabilities, np.array([0, 1, 1, 1]))
        >>> print(rule.limits, rule(np.array([0.75, 0.25])))
        0.5 [ True False]

    Source: the functions of `topk_jax.sets` that it calls.
    """
    rule = rule if isinstance(rule, Rule) else parse(rule)
    if (costs is not None or similar is not None) and rule.costs in (None, *COSTS):
        raise ValueError(
            "costs must be given only for a risk whose costs have a name of their own, as "
            f"risk=0.1, costs=mine; got {rule}"
        )
    examples = _examples(
        scores,
        taxonomy,
        shares=shares,
        labels=labels,
        groups=groups,
        outliers=outliers,
        class_counts=class_counts,
        costs=costs,
        similar=similar,
    )
    number = len(examples)
    if rule.needs_distribution:
        examples.check_distributions()
    limits = rule.find_limits(examples) if rule.needs_limits else None
    if limits is None:
        # It refuses too few classes.
        rule.choose(jnp.asarray(examples.scores[0]))
    elif jnp.isposinf(limits).all():
        raise TooFewError(
            f"the {number:,} examples to calibrate on are too few or too often wrong for any limit"
        )
    known_to, new_from = _limits_of_outliers(rule, examples) if rule.says_new else (None, None)
    return _with(
        rule,
        limits=limits,
        known_to=known_to,
        new_from=new_from,
        class_counts=examples.class_counts if rule.conformal == "pas" else None,
        taxonomy=examples.given("taxonomy") if rule.has_names else None,
        calibrated_on=CalibratedOn.of(number, groups, on) if rule.needs_limits else None,
    )


def from_json(plain: Mapping[str, Any], *, taxonomy: Taxonomy | None = None) -> Rule:
    """The rule that `Rule.to_json` has written; a taxonomy is for sets with names.

    Example:
        >>> print(from_json(parse("utility=u65").to_json()))
        utility=u65
    """
    try:
        rule, on = parse(plain["rule"]), plain["calibrated_on"]
        rule = _with(
            rule,
            **{name: plain[name] for name in LEAVES},
            calibrated_on=None if on is None else CalibratedOn(**on),
            taxonomy=taxonomy if rule.has_names else None,
        )
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"the rule is damaged: {error!r}") from error
    if not rule.is_fitted:
        raise ValueError(f"the rule is damaged, or needs a taxonomy of the classes: {rule}")
    return rule


def _with(rule: Rule, **changes: Any) -> Rule:
    """The rule with other fields, numbers in the type that JAX computes with, without NaN."""
    dtype = jnp.result_type(float)
    numbers = {
        name: np.asarray(changes[name], dtype) for name in LEAVES if changes[name] is not None
    }
    if any(np.isnan(array).any() for array in numbers.values()):
        raise ValueError("scores, outliers and limits must not have NaN, got some")
    return dataclasses.replace(rule, **changes | numbers)


def _examples(
    scores: ArrayLike, taxonomy: Taxonomy | None, **given: ArrayLike | None
) -> Calibration:
    """The arguments of `fit`, or an error that names the one that is wrong."""
    values = _checks.concrete(scores, "scores")
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise TypeError(f"scores must be floating-point, got {values.dtype}.")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"scores must have the shape [n, L] without a 0, got {values.shape}.")
    number, num_classes = values.shape
    if taxonomy is not None:
        trees.check(taxonomy, num_classes)
    arrays = {name: _checks.concrete(one, name) for name, one in given.items() if one is not None}
    truth = (*arrays["shares"].shape, 1, 1)[1:2] if "shares" in arrays else ()
    shapes: dict[str, tuple[int, ...]] = {
        "shares": (number, *truth),
        "labels": (number, *truth),
        "class_counts": (num_classes,),
        "costs": (num_classes,),
        "similar": (num_classes, num_classes),
    }
    for name, array in arrays.items():
        if array.shape != (shape := shapes.get(name, (number,))):
            raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
        if name != "groups" and array.dtype.kind in "OSU":
            raise TypeError(f"{name} must be numbers, got {array.dtype}.")
        if name not in ("labels", "groups", "outliers"):
            right = (array >= 0) & (array < np.inf)
            _checks.refuse(right, array, name, "finite and at least 0")
    if "similar" in arrays:
        own = arrays["similar"].diagonal()
        _checks.refuse(own == 0, own, "similar", "0 for the label itself")
    labels, shares = arrays.pop("labels"), arrays.get("shares")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"labels must be integer, got {labels.dtype}.")
    classes = labels.reshape(number, -1)
    if shares is not None:
        _checks.sums_of_one(shares, "shares")
        # Places without a share have any class.
        first = np.take_along_axis(classes, (shares > 0).argmax(axis=1)[:, None], axis=1)
        classes = np.where(shares > 0, classes, first)
    are_classes = (classes >= 0) & (classes < num_classes)
    _checks.refuse(are_classes, classes, "labels", f"from 0 to {num_classes - 1}")
    arrays.pop("groups", None)
    return Calibration(scores=values, classes=classes, taxonomy=taxonomy, **arrays)


def _limits_of_outliers(rule: Rule, examples: Calibration) -> tuple[jax.Array, jax.Array]:
    """The outlier scores up to which an example may be known, and from which on it may be new."""
    values, error = examples.given("outliers"), error_of(rule.value) / 4
    examples.check_number(1 / error)
    each, labels = float(error), examples.labels
    known_to = sets.conformal_quantile(values, labels, error=each)
    once = np.bincount(labels)[labels] == 1
    return known_to, sets.new_class_threshold(values, once, error=each)
