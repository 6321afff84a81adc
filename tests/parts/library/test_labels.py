"""Arguments of other conventions: labels of every class, and scores in place of hits."""

import jax
import numpy as np
import pytest

from tests.cases import CASES_WITH_HEADS
from tests.cases.case import draw
from topk_jax import sets

NUM_EXAMPLES, NUM_CLASSES = 6, 8
# It has no scores or hits whose shape its labels follow.
OF_LABELS_ALONE = {"losses.soft_labels"}
LABELED = [
    case for case in CASES_WITH_HEADS if case.takes("labels") and case.public not in OF_LABELS_ALONE
]
# A count of hits is not boolean.
OF_HITS = [
    case
    for case in CASES_WITH_HEADS
    if case.takes("hits") and case.public != "metrics.anytime_interval"
]
# Functions that also take the scores of the labels alone, [n].
QUANTILES = {
    "conformal_quantile": {},
    "hierarchical_quantile": {"groups": np.arange(NUM_EXAMPLES) % 2, "num_groups": 2},
    "class_conditional_quantiles": {"num_classes": NUM_CLASSES},
    "rank_calibrated_quantiles": {
        "ranks": np.arange(NUM_EXAMPLES, dtype=np.float32) % 3 + 1,
        "num_classes": NUM_CLASSES,
    },
}


@pytest.mark.parametrize("case", LABELED, ids=lambda case: case.name)
def test_labels_of_every_class_are_refused(case):
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    given = {argument: drawn[name] for argument, name in case.arrays.items()}
    one_hot = np.eye(NUM_CLASSES, dtype=np.int32)[:NUM_EXAMPLES]
    given |= case.resolved(NUM_CLASSES) | {"labels": one_hot}
    with pytest.raises(ValueError, match=r"must have shape \(.*, got shape \("):
        case.function(**given)


@pytest.mark.parametrize("name", QUANTILES)
def test_scores_of_the_labels_alone_are_vectors(name, rng):
    scores = rng.random(NUM_EXAMPLES).astype(np.float32)
    labels = np.arange(NUM_EXAMPLES, dtype=np.int32) % 3
    given = {"scores": scores, "labels": labels, **QUANTILES[name]}
    of_vectors = getattr(sets, name)(**given, error=0.5)
    assert not np.isnan(jax.tree.leaves(of_vectors)[0]).any()
    of_examples = {argument for argument, value in given.items() if np.shape(value) == (6,)}
    batches = {argument: given[argument].reshape(2, 3) for argument in of_examples}
    with pytest.raises(ValueError, match=r"labels must have shape \(2,\).* have to be vectors"):
        getattr(sets, name)(**given | batches, error=0.5)


@pytest.mark.parametrize("case", OF_HITS, ids=lambda case: case.name)
def test_scores_in_place_of_hits_are_refused(case):
    """They are the arguments of accuracies elsewhere."""
    drawn = draw((NUM_EXAMPLES,), NUM_CLASSES)
    given = {argument: drawn[name] for argument, name in case.arrays.items()}
    given |= case.resolved(NUM_CLASSES) | {"hits": drawn["logits"]}
    with pytest.raises(TypeError, match=r"hits must be .* metrics\.top_k_hits makes them"):
        case.function(**given)
