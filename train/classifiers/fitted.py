"""Rules of sets with the limits that are fitted for a classifier, in files of one form.

A run keeps what is fitted on its validation examples in its `sets.json`. A run that was copied to
another machine therefore needs its data set only for rules that were not fitted before. The files
of --calibration_out and --calibration have the same form.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.data.dataset import INPUT_DTYPES
from train.foundation import files
from train.foundation.errors import UserError, errors_told, within
from train.reports.rules import SetRule, from_json
from train.run import run_folder
from train.scores.scores import Scores


def find(classifier: Classifier, rule: SetRule, calibration: Path | None = None) -> SetRule:
    """The rule with limits from a file of --calibration, or from the examples of validation.

    Raises:
        UserError: the classifier cannot have that rule, or the file does not; or it was not fitted
            before, and the data set is not on this machine or is too small.
    """
    if not rule.needs_limits:
        run = _run(classifier)
        return rule.fit(_blank(run, is_scored=rule.name == "utility"), "a blank example")
    if calibration is None:
        return _by_validation(_run(classifier), rule)
    return read(calibration, classifier, [rule])[str(rule)]


def _by_validation(run: TrainedClassifier, rule: SetRule) -> SetRule:
    """The rule with limits from the validation examples, or observations, of the run."""
    path = None if run.workdir is None else run.workdir / run_folder.SETS
    kept = {} if path is None else _kept(path, run)
    if str(rule) in kept:
        # The file has a checksum: what is wrong with a rule is that a taxonomy or costs are others.
        with contextlib.suppress(ValueError):
            return from_json(kept[str(rule)], run.classes)
    what = "examples" if rule.combination is None else "observations"
    found = rule.fit(run.split("validation", rule.rule.new_score), f"the validation {what}")
    if path is not None:
        # Without permission to write, it is fitted again the next time.
        with contextlib.suppress(OSError):
            _write(path, run, {**_kept(path, run), str(rule): found.to_json()})
    return found


def read(path: Path, classifier: Classifier, wanted: Iterable[SetRule] = ()) -> dict[str, SetRule]:
    """The rules in a file of --calibration, by their texts.

    Raises:
        UserError: the file cannot be read, is for another classifier, or lacks limits of a rule
            that is wanted.
    """
    run = _run(classifier)
    with errors_told(f"--calibration {path} cannot be read"), within("--calibration: "):
        plain = _rules(path, run)
        found = {text: from_json(one, run.classes) for text, one in plain.items()}
    for rule in wanted:
        if rule.needs_limits and str(rule) not in found:
            raise UserError(f"--calibration {path} has no {rule}; it has {'; '.join(found)}")
    return found


def write(path: Path, classifier: Classifier, rules: Mapping[str, SetRule]) -> None:
    """Writes fitted rules, by their texts, to a file."""
    _write(path, _run(classifier), {text: rule.to_json() for text, rule in rules.items()})


def _write(path: Path, run: TrainedClassifier, rules: Mapping[str, Any]) -> None:
    content = {**_digests(run), "rules": rules}
    files.write_whole(path, files.to_json(files.with_checksum(content), indent=1))


def _run(classifier: Classifier) -> TrainedClassifier:
    if isinstance(classifier, TrainedClassifier):
        return classifier.run
    raise UserError(f"{classifier.title} has its own rule, {classifier.own_rule}, and no other")


def _blank(run: TrainedClassifier, *, is_scored: bool) -> Scores:
    """A blank example: whether a rule can be used depends on the form of the scores."""
    values = np.zeros((1, len(run.classes)), np.float32)
    if is_scored:
        blank = jnp.zeros((1, *run.shape), INPUT_DTYPES[run.inputs])
        values = np.asarray(run.scores()(blank), np.float32)
    zero = np.zeros(1, np.int32)
    return Scores(values=values, labels=zero, ranks=zero, loss=values[:, 0], classes=run.classes)


def _kept(path: Path, run: TrainedClassifier) -> dict[str, Any]:
    """The rules in the file of a run; none if there is no file."""
    try:
        return _rules(path, run)
    except FileNotFoundError:
        return {}
    except (OSError, UserError) as error:
        raise UserError(f"{path} is damaged ({error}): delete it") from error


def _rules(path: Path, run: TrainedClassifier) -> dict[str, Any]:
    """The rules in a file, as JSON has them; raises `UserError` if it is for another classifier."""
    found = files.read_checked(path, "a file of fitted rules of sets")
    if any(found.get(name) != value for name, value in _digests(run).items()):
        raise UserError(f"{path} is for another classifier, or its classes in another order")
    rules: dict[str, Any] = found["rules"]
    return rules


def _digests(run: TrainedClassifier) -> dict[str, str]:
    """What tells the classifier from others. Its own names: others may be shown."""
    names = json.dumps([*run.parts.data.classes.names]).encode()
    return {"parameters": run.digest, "classes": hashlib.sha256(names).hexdigest()}
