"""The costs that --costs names: of labels or classes that count alike, a taxonomy or a table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topk_jax import metrics
from train.data.sources import table
from train.data.taxonomy import ClassTree
from train.evaluation import conformal_sets
from train.evaluation.costs import Costs
from train.foundation import fields, messages, names
from train.foundation.errors import UserError

MACRO = "macro"
TAXONOMY = "taxonomy"
# The costs of missed labels: the mean is their share.
MISSED = "missed"
_COST = fields.Number(at_least=0)


def named(
    name: str,
    class_names: Sequence[str],
    class_counts: np.ndarray | None,
    tree: ClassTree | None = None,
) -> Costs:
    """The costs of a flag.

    Args:
        name: the value of the flag.
        class_names: the names of the classes.
        class_counts: the training examples of each class, [L], if they are known.
        tree: what is above the classes, if it is known.

    Raises:
        UserError: there are no such costs.
    """
    if name == MISSED:
        return Costs(MISSED, np.ones(len(class_names)))
    if name == MACRO:
        return _macro(class_counts)
    if name == TAXONOMY:
        return _of_tree(tree)
    return _read(name, class_names)


def _macro(class_counts: np.ndarray | None) -> Costs:
    """Costs whose mean is the mean over the classes of the part of labels that is missed."""
    if class_counts is None or class_counts.min() < 1:
        raise UserError(
            f"--costs={MACRO} needs the number of training examples of each class, at least one"
        )
    return Costs(MACRO, class_counts.sum() / (len(class_counts) * class_counts.astype(float)))


def _of_tree(tree: ClassTree | None) -> Costs:
    """The height of the lowest node with the label and a class of the set; 1 for the root."""
    if tree is None:
        raise UserError(
            f"--costs={TAXONOMY} needs a taxonomy of the classes: "
            f"{conformal_sets.HOW_TO_GIVE_TAXONOMY}"
        )
    classes = np.arange(tree.taxonomy.num_classes)
    labels, others = np.meshgrid(classes, classes, indexing="ij")
    heights = np.asarray(metrics.mistake_heights(others, labels, tree.taxonomy), np.float64)
    return Costs(TAXONOMY, np.ones(len(classes)), heights / tree.taxonomy.heights.max())


def _read(name: str, class_names: Sequence[str]) -> Costs:
    """The costs of a table, by label and by a class of the set."""
    where = f"--costs {name}"
    columns = table.read(names.existing(Path(name).expanduser()), "--costs")
    if not {"label", "cost"} <= columns.keys():
        raise UserError(
            field="--costs",
            must_be=f"{MISSED}, {MACRO}, {TAXONOMY}, or a table with the columns label and cost",
            but=f"{name} has {', '.join(columns) or 'none'}",
        )
    index = {names.same_form(one): place for place, one in enumerate(class_names)}
    labels, costs = columns["label"], columns["cost"]
    of_labels = np.full(len(class_names), np.nan)
    similar: dict[tuple[int, int], float] = {}
    for row, (label, chosen, cost) in enumerate(
        zip(labels, columns.get("chosen", [""] * len(labels)), costs, strict=True)
    ):
        place = f"{where}, {table.place(row)}"
        found = [_index(one, index, place) for one in (label, chosen) if one]
        value = _number(cost, place, of_label=len(found) == 1)
        if label and chosen and (found[0], found[1]) not in similar:
            similar[found[0], found[1]] = value
        elif label and not chosen and np.isnan(of_labels[found[0]]):
            of_labels[found[0]] = value
        else:
            pair = " and a chosen class" if chosen else ""
            raise UserError(f"{place}: it must have a label{pair} that no other row has")
    if missing := [class_names[int(place)] for place in np.flatnonzero(np.isnan(of_labels))]:
        raise UserError(
            f"{where} must have a row for each class, without a chosen class; it has none "
            f"for {messages.in_words([*map(names.shown, missing)], 'classes')}"
        )
    if not similar:
        return Costs(name, of_labels)
    between = np.repeat(of_labels[:, None], len(class_names), axis=1)
    for (label_index, chosen_index), value in similar.items():
        between[label_index, chosen_index] = value
    np.fill_diagonal(between, 0)
    return Costs(name, of_labels, between)


def _index(name: str, index: dict[str, int], where: str) -> int:
    found = index.get(names.same_form(name))
    if found is None:
        raise UserError(
            f"{where}: {names.shown(name)} is not a class of the "
            f"run{fields.did_you_mean(name, index)}"
        )
    return found


def _number(text: str, where: str, *, of_label: bool) -> float:
    may_be = fields.Number(above=0) if of_label else _COST
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if wrong := may_be(value):
        raise UserError(f"{where}: its cost must be {wrong}; got {text!r}")
    return value
