"""Votes of people, one at a time."""

import numpy as np


def _votes(labels, examples, voters, *sizes):
    """The votes whose indices are in range."""
    votes = zip(*(np.ravel(one).tolist() for one in (labels, examples, voters)), strict=True)
    return [vote for vote in votes if all(0 <= i < n for i, n in zip(vote, sizes, strict=True))]


def voter_weights(num_labels, *, alpha=0.5, beta=0.2, offset=1.0):
    """`n^alpha - n^beta + b_0` (thesis, 3.8.1)."""
    numbers = np.asarray(num_labels, np.float64)
    return numbers**alpha - numbers**beta + offset


def dawid_skene(
    labels, examples, voters, *, num_examples, num_voters, num_classes, smoothing, num_steps
):
    """EM, with products of probabilities."""
    votes = _votes(labels, examples, voters, num_classes, num_examples, num_voters)
    shares = np.zeros((num_examples, num_classes))
    for label, example, _ in votes:
        shares[example, label] += 1
    shares[shares.sum(axis=1) == 0] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    for _ in range(num_steps):
        confusions = np.full((num_voters, num_classes, num_classes), float(smoothing))
        for label, example, voter in votes:
            confusions[voter, :, label] += shares[example]
        confusions /= confusions.sum(axis=2, keepdims=True)
        frequencies = shares.sum(axis=0) + smoothing
        shares = np.tile(frequencies / frequencies.sum(), (num_examples, 1))
        for label, example, voter in votes:
            shares[example] *= confusions[voter, :, label]
        shares /= shares.sum(axis=1, keepdims=True)
    return shares
