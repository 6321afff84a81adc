"""Votes of people, one at a time."""

import numpy as np


def weighted_votes(
    labels, examples, voters, *, num_examples, num_classes, authors, offset, threshold, num_rounds
):
    """The weights of `w_u = sqrt(n_u) - n_u^0.2 + b_0` (thesis, 3.8.1)."""
    votes = list(zip(labels, examples, voters, strict=True))
    totals = np.zeros((num_examples, num_classes))
    for _ in range(num_rounds):
        weights = {}
        for voter in set(voters):
            named = {label for label, _, one in votes if one == voter}
            observed = {
                row.argmax()
                for row, author in zip(totals, authors, strict=True)
                if author == voter and row.max() > threshold
            }
            number = len(named) + len(observed)
            weights[voter] = number**0.5 - number**0.2 + offset
        totals = np.zeros_like(totals)
        for label, example, voter in votes:
            totals[example, label] += weights[voter]
    return totals


def dawid_skene(
    labels, examples, voters, *, num_examples, num_voters, num_classes, smoothing, num_steps
):
    """EM, with products of probabilities."""
    votes = list(zip(labels, examples, voters, strict=True))
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
