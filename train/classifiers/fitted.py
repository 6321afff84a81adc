"""Rules of sets with the limits that are fitted for a classifier, in files of one form.

A run keeps what is fitted on its validation examples in its `sets.json`. A run that was copied to
another machine therefore needs its data set only for rules that were not fitted before. The files
of --calibration_out and --calibration have the same form.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from train.classifiers.classifier import Classifier
from train.classifiers.trained import TrainedClassifier
from train.data.dataset import INPUT_DTYPES
from train.foundation import fields, files, json_files, shapes
from train.foundation.errors import UserError
from train.reports.rules import SetRule, from_json
from train.scores.scores import Scores
from train.workdir import run_files

# The rules are by their texts.
_SHAPE = shapes.record(
    {
        "parameters": fields.text(),
        "classes": fields.text(),
        "rules": shapes.table_of(shapes.table_of(shapes.anything)),
    }
)
_WHAT = "a file of fitted rules of sets"


def find(classifier: Classifier, rule: SetRule, calibration: Path | None) -> SetRule:
    """The rule with limits from a file of --calibration, or by `fitted` if there is none.

    Raises:
        UserError: see `fitted` and `read`; or the file does not have the rule.
    """
    if calibration is None or not rule.needs_limits:
        return fitted(classifier, rule)
    found = read(calibration, classifier)
    if str(rule) not in found:
        raise UserError(f"--calibration {calibration} has no {rule}; it has {'; '.join(found)}")
    return found[str(rule)]


def fitted(classifier: Classifier, rule: SetRule) -> SetRule:
    """The rule with limits from the validation examples, or observations, of the run.

    Raises:
        UserError: the classifier cannot have that rule; or it was not fitted before, and the data
            set is not on this machine or is too small.
    """
    run = _run(classifier)
    if not rule.needs_limits:
        return rule.fit(_blank(run, is_scored=rule.name == "utility"), "a blank example")
    path = None if run.workdir is None else run.workdir / run_files.SETS
    if path is not None and (kept := _kept(path, run).get(str(rule))) is not None:
        # The file has a checksum: what is wrong with a rule is that a taxonomy or costs are others.
        with contextlib.suppress(ValueError):
            return from_json(kept, run.classes)
    what = "examples" if rule.combination is None else "observations"
    found = rule.fit(run.split("validation", rule.rule.new_score), f"the validation {what}")
    if path is not None:
        # Without permission to write, it is fitted again the next time.
        with contextlib.suppress(OSError), _alone(path.parent):
            write(path, run, {**_kept(path, run), str(rule): found.to_json()})
    return found


def read(path: Path, classifier: Classifier) -> dict[str, SetRule]:
    """The rules in a file of --calibration, by their texts.

    Raises:
        UserError: the file cannot be read, or is for another classifier.
    """
    run = _run(classifier)
    try:
        found = json_files.read(path, _SHAPE, _WHAT)
        if any(found[name] != value for name, value in _digests(run).items()):
            raise UserError("it is for another classifier, or for its classes in another order")
        return {text: from_json(plain, run.classes) for text, plain in found["rules"].items()}
    except OSError as error:
        raise UserError(f"--calibration {path} cannot be read: {error.strerror}") from error
    except (UserError, ValueError) as error:
        raise UserError(f"--calibration {path}: {error}") from error


def write(path: Path, classifier: Classifier, rules: Mapping[str, Any]) -> None:
    """Writes rules, by their texts, to a file.

    Args:
        path: the file.
        classifier: the classifier.
        rules: each as a fitted rule, or as its `to_json`.
    """
    plain = {
        text: rule.to_json() if isinstance(rule, SetRule) else rule for text, rule in rules.items()
    }
    content = {**_digests(_run(classifier)), "rules": plain}
    files.write_whole(path, json_files.sealed(content, indent=1))


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
    loss = np.zeros(1, np.float32)
    return Scores(values=values, labels=zero, ranks=zero, loss=loss, classes=run.classes)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other process is in this context for the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Some file systems have no locks.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _kept(path: Path, run: TrainedClassifier) -> dict[str, Any]:
    """The rules in the file of a run; none if there is no file.

    Raises:
        UserError: the file is damaged.
    """
    try:
        found = json_files.read(path, _SHAPE, _WHAT)
        if any(found[name] != value for name, value in _digests(run).items()):
            raise UserError("it is of another classifier")
    except FileNotFoundError:
        return {}
    except (OSError, UserError) as error:
        raise UserError(f"{path} is damaged ({error}): delete it") from error
    rules: dict[str, Any] = found["rules"]
    return rules


def _digests(run: TrainedClassifier) -> dict[str, str]:
    """What tells the classifier from others. Its own names: others may be shown."""
    names = json.dumps([*run.assembly.data.classes.names]).encode()
    return {
        "parameters": run.digest,
        "classes": hashlib.sha256(names).hexdigest(),
    }
