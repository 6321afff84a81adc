"""Evaluates what the flags name: scores, the limits of rules, the report, its files."""

import itertools
from collections.abc import Sequence
from typing import Any

from topk_jax import rules as kinds
from train.classifiers.trained import TrainedClassifier
from train.evaluating import best_possible, limits, outputs
from train.evaluating import source as sources
from train.evaluating.asked import Asked, Outputs
from train.evaluating.limits import Limits
from train.evaluating.source import Source
from train.foundation.errors import UserError
from train.reports import report
from train.reports import rules as set_rules
from train.reports.rules import SetRule

_USUAL_KS = (1, 3, 5)


def evaluate(asked: Asked, files: Outputs) -> None:
    """Evaluates what is asked for, shows the report and writes the files.

    Raises:
        UserError: a flag, or a file that one names, is not what it may be.
    """
    given = [set_rules.parse(text) for text in asked.sets]
    source = sources.find(asked, _new_score(given))
    rules = given or _usual(asked, source)
    found = limits.find(
        asked.calibration, source.scores, source.classifier, rules, is_optional=not given
    )
    if not given:
        rules = _possible(rules, found)
    of_report = report.report(
        found.scores,
        None,
        list(dict.fromkeys(map(str, rules))),
        on=found.on,
        fitted=found.rules,
        is_optional=not given,
        full=asked.full,
    )
    if asked.scores is None and asked.data is None:
        of_report |= _best_possible(source, found, rules, asked.split)
    outputs.write(source, source.about | of_report, found, files, full=asked.full)


def _new_score(rules: Sequence[SetRule]) -> str | None:
    """The outlier score of rules that say "none of these"."""
    names = {name for rule in rules if (name := rule.rule.new_score) is not None}
    if len(names) > 1:
        must_be = "one score in all rules of a command"
        raise UserError(field="new_score of --sets", must_be=must_be, got=", ".join(sorted(names)))
    return next(iter(names), None)


def _usual(asked: Asked, source: Source) -> list[SetRule]:
    """The rules of a command that names none; with --full all conformal rules at each coverage."""
    classifier, num_classes = source.classifier, len(source.scores.classes)
    ks = classifier.config.eval.ks if isinstance(classifier, TrainedClassifier) else _USUAL_KS
    texts = report.usual([k for k in ks if k <= num_classes])
    if asked.full:
        pairs = itertools.product(report.USUAL_COVERAGES, kinds.CONFORMAL)
        texts += [f"coverage={coverage}, rule={kind}" for coverage, kind in pairs]
    own = None if classifier is None else classifier.own_rule
    parsed = map(set_rules.parse, texts)
    # A program has no examples to fit other limits on, unless some are given.
    if own is not None:
        return [own, *(rule for rule in parsed if asked.calibration or not rule.needs_limits)]
    return list(parsed)


def _possible(rules: Sequence[SetRule], found: Limits) -> list[SetRule]:
    """The usual rules that have limits or need none, and others that a file has limits of."""
    kept = [rule for rule in rules if str(rule) in found.rules or not rule.needs_limits]
    texts = {*map(str, kept)}
    return kept + [
        rule
        for text, rule in found.rules.items()
        if text not in texts and rule.combination is None and not rule.says_new
    ]


def _best_possible(
    source: Source, found: Limits, rules: Sequence[SetRule], split: str
) -> dict[str, Any]:
    """What the best possible classifier reaches on a split of data whose distribution is known."""
    classifier, examples, indices = source.classifier, source.examples, found.scores.indices
    assert isinstance(classifier, TrainedClassifier)
    law = classifier.spec.true_distribution
    if law is None or examples is None or indices is None:
        return {}
    calibrating = classifier.load_dataset().validation
    if found.calibrating is not None and found.calibrating.indices is not None:
        calibrating = examples.take(found.calibrating.indices)
    is_balanced = split == "balanced_test"
    evaluated = examples.take(indices)
    best = best_possible.rows(
        law, evaluated, calibrating, classifier.classes, rules, is_balanced=is_balanced
    )
    return {"best_possible": best}
