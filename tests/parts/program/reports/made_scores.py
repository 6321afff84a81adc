"""Scores of made examples: with ties, in several chunks, and each kind of truth."""

import numpy as np

from tests import reference
from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.data.truths import Truths
from train.scores.scores import Scores

NUM_CLASSES = 12
NAMES = tuple(f"species {index}" for index in range(NUM_CLASSES))
# At each border of the shots.
COUNTS = (1, 10, 11, 19, 20, 50, 51, 100, 101, 2001, 30, 5)
PATHS = tuple((f"family {c // 6}", f"genus {c // 3}", name) for c, name in enumerate(NAMES))
TREE = ClassTree(("family", "genus", "species"), PATHS)
UNKNOWN = ("new 0", "new 1")


def draw(rng, number, *, parts=16, num_labels=NUM_CLASSES - 2, kind=None, groups=0, tree=None):
    """Scores of sixteenths: many ties, sums of exactly 1, the same numbers in 32 bits and 64.

    The last two classes have no examples; labels from NUM_CLASSES on are not known.
    """
    classes = Classes(NAMES, COUNTS, tree)
    labels = rng.integers(0, num_labels, size=number).astype(np.int32)
    of_groups = None
    if groups:
        of = rng.integers(0, groups, size=number)
        labels, of_groups = (
            (of % num_labels).astype(np.int32),
            np.array([f"g{i}" for i in of], object),
        )
    law = rng.dirichlet(np.full(NUM_CLASSES, 0.5), size=number)
    law += (
        2 * np.eye(num_labels)[labels][:, :NUM_CLASSES]
        if num_labels >= NUM_CLASSES
        else (np.eye(NUM_CLASSES)[labels])
    )
    values = (rng.multinomial(parts, law / law.sum(axis=1, keepdims=True)) / parts).astype(
        np.float32
    )
    known = labels < NUM_CLASSES
    ranks = reference.label_ranks(values, np.where(known, labels, 0))
    scores = Scores(
        values=values,
        labels=labels,
        ranks=np.where(known, ranks, NUM_CLASSES),
        loss=np.where(known, rng.random(number), np.nan),
        classes=classes,
        unknown_classes=UNKNOWN,
        groups=of_groups,
        outliers=(rng.random(number) + ~known).astype(np.float32),
    )
    if kind is None:
        return scores
    entries = [(i, c) for i in range(number) for c in {int(labels[i]), *rng.integers(0, 10, i % 3)}]
    examples, of = np.array(entries).T
    weights = rng.integers(1, 4, len(of)) if kind == "votes" else np.ones(len(of))
    truths = Truths.of_entries(examples, of, weights, kind)
    ranks = reference.label_ranks(values, truths.labels)
    given = {**vars(scores), "labels": truths.labels, "ranks": ranks}
    return Scores(**given).with_truths(truths)
