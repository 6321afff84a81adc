"""The limits of rules by --calibration, and the examples that are evaluated with them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from train.classifiers import fitted
from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.evaluating.asked import HALF
from train.foundation.errors import UserError
from train.foundation.names import same_form, shown
from train.reports import halving, report
from train.reports.rules import SetRule
from train.scores import files as score_files
from train.scores import observations
from train.scores.observations import Combination
from train.scores.scores import Scores


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Rules with limits, and what is evaluated with them.

    Attributes:
        scores: the examples that are evaluated.
        rules: the rules by their texts, also those of observations.
        on: the examples that the limits are fitted on, in words.
        calibrating: the scores of these; None for limits that are kept.
    """

    scores: Scores
    rules: Mapping[str, SetRule]
    on: str
    calibrating: Scores | None = None


def find(
    calibration: str | Path | None,
    scores: Scores,
    classifier: Classifier | None,
    rules: Sequence[SetRule],
    *,
    is_optional: bool,
) -> Limits:
    """The limits of rules.

    Args:
        calibration: "validation", "half" or a file; None for the default.
        scores: the scores of the examples.
        classifier: what gave them; None for scores from a file.
        rules: the rules.
        is_optional: whether a rule that cannot be fitted is left out.

    Raises:
        UserError: a file does not have what it may have, or limits cannot be fitted.
    """
    texts = [*map(str, rules)]
    match calibration:
        case Path(suffix=".json") as path:
            assert classifier is not None
            wanted = [] if is_optional else rules
            return Limits(scores=scores, rules=_in_file(path, classifier, wanted), on=str(path))
        case Path() as path:
            calibrating, on = score_files.read(path, flag="--calibration"), f"examples of {path}"
            _check_classes(calibrating, scores)
            # They may have a taxonomy, or names.
            calibrating = dataclasses.replace(calibrating, classes=scores.classes)
        case str() if calibration == HALF:
            calibrating, scores = halving.divide(scores)
            on = "the other half of the examples"
        case _ if isinstance(classifier, TrainedClassifier):
            kept = _kept(classifier, scores, rules, is_optional=is_optional)
            return Limits(scores=scores, rules=kept, on="validation examples")
        case _ if classifier is None:
            calibrating, on = scores, "the same examples, so sets look better than they are"
        case _:
            own = {str(rule): rule for rule in rules if rule.is_fitted}
            for rule in rules:
                if rule.needs_limits and not rule.is_fitted:
                    raise UserError(
                        f"--sets={rule} needs --calibration=half or FILE.npz: a program has limits "
                        f"for its own rule only, {classifier.own_rule}"
                    )
            return Limits(scores=scores, rules=own, on="the examples of the program's limits")
    fitted_now = report.fit(scores, calibrating, texts, on=on, is_optional=is_optional)
    return Limits(scores=scores, rules=fitted_now, on=on, calibrating=calibrating)


def _kept(
    classifier: TrainedClassifier, scores: Scores, rules: Sequence[SetRule], *, is_optional: bool
) -> dict[str, SetRule]:
    """The rules that need limits with those of validation, which a run keeps.

    If examples have groups of several, also those of observations, as far as there can be some.
    """
    found, left_out = {}, {}

    def add(rule: SetRule, *, is_optional: bool) -> None:
        if rule.needs_limits:
            try:
                found[str(rule)] = fitted.fitted(classifier, rule)
            except UserError as error:
                reason = str(error).removeprefix(f"{rule}: ")
                if not is_optional:
                    raise UserError(f"{rule}: {reason}") from error
                left_out[str(rule)] = reason

    for rule in rules:
        add(rule, is_optional=is_optional)
    if observations.have_several(scores):
        for rule in rules:
            if rule.combination is None and not rule.says_new and str(rule) in found:
                add(dataclasses.replace(rule, combination=Combination()), is_optional=True)
    for reason in dict.fromkeys(left_out.values()):
        texts = [text for text, one in left_out.items() if one == reason]
        logging.warning("left out: %s: %s", "; ".join(texts), reason)
    return found


def _in_file(path: Path, classifier: Classifier, rules: Sequence[SetRule]) -> dict[str, SetRule]:
    """The rules that a file has limits of; those that are wanted are among them."""
    found = dict(fitted.read(path, classifier))
    for rule in rules:
        if rule.needs_limits and str(rule) not in found:
            has = "; ".join(found)
            raise UserError(f"--calibration {path} has no limits for {rule}; it has {has}")
    return found


def _check_classes(others: Scores, given: Scores) -> None:
    """Refuses scores to calibrate on that are of other classes, or of these in another order."""
    names, given_names = others.classes.names, given.classes.names
    if len(names) != len(given_names):
        raise UserError(
            f"--calibration must have the {len(given_names)} classes of the scores; it has "
            f"{len(names)}"
        )
    # A file without names has numbers.
    if tuple(map(str, range(len(names)))) in (names, given_names):
        return
    for index, (name, given_name) in enumerate(zip(names, given_names, strict=True)):
        if same_form(name) != same_form(given_name):
            raise UserError(
                "--calibration must have the classes of the scores in the same order; its class "
                f"{index} is {shown(name)!r}, and that of the scores is {shown(given_name)!r}"
            )
