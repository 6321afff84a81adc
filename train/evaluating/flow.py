"""Evaluates what the flags name: scores, the limits of rules, the report, its files."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from topk_jax import rules as kinds
from train.classifiers import fitted
from train.classifiers.trained import TrainedClassifier
from train.evaluating import outputs
from train.evaluating import source as sources
from train.evaluating.source import Asked, Source
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.reports import halving, report, table
from train.reports import rules as set_rules
from train.reports.rules import SetRule
from train.scores import files as score_files
from train.scores.scores import Scores

_USUAL_KS = (1, 3, 5)
# What results call the best possible classifier.
_BEST_OF = {"test": "bayes", "balanced_test": "bayes_balanced_test"}


def evaluate(asked: Asked, files: Mapping[str, Path]) -> None:
    """Evaluates what is asked for, shows the report and writes the files, by what they have.

    Raises:
        UserError: a flag, or a file that one names, is not what it may be.
    """
    given = [set_rules.parse(text) for text in asked.sets]
    source = sources.find(asked, _new_score(given))
    scores, rules = _fit(asked, source, given or _usual(asked, source))
    found = source.about | report.report(scores, rules, full=asked.full)
    # Of one half, another classifier may be the best.
    if asked.scores is None and asked.data is None and asked.calibration != "half":
        found |= _best_possible(source, rules, asked.split)
    # First, for the numbers are there whether files can be written or not.
    table.show(found, source.title, full=asked.full)
    outputs.write(files, found, source, scores, rules)


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
    rules = [set_rules.parse(text) for text in texts]
    if classifier is None or classifier.own_rule is None:
        return rules
    # A program has no examples to fit other limits on, unless some are given.
    others = (rule for rule in rules if asked.calibration or not rule.needs_limits)
    return [classifier.own_rule, *others]


def _fit(
    asked: Asked, source: Source, rules: Sequence[SetRule]
) -> tuple[Scores, dict[str, SetRule]]:
    """The examples that are evaluated, and the rules with the limits of --calibration.

    Rules that are not asked for are left out if they cannot be fitted.
    """
    scores, classifier, calibration = source.scores, source.classifier, asked.calibration or ""
    with_limits: Callable[[SetRule], SetRule]
    if calibration.endswith(".npz"):
        path = Path(calibration)
        calibrating = score_files.read(path, flag="--calibration")
        named = [path] if asked.scores is None else [path, asked.scores]
        _check_alike(calibrating, scores, are_named=all(map(score_files.has_class_names, named)))
        # They may have a taxonomy, or names.
        calibrating = dataclasses.replace(calibrating, classes=scores.classes)
        with_limits = partial(_on, calibrating, f"examples of {calibration}")
    elif calibration == "half":
        calibrating, scores = halving.divide(scores)
        with_limits = partial(_on, calibrating, "the examples kept for calibration")
    elif classifier is None:
        if calibration:
            raise UserError(f"--scores needs --calibration=half or FILE.npz; got {calibration}")
        with_limits = partial(_on, scores, "the same examples, so sets look better than they are")
    elif calibration.endswith(".json"):
        path = Path(calibration)
        with_limits = partial(fitted.find, classifier, calibration=path)
        if not asked.sets:
            # Rules of observations are found beside those of examples.
            kept = fitted.read(path, classifier).values()
            alone = [one for one in kept if one.combination is None and not one.says_new]
            rules = [*(one for one in rules if not one.needs_limits), *alone]
    elif classifier.own_rule is not None:
        with_limits = partial(_of_program, classifier.own_rule)
    else:
        with_limits = partial(fitted.find, classifier, calibration=None)
    return scores, report.fit(rules, scores, with_limits, is_optional=not asked.sets)


def _on(calibrating: Scores, on: str, rule: SetRule) -> SetRule:
    return rule.fit(calibrating, on if rule.combination is None else f"observations of {on}")


def _of_program(own: SetRule, rule: SetRule) -> SetRule:
    if str(rule) == str(own):
        return own
    raise UserError(
        f"{rule} needs --calibration=half or FILE.npz: a program has limits for its own "
        f"rule only, {own}"
    )


def _check_alike(others: Scores, given: Scores, *, are_named: bool) -> None:
    """Refuses scores to calibrate on that are of another kind, or of classes in another order."""
    if others.are_probabilities() != given.are_probabilities():
        raise UserError(
            "the scores to calibrate on and those to evaluate must both be probabilities that add "
            "up to 1 for each example, or neither"
        )
    names, given_names = others.classes.names, given.classes.names
    if len(names) == len(given_names) and not are_named:
        return
    for name, given_name in itertools.zip_longest(names, given_names, fillvalue=""):
        if same_form(name) != same_form(given_name):
            raise UserError(
                "--calibration must have the classes of the scores in the same order; it has "
                f"{shown(name)!r} in the place of {shown(given_name)!r}"
            )


def _best_possible(source: Source, rules: Iterable[str], split: str) -> dict[str, Any]:
    """The largest accuracies that are possible, which a run on data of a known law has found."""
    assert isinstance(source.classifier, TrainedClassifier)
    known = source.classifier.results.get(_BEST_OF.get(split, ""), {})
    names = {text: f"{text.replace('_k=', '_')}_accuracy" for text in rules}
    best = {
        text: {"coverage": known[name], "macro": known[f"macro_{name}"]}
        for text, name in names.items()
        if name in known
    }
    return {"best_possible": best} if best else {}
