"""What calibration examples say of the sets of the K likeliest classes, before they are used.

Such sets promise no coverage. Two statements of it can be made: the coverage of the calibration
examples, with its interval, and a bound that holds for any classifier, by backward conformal
prediction. The bound is loose.
"""

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
        For each K the estimated `coverage` with its `interval`, and the bound
        `coverage_at_least`, which is 0 if nothing is promised; no bound without probabilities or
        with one example.
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
        of_k["coverage_at_least"] = 1 - float(np.fmin(np.asarray(levels, np.float64).mean(), 1))
    return found


def _smallest_scores(examples: Predictions, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores -log p of which the levels of sets of at most k classes are the same as of all.

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
