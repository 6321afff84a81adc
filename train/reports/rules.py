"""The rules of the program: a rule of the library for the classes of a classifier.

The text of a rule is what flags, lines, reports and descriptions of programs have:
`coverage=0.9, rule=aps`. To the texts of `topk_jax.rules`, the program adds how the scores of the
examples of an observation become one, `combine=…`, and tables of costs.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topk_jax import rules
from train.data.classes import Classes
from train.data.taxonomy import HOW_TO_GIVE, ClassTree
from train.foundation import kinds
from train.foundation.errors import UserError
from train.reports import costs as costs_of
from train.reports.costs import Costs
from train.scores.observations import COMBINATIONS, Combination, combine
from train.scores.scores import Scores

_COMBINE = re.compile(r",\s*combine=([^,]*)")


@dataclass(frozen=True, eq=False)
class SetRule:
    """A rule that turns the scores of a classifier into sets.

    Attributes:
        rule: the rule of the library.
        classes: the classes of the classifier; None before `fit`.
        combination: how the examples of an observation are combined; None for single examples.
        costs: the costs of a risk; None for other rules, and if their table is not here.
    """

    rule: rules.Rule
    classes: Classes | None = None
    combination: Combination | None = None
    costs: Costs | None = None

    def __str__(self) -> str:
        combined = "" if self.combination is None else f", combine={self.combination.name}"
        return f"{self.rule}{combined}"

    @property
    def name(self) -> str:
        """The kind of the rule, as "coverage"."""
        return self.rule.name

    @property
    def value(self) -> float | str:
        """The K, the coverage, the error or the risk; the name of the utility."""
        return self.rule.value

    @property
    def tree(self) -> ClassTree | None:
        """What is above the classes; None if the sets have no names."""
        return self.classes.tree if self.classes is not None and self.rule.has_names else None

    @property
    def says_new(self) -> bool:
        """Whether a set can say "none of these"."""
        return self.rule.says_new

    @property
    def needs_limits(self) -> bool:
        """Whether anything is calibrated: limits, or the weights of a trained combination."""
        has_weights = self.combination is not None and self.combination.name == "trained"
        return self.rule.needs_limits or has_weights

    @property
    def calibrated_on(self) -> rules.CalibratedOn | None:
        """What the limits come from; None without limits."""
        return self.rule.calibrated_on

    @property
    def in_words(self) -> str:
        """Sentences that explain which classes are in a set, and what is promised."""
        named = {}
        if self.tree is not None:
            *_, above, own = self.tree.ranks
            named["names"] = f"a {own}, or all of a part of the taxonomy, such as a {above}"
        words = self.rule.describe(**named)
        if self.combination is None:
            return words
        combined = COMBINATIONS[self.combination.name]
        return f"Each set is the answer for all examples of an observation, by {combined}. {words}"

    def fit(self, scores: Scores, on: str) -> "SetRule":
        """The rule with limits for calibration examples; those of unknown classes do not count.

        With a combination, the limits are for the observations of the examples.

        Args:
            scores: the scores of the examples.
            on: these in words.

        Raises:
            UserError: they are too few, or the rule needs something that is not there.
        """
        combination = self.combination
        if combination is not None and self.needs_limits:
            if scores.groups is None:
                raise UserError(f"{self}: the examples to calibrate on must have groups")
            combination, scores = _observations(scores, combination)
        if self.says_new and scores.outliers is None:
            raise UserError(f"{self}: new_score needs a network, by --workdir or --weights")
        if not scores.known.all():
            scores = scores.of_known()
        labels, shares = scores.labels_and_shares()
        taxonomy, costs = self._tree_for(scores.classes), self._costs_for(scores.classes)
        own = None if self.rule.costs in rules.COSTS else costs
        try:
            rule = rules.fit(
                self.rule,
                scores.values,
                labels,
                shares=shares,
                groups=None if scores.numbered_groups is None else scores.numbered_groups[1],
                class_counts=scores.classes.counts,
                taxonomy=taxonomy,
                # The library has those of a name by itself.
                costs=None if own is None else own.of_labels,
                similar=None if own is None else own.between,
                outliers=scores.outliers if self.says_new else None,
                on=on,
            )
        except ValueError as error:
            raise UserError(f"{self}: {error}") from error
        return SetRule(rule, scores.classes, combination, costs)

    def answer(self, values: Any, outliers: Any = None) -> rules.Answer:
        """The sets of scores [n, L], of examples or observations; see `topk_jax.rules.Rule`."""
        return self.rule.answer(values, outliers)

    def to_json(self) -> dict[str, Any]:
        """The rule as files have it."""
        weights = None if self.combination is None else self.combination.weights
        return {
            **self.rule.to_json(),
            "rule": str(self),
            "in_words": self.in_words,
            **({} if weights is None else {"weights": list(weights)}),
            **({} if self._digest is None else {"made_for": self._digest}),
        }

    @property
    def _digest(self) -> str | None:
        """A hash of what the limits are for beside the classes: the taxonomy, or the costs."""
        parts = [None if self.tree is None else self.tree.digest]
        parts.append(None if self.costs is None else self.costs.digest)
        return "-".join(filter(None, parts)) or None

    def _costs_for(self, classes: Classes) -> Costs | None:
        return None if self.rule.costs is None else costs_of.named(self.rule.costs, classes)

    def _tree_for(self, classes: Classes) -> Any:
        if not self.rule.has_names and self.rule.costs != "taxonomy":
            return None
        if classes.tree is None:
            raise UserError(
                f"{self}: it needs a taxonomy of the classes: give --taxonomy, {HOW_TO_GIVE}"
            )
        return classes.tree.taxonomy


@functools.lru_cache(maxsize=1)
def _observations(scores: Scores, combination: Combination) -> tuple[Combination, Scores]:
    """The combination with its weights, and the observations of examples; of several rules."""
    combination = combination.fit(scores)
    return combination, combine(scores, combination).scores


def parse(text: str, flag: str = "--sets") -> SetRule:
    """The rule of a text, such as `coverage=0.9, rule=aps`.

    Args:
        text: the text.
        flag: the flag that has it.

    Raises:
        UserError: there is no such rule.
    """
    found = _COMBINE.search(text)
    name = None if found is None else found[1].strip()
    if name is not None and (wrong := kinds.wrong(name, kinds.one_of(COMBINATIONS))):
        raise UserError(field=f"{flag}={text}: combine", must_be=wrong, got=name)
    try:
        rule = rules.parse(_COMBINE.sub("", text, count=1))
    except ValueError as error:
        raise UserError(f"{flag}={text}: {error}") from error
    return SetRule(rule, combination=None if name is None else Combination(name))


def from_json(plain: Mapping[str, Any], classes: Classes) -> SetRule:
    """The rule from the result of `SetRule.to_json`.

    Args:
        plain: the result.
        classes: the classes of the classifier.

    Raises:
        ValueError: it is not one, or is for another taxonomy or other costs.
    """
    try:
        found = parse(plain["rule"])
        combination, weights = found.combination, plain.get("weights")
        if combination is not None and weights is not None:
            one, doubling = map(float, weights)
            combination = replace(combination, weights=(one, doubling))
        taxonomy = found._tree_for(classes)
        rule = rules.from_json({**plain, "rule": str(found.rule)}, taxonomy=taxonomy)
    except (KeyError, TypeError) as error:
        raise ValueError(f"a rule must have the fields of one: {error!r}") from error
    # The table of costs may be on another machine; sets do not need it.
    is_here = rule.costs in (None, *rules.COSTS) or Path(str(rule.costs)).is_file()
    costs = found._costs_for(classes) if is_here else None
    read = SetRule(rule, classes, combination, costs)
    if is_here and read._digest != plain.get("made_for"):
        raise ValueError(f"the limits of {read} are for another taxonomy or other costs")
    return read
