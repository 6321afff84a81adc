"""What people say about examples: votes for the class of each, or several labels of each.

A table has a row for each label of an example, perhaps with a person, `annotator`, and a number of
`votes`. A row may also have several labels, with semicolons between them.
"""

import contextlib
import re

import numpy as np

from train.data.examples import classes
from train.data.truths import SEVERAL, VOTES, Truths
from train.foundation.errors import UserError

# As in "oak: 3".
_WITH_NUMBER = re.compile(r".*:\s*[\d.]+")
# Votes that are equal up to rounding.
_ROUNDING = 1e-9
# The confusions of all people, and a smaller plausibility than any that is kept.
_MOST_CONFUSIONS = 2**28
_LEAST = 1e-3


def truths(
    examples: np.ndarray,
    texts: np.ndarray,
    annotators: np.ndarray | None,
    votes: np.ndarray | None,
    *,
    kind: str,
    rule: str,
    where: str,
    called: np.ndarray,
) -> tuple[Truths, tuple[str, ...]]:
    """The truth of each example, and the names of the classes.

    What one person says of an example is one vote, however many labels it has.

    Args:
        examples: the example of each row, [rows]; each from 0 to the largest has one.
        texts: the label of each row, or several with semicolons between them.
        annotators: who gave each row, "" if that is not known; None if it never is.
        votes: how many votes each row is, as texts; None if each is one.
        kind: `VOTES` or `SEVERAL`.
        rule: what votes become: "shares", "majority", "weighted" or "dawid_skene".
        where: the table in messages.
        called: what messages call the examples.

    Raises:
        UserError: a row has no label or no number of votes, a person has two rows on one example,
            or the rule cannot be used with these votes.
    """
    cells = [[one.strip() for one in text.split(";") if one.strip()] for text in texts]
    sizes = np.array([*map(len, cells)])
    if not sizes.all():
        raise UserError(f"{where}: {called[examples[sizes.argmin()]]} has a row without a label")
    labels, class_names = classes(one for cell in cells for one in cell)
    if wrong := [*filter(_WITH_NUMBER.fullmatch, class_names)]:
        must_be = "classes, whose numbers of votes are in a column votes"
        raise UserError(field=f"{where}: label", must_be=must_be, got=wrong[0])
    people, persons = classes([""] * len(cells) if annotators is None else annotators)
    is_known = np.array(persons)[people] != ""
    given = np.ones(len(cells)) if votes is None else _numbers(votes, where)
    rows = np.repeat(np.arange(len(cells)), sizes)
    weights = np.where(is_known, given / sizes, given)[rows]
    owners, voters = examples[rows], people[rows]
    if kind == VOTES:
        pairs = np.stack([examples, people])[:, is_known]
        (owner, person), counts = np.unique(pairs, axis=1, return_counts=True)
        if (twice := np.flatnonzero(counts > 1)).size:
            name, of = persons[person[twice[0]]], called[owner[twice[0]]]
            raise UserError(f"{where}: {name!r} has two votes on {of}")
        if rule in ("weighted", "dawid_skene") and not is_known.all():
            raise _refused(rule, "shares or majority if it is not known who gave each vote")
        if rule == "dawid_skene":
            return _dawid_skene(owners, labels, voters, weights, len(class_names)), class_names
        if rule == "weighted":
            # Imported here because it imports jax, which takes seconds.
            from topk_jax import metrics  # noqa: PLC0415

            named = np.unique(np.stack([voters, labels]), axis=1)[0]
            weights = weights * np.asarray(metrics.voter_weights(np.bincount(named)))[voters]
    entries, entry = np.unique(owners * len(class_names) + labels, return_inverse=True)
    owners, labels = np.divmod(entries, len(class_names))
    weights = np.bincount(entry, weights)
    if kind == SEVERAL:
        weights = np.ones_like(weights)
    elif rule == "majority":
        most = np.zeros(int(owners.max()) + 1)
        np.maximum.at(most, owners, weights)
        # Classes with equally many votes are equally plausible.
        is_most = weights >= most[owners] * (1 - _ROUNDING)
        owners, labels, weights = owners[is_most], labels[is_most], np.ones(is_most.sum())
    return Truths.of_entries(owners, labels, weights, kind), class_names


def _numbers(votes: np.ndarray, where: str) -> np.ndarray:
    for text in votes:
        with contextlib.suppress(ValueError):
            if 0 < float(text) < np.inf:
                continue
        raise UserError(field=f"{where}: votes", must_be="numbers greater than 0", got=text)
    return votes.astype(np.float64)


def _refused(rule: str, must_be: str) -> UserError:
    return UserError(field="config.dataset.votes", must_be=must_be, got=rule)


def _dawid_skene(
    examples: np.ndarray, labels: np.ndarray, voters: np.ndarray, weights: np.ndarray, num: int
) -> Truths:
    """The truths over `num` classes by what each person confuses."""
    from topk_jax import metrics  # noqa: PLC0415

    size = {"num_examples": int(examples.max()) + 1, "num_voters": int(voters.max()) + 1}
    needed = num * max(num * size["num_voters"], size["num_examples"])
    if needed > _MOST_CONFUSIONS or (weights != 1).any():
        why = f"a vote has several classes, or for {size['num_voters']} people and {num} classes"
        raise _refused("dawid_skene", f"weighted, shares or majority if {why}")
    shares = np.asarray(metrics.dawid_skene(labels, examples, voters, **size, num_classes=num))
    owners, kept = np.nonzero(shares >= min(_LEAST, 1 / num))
    return Truths.of_entries(owners, kept, shares[owners, kept], VOTES)
