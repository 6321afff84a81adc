"""What to expect of the sets of the K likeliest classes, estimated with calibration examples.

Such sets promise no coverage. What can be stated is the coverage of the calibration examples, with
its interval, and by backward conformal prediction the mean level a at which sets of K classes are
valid: the label is missed with a probability of about a at most. That is an approximation, which
fails if levels of examples differ much, and the square root of a is a bound that does not.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from topk_jax import sets
from train.evaluation import intervals, score_files, summaries, thresholds
from train.evaluation.predictions import Predictions, chunks


def estimate(examples: Predictions, ks: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The coverage of the sets of the K likeliest classes, by K.

    Args:
        examples: the calibration examples.
        ks: the sizes of the sets.

    Returns:
        For each K the estimated `coverage` with its `interval`, the approximation
        `backward_coverage`, and the bound `coverage_at_least`. These two are 0 if nothing is
        promised, and missing without probabilities or with one example.
    """
    interval = intervals.of(examples)
    found: dict[int, dict[str, Any]] = {}
    for k in ks:
        hits = summaries.top_k_sets(examples, k).hits
        found[k] = {"coverage": float(hits.mean()), "interval": interval(hits)}
    if len(examples.labels) < 2 or not score_files.are_from_0_to_1(examples.scores):
        return found
    scores, labels = _smallest_scores(examples, max(ks))
    for k, of_k in found.items():
        levels = sets.left_out_top_k_levels(scores, labels, k=k)
        # If a label has the probability 0, levels are infinite or NaN, and no better than 1.
        level = float(np.fmin(np.asarray(levels, np.float64).mean(), 1))
        of_k["backward_coverage"] = 1 - level
        # The mean of m/a is at most 1, where m is 1 if the label is missed, else 0. By Cauchy and
        # Schwarz the mean of m is at most the root of the means of m/a and of a.
        of_k["coverage_at_least"] = 1 - math.sqrt(level)
    return found


def _smallest_scores(examples: Predictions, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores -log p that give the same levels of sets of at most k classes as all scores.

    Identity: a level depends on the scores of the labels and on the (k + 1)-th smallest score of
    its example. Hazard: the scores of all classes may be larger than the memory. Choice: the k + 1
    smallest ones, and one more column, for a label that is not among them. Cost: a selection.

    Returns:
        The scores `[n, k + 2]`, or all if they are fewer, and the label of each example among
        these, `[n]`.
    """
    num_kept = min(k + 1, examples.scores.shape[-1])
    kept = [
        np.asarray(jax.lax.top_k(examples.scores[chunk], num_kept)[0])
        for chunk in chunks(examples.scores)
    ]
    probabilities, of_labels = np.concatenate(kept), thresholds.scores_of_labels(examples)
    is_kept = of_labels >= probabilities[:, -1]
    labels = np.where(is_kept, (probabilities == of_labels[:, None]).argmax(axis=-1), num_kept)
    if num_kept < examples.scores.shape[-1]:
        probabilities = np.column_stack([probabilities, np.where(is_kept, 0, of_labels)])
    with np.errstate(divide="ignore"):
        # A probability may round to more than 1.
        scores = np.maximum(-np.log(probabilities), 0)
    return scores, labels.astype(np.int32)
