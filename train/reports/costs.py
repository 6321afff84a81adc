"""Costs of sets without their label: of labels or classes that count alike, a taxonomy or a table.

A set that has the label costs nothing. Others cost what the label costs with the most similar
class in the set. So larger sets never cost more.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from topk_jax import rules
from train.data.classes import Classes
from train.data.sources import table
from train.foundation import names
from train.foundation.console import in_words
from train.foundation.errors import UserError


@dataclass(frozen=True, eq=False)
class Costs:
    """The costs of sets.

    Attributes:
        name: as the text of a rule has them.
        of_labels: by label, what a set costs that has neither the label nor a similar class, [L].
        between: by label and by a class of the set, what the set costs at most, [L, L]; None if
            no class is similar to another.
    """

    name: str
    of_labels: np.ndarray
    between: np.ndarray | None = None

    @cached_property
    def digest(self) -> str:
        """A hash of the costs."""
        arrays = [self.of_labels] if self.between is None else [self.of_labels, self.between]
        content = b"".join(array.astype("<f8").tobytes() for array in arrays)
        return hashlib.sha256(content).hexdigest()[:12]

    def of_sets(self, chosen: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """What sets [n, L] cost, [n]; the most if the classifier does not know the label."""
        is_known = labels < len(self.of_labels)
        labels = np.where(is_known, labels, 0)
        if self.between is None:
            found = self.of_labels[labels] * ~chosen[np.arange(len(labels)), labels]
        else:
            similar = np.where(chosen, self.between[labels], np.inf).min(axis=-1)
            found = np.minimum(self.of_labels[labels], similar)
        return np.where(is_known, found, self.of_labels.max())


def named(name: str, classes: Classes) -> Costs:
    """The costs that the text of a rule names: one of `rules.COSTS`, or the path of a table.

    Raises:
        UserError: there are no such costs.
    """
    if name not in rules.COSTS:
        return _read(name, classes.names)
    taxonomy = None if classes.tree is None else classes.tree.taxonomy
    try:
        found = rules.named_costs(
            name, len(classes), class_counts=classes.counts, taxonomy=taxonomy
        )
    except ValueError as error:
        raise UserError(f"costs={name}: {error}") from error
    return Costs(name, *found)


def _read(name: str, class_names: tuple[str, ...]) -> Costs:
    """The costs of a table with the columns label, cost, and perhaps chosen."""
    columns = table.read(names.existing(Path(name).expanduser()), f"costs={name}")
    if not {"label", "cost"} <= columns.keys():
        raise UserError(
            field="costs",
            must_be=f"{', '.join(rules.COSTS)}, or a table with the columns label and cost",
            but=f"{name} has {', '.join(columns) or 'none'}",
        )
    index = {names.same_form(one): place for place, one in enumerate(class_names)}
    labels, costs = columns["label"], columns["cost"]
    found: dict[tuple[int, int | None], float] = {}
    rows = zip(labels, columns.get("chosen", [""] * len(labels)), costs, strict=True)
    for row, (label, chosen, cost) in enumerate(rows):
        try:
            pair = index[names.same_form(label)], index[names.same_form(chosen)] if chosen else None
            value = float(cost)
            if pair in found or not (0 <= value < math.inf) or not (value or chosen):
                raise ValueError
        except (KeyError, ValueError):
            raise UserError(
                f"costs={name}, {table.place(row)}: it must have a class of the classifier as its "
                "label, perhaps another as the chosen one, a pair that no other row has, and a "
                f"cost, above 0 without a chosen class; got {label!r}, {chosen!r}, {cost!r}"
            ) from None
        found[pair] = value
    if missing := [one for place, one in enumerate(class_names) if (place, None) not in found]:
        raise UserError(
            f"costs={name} must have a row for each class, without a chosen class; it has none "
            f"for {in_words([*map(names.shown, missing)], 'classes')}"
        )
    of_labels = np.array([found[place, None] for place in range(len(class_names))])
    similar = {pair: value for pair, value in found.items() if pair[1] is not None}
    if not similar:
        return Costs(name, of_labels)
    between = np.repeat(of_labels[:, None], len(class_names), axis=1)
    for pair, value in similar.items():
        between[pair] = value
    np.fill_diagonal(between, 0)
    return Costs(name, of_labels, between)
