"""Costs of sets: of tables, of taxonomies, and what they need."""

import numpy as np
import pytest

from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError
from train.reports import costs

NUM_CLASSES = 6
NAMES = ("ash", "birch", "elm", "fir", "lime", "oak")
CLASSES = Classes(NAMES, (5, 10, 20, 40, 80, 160))


def write(path, rows):
    path.write_text("\n".join(["label,chosen,cost", *rows]))
    return str(path)


EVERY = [f"{name},,{cost}" for cost, name in enumerate(NAMES, start=1)]


def test_a_table_has_costs_of_labels_and_of_similar_classes(tmp_path):
    path = write(tmp_path / "costs.csv", [*EVERY, "elm,fir,0.5", "elm,oak,9"])
    found = costs.named(path, CLASSES)
    assert found.of_labels.tolist() == [1, 2, 3, 4, 5, 6]
    chosen = np.eye(NUM_CLASSES, dtype=bool)[[0, 3, 2, 3, 5]]
    labels = np.array([1, 2, 2, NUM_CLASSES, 2])
    # A class that the model does not know costs the most, and no class makes a set dearer.
    assert found.of_sets(chosen, labels).tolist() == [2, 0.5, 0, 6, 3]
    assert found.of_sets(np.zeros_like(chosen), labels).tolist() == [2, 3, 3, 6, 3]


@pytest.mark.parametrize(
    "rows",
    [
        EVERY[1:],
        [*EVERY, EVERY[0]],
        [*EVERY, "elm,oak,1", "elm, oak ,2"],
        *([*EVERY, f"elm,{row}"] for row in ("beech,1", "oak,-1", "oak,inf")),
        [*EVERY[1:], "ash,,0"],
    ],
)
def test_what_is_no_table_of_costs_is_refused(tmp_path, rows):
    with pytest.raises(UserError, match="costs"):
        costs.named(write(tmp_path / "costs.csv", rows), CLASSES)


def test_a_taxonomy_costs_by_the_height_at_which_the_set_and_the_label_meet():
    # Two of the genera have one species, and one family has one genus.
    genera, families = ("a", "a", "b", "c", "d", "d"), ("x", "x", "x", "y", "z", "z")
    paths = tuple(zip(families, genera, NAMES, strict=True))
    tree = ClassTree(("family", "genus", "species"), paths)
    found = costs.named("taxonomy", Classes(NAMES, (1,) * 6, tree))
    expected = np.ones((NUM_CLASSES, NUM_CLASSES))
    for label, (family, genus, _) in enumerate(paths):
        for other, (of_other, other_genus, _) in enumerate(paths):
            if family == of_other:
                expected[label, other] = 1 / 3 if genus == other_genus else 2 / 3
            if label == other:
                expected[label, other] = 0
    np.testing.assert_allclose(found.between, expected)


def test_costs_of_the_library_need_what_they_are_of():
    with pytest.raises(UserError, match="costs=macro: class_counts, the training examples of each"):
        costs.named("macro", Classes.of(NAMES))
