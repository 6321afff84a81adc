"""Answers of one class, given if a classifier is sure enough: the threshold, and their quality."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from topk_jax import sets
from train.evaluation import set_rules, summaries
from train.evaluation.predictions import Predictions, chunks
from train.foundation.errors import UserError

# The probability that calibration examples make a threshold whose errors are more.
DELTA = 0.05


def threshold(predictions: Predictions, error: float) -> float:
    """The probability above which the likeliest class is wrong at most at this rate.

    Raises:
        UserError: the examples show this for no threshold.
    """
    scores = predictions.scores
    surest = np.concatenate([np.max(scores[chunk], axis=-1) for chunk in chunks(scores)])
    found = float(
        sets.selective_threshold(surest, predictions.ranks == 0, error=error, delta=DELTA)
    )
    if found == np.inf:
        raise UserError(
            f"--max_error={error:g} cannot be promised: the {len(surest):,} examples to calibrate "
            "on are too few, or too often wrong, for any answers"
        )
    return found


def report(predictions: Predictions, error: float, least: float) -> dict[str, Any]:
    """How many examples are answered above a threshold, and how many answers are wrong.

    Args:
        predictions: the predictions for the examples; no answer is right for classes that are not
            known, which are counted apart.
        error: the share of answers that may be wrong.
        least: the threshold.
    """
    found = summaries.find_sets(predictions, set_rules.surest(least))
    known = predictions.is_known
    answers = int(found.sizes[known].sum())
    right = int(found.of_labels[known].sum())
    return {
        "max_error": error,
        "threshold": least,
        "answered": answers / int(known.sum()),
        "error_of_answers": None if answers == 0 else 1 - right / answers,
        "answered_of_unknown_classes": None if known.all() else float(found.sizes[~known].mean()),
    }


def in_words(found: Mapping[str, Any]) -> str:
    """The same in a sentence."""
    words = f"answers with an error of at most {found['max_error']:g}: {found['answered']:.1%}"
    if found["error_of_answers"] is not None:
        words += f", of which {found['error_of_answers']:.2%} are wrong"
    if found["answered_of_unknown_classes"] is not None:
        words += f"; of unknown classes {found['answered_of_unknown_classes']:.1%} have an answer"
    return words
