"""The calibration of rules on examples with labels."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from topk_jax import sets
from topk_jax.rules import _risk
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._numbers import error_of
from topk_jax.rules._promise import CalibratedOn, TooFewError, fewest_examples
from topk_jax.rules._reading import parse
from topk_jax.rules._rule import Rule
from topk_jax.taxonomy import Taxonomy

# How far the shares of an example may be from a sum of 1.
_ROUNDING = 1e-4
# The kinds of NumPy's types in words.
_NUMBERS = {"iu": "integer", "iuf": "numbers"}


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
        scores: floating-point, `[n, L]`, such as probabilities. NumPy arrays and memory maps are
            read in chunks.
        labels: integer classes, `[n]`; with `shares` the classes that the truth of each example is
            made of, `[n, m]`, the most likely one first.
        shares: the share of each of these classes, such as its votes, `[n, m]`: at least 0, with
            sum 1. Places that an example does not need have 0.
        groups: what each example belongs to, if examples of a group are alike, `[n]`. They are only
            counted, for `CalibratedOn`.
        class_counts: the training examples of each class, `[L]`, for the conformal rule "pas" and
            the costs "macro".
        taxonomy: what is above the classes, for rules with names and the costs "taxonomy".
        costs: for a risk whose costs have another name than "missed", "macro" and "taxonomy": what
            a set costs without the label, by label, `[L]`.
        similar: beside `costs`: what a set costs at most, by label and by a class in the set,
            `[L, L]`; 0 for the label itself. By default no class is similar to another one.
        outliers: how unusual each example is, `[n]`, for a rule with a `new_score`.
        on: what the examples are, in words.

    Returns:
        The rule with its limits, for `Rule.__call__`.

    Raises:
        TypeError: the scores are not floating-point, the labels are not integer, or `taxonomy` is
            not a `Taxonomy`.
        ValueError: a shape does not match, or the scores are not what the rule needs. Its subclass
            `TooFewError`: the examples are too few for what is to be promised.

    Example:
        >>> import numpy as np
        >>> from topk_jax import rules
        >>> probabilities = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.125, 0.875]])
        >>> rule = rules.fit("coverage=0.75", probabilities, np.array([0, 1, 1, 1]))
        >>> print(rule.limits, rule(np.array([[0.5, 0.5], [0.75, 0.25]])))
        0.5 [[ True  True]
         [ True False]]

    See Also:
        `parse`, `from_json`.

    Source: the functions of `topk_jax.sets` that it calls.
    """
    rule = parse(rule) if isinstance(rule, str) else rule
    by_class = {"class_counts": class_counts, "costs": costs, "similar": similar}
    examples = _examples(scores, labels, shares, taxonomy, **by_class)
    number = len(examples)
    if costs is not None and (rule.costs is None or rule.costs in _risk.NAMED):
        raise ValueError(
            "costs go with a risk whose costs have another name than "
            f"{', '.join(_risk.NAMED)}, as risk=0.1, costs=mine; got {rule}"
        )
    if similar is not None and costs is None:
        raise ValueError("similar must be given with costs, got only similar.")
    if rule.has_names and taxonomy is None:
        raise ValueError(f"{rule} needs a taxonomy of the classes")
    rule.check(examples)
    rule = rule.with_numbers(
        known_to=None,
        new_from=None,
        class_counts=examples.class_counts if rule.conformal == "pas" else None,
        taxonomy=taxonomy if rule.has_names else None,
    )
    if rule.says_new:
        known_to, new_from = _limits_of_outliers(rule, examples, outliers)
        rule = rule.with_numbers(known_to=known_to, new_from=new_from)
    if not rule.needs_limits:
        return rule
    limits = np.asarray(rule.find_limits(examples))
    if np.isnan(limits).any():
        raise ValueError("scores must not have NaN, got some")
    independent = float(number)
    if groups is not None:
        # A mean over examples of larger and smaller groups varies like one over fewer groups: Kish
        # (1965), "Survey sampling".
        if np.shape(groups) != (number,):
            raise ValueError(f"groups must have the shape {(number,)}, got {np.shape(groups)}.")
        _, sizes = np.unique(np.asarray(groups), return_counts=True)
        independent = float(number**2 / np.square(sizes.astype(np.float64)).sum())
    return rule.with_numbers(limits=limits, calibrated_on=CalibratedOn(number, independent, on))


def _examples(
    scores: ArrayLike,
    labels: ArrayLike,
    shares: ArrayLike | None,
    taxonomy: Taxonomy | None,
    **by_class: ArrayLike | None,
) -> Calibration:
    """The arguments of `fit`, or an error that names the one that is wrong."""
    values = np.asarray(scores)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise TypeError(f"scores must be floating-point, got {values.dtype}.")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"scores must have the shape [n, L], got {values.shape}.")
    number, num_classes = values.shape
    if shares is None:
        parts, classes = None, _array(labels, "labels", (number,), "iu")[:, None]
    else:
        parts = _array(shares, "shares", (number, *np.shape(shares)[1:2]))
        classes = _array(labels, "labels", parts.shape, "iu")
        if not (np.abs(parts.sum(axis=1, dtype=np.float64) - 1) <= _ROUNDING).all():
            raise ValueError("shares must have a sum of 1 for each example.")
        # Places without a share have any class.
        first = np.take_along_axis(classes, (parts > 0).argmax(axis=1)[:, None], axis=1)
        classes = np.where(parts > 0, classes, first)
    if wrong := {int(one) for one in (classes.min(), classes.max())} - {*range(num_classes)}:
        raise ValueError(f"labels must be from 0 to {num_classes - 1}, got {wrong.pop()}.")
    if taxonomy is not None and not isinstance(taxonomy, Taxonomy):
        raise TypeError(f"taxonomy must be a Taxonomy, got {type(taxonomy).__name__}.")
    if taxonomy is not None and taxonomy.num_classes != num_classes:
        raise ValueError(
            f"taxonomy must have the {num_classes} classes of the scores, got "
            f"{taxonomy.num_classes}."
        )
    arrays = {
        name: _array(given, name, (num_classes,) * (2 if name == "similar" else 1))
        for name, given in by_class.items()
        if given is not None
    }
    return Calibration(scores=values, classes=classes, shares=parts, taxonomy=taxonomy, **arrays)


def _limits_of_outliers(
    rule: Rule, examples: Calibration, outliers: ArrayLike | None
) -> tuple[float, float]:
    """The outlier scores up to which an example may be known, and from which on it may be new."""
    number, error = len(examples), error_of(float(rule.value)) / 4
    if outliers is None:
        raise ValueError(f"{rule} needs outliers, the outlier score of each example")
    values = np.asarray(outliers)
    if values.shape != (number,):
        raise ValueError(f"outliers must have the shape {(number,)}, got {values.shape}.")
    if number < (fewest := fewest_examples(error)):
        whole = error_of(float(rule.value))
        raise TooFewError(
            f"'none of these' with a coverage of {rule.value} needs at least 4 / {whole} - 1 = "
            f"{fewest} examples to calibrate on; there are {number}"
        )
    # The scores have a single class: their quantile is that of all examples.
    only_class, each = np.zeros(number, np.int32), float(error)
    known_to = float(sets.conformal_quantile(values, only_class, error=each))
    once = np.bincount(examples.labels)[examples.labels] == 1
    new_from = float(sets.new_class_threshold(values, once, error=each))
    if np.isnan([known_to, new_from]).any():
        raise ValueError("outliers must not have NaN, got some")
    return known_to, new_from


def _array(given: ArrayLike, name: str, shape: tuple[int, ...], kinds: str = "iuf") -> np.ndarray:
    """An argument as an array of a shape, of numbers of these kinds from 0 on."""
    array = np.asarray(given)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {_NUMBERS[kinds]}, got {array.dtype}.")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {array.shape}.")
    if array.size and not array.min() >= 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}.")
    return array
