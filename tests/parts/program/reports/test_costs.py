"""Costs of sets, named and of tables, against brute force and on a known law."""

import re

import numpy as np
import pytest

from tests import reference
from train.data.classes import Classes
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError
from train.reports import costs
from train.reports.costs import Costs
from train.reports.rows import rate
from train.reports.rules import parse
from train.scores.scores import Scores

NUM_CLASSES = 6
NAMES = ("ash", "birch", "elm", "fir", "lime", "oak")
COUNTS = np.array([5, 10, 20, 40, 80, 160])
CLASSES = Classes(NAMES, tuple(COUNTS.tolist()))


def draw(rng, number):
    """Examples of a known law."""
    labels = rng.choice(NUM_CLASSES, size=number, p=COUNTS / COUNTS.sum()).astype(np.int32)
    values = rng.dirichlet(np.ones(NUM_CLASSES), size=number) + np.eye(NUM_CLASSES)[labels]
    values = (values / 2).astype(np.float32)
    ranks = reference.label_ranks(values, labels)
    return Scores(values=values, labels=labels, ranks=ranks, loss=-np.ones(number), classes=CLASSES)


@pytest.mark.parametrize(("text", "risk"), [("macro", 0.3), ("table", 0.4)])
def test_the_mean_cost_of_new_examples_is_at_most_the_risk(rng, text, risk, tmp_path):
    """Calibrations on 100 examples, each with as many new ones, of a known law."""
    table = write(
        tmp_path / "costs.csv",
        [f"{n},,{1 + i / 3}" for i, n in enumerate(NAMES)]
        + ["oak,lime,0.5", "lime,oak,0.25", "fir,oak,1"],
    )
    name = table if text == "table" else text
    rule = parse(f"risk={risk}, costs={name}")
    found = []
    for _ in range(100):
        ready, new = rule.fit(draw(rng, 100), ""), draw(rng, 100)
        members = np.asarray(ready.answer(new.values).members)
        # By brute force: the least of the costs of the classes in the set.
        of = costs.named(name, CLASSES)
        between = (
            np.repeat(of.of_labels[:, None], NUM_CLASSES, 1) if of.between is None else of.between
        )
        between = between * ~np.eye(NUM_CLASSES, dtype=bool)
        cost = [
            min([of.of_labels[label], *between[label][row]])
            for label, row in zip(new.labels, members, strict=True)
        ]
        found.append(np.mean(cost))
    assert rate(new, ready)["mean_cost"] == pytest.approx(found[-1], rel=1e-9)
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) <= risk + 2 * error
    # The bound is nearly reached: what one further example can cost, and a step of the cost.
    assert np.mean(found) >= risk - 2 * of.of_labels.max() / 100 - 3 * error


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
    ("rows", "message"),
    [
        (EVERY[1:], "it has none for ash"),
        ([*EVERY, EVERY[0]], "row 8: it must have a class"),
        ([*EVERY, "elm,oak,1", "elm, oak ,2"], "row 9: it must have a class"),
        ([*EVERY, "elm,beech,1"], r"row 8: it must have a class .* got 'elm', 'beech', '1'"),
        ([*EVERY, "elm,oak,-1"], "row 8: it must have a class"),
        ([*EVERY, "elm,oak,inf"], "row 8: it must have a class"),
        ([*EVERY[1:], "ash,,0"], "row 7: it must have a class"),
    ],
)
def test_what_is_no_table_of_costs_is_refused(tmp_path, rows, message):
    path = write(tmp_path / "costs.csv", rows)
    with pytest.raises(UserError, match=message):
        costs.named(path, CLASSES)
    (tmp_path / "costs.csv").write_text("name,price\noak,1\n")
    with pytest.raises(UserError, match=r"columns label and cost; .* has name, price"):
        costs.named(path, CLASSES)


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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("taxonomy", "costs=taxonomy needs a taxonomy of the classes: give --taxonomy"),
        ("macro", "costs=macro needs the number of training examples"),
    ],
)
def test_costs_need_what_they_are_of(name, message):
    with pytest.raises(UserError, match=re.escape(message)):
        costs.named(name, Classes.of(NAMES))


def test_a_class_that_is_not_known_costs_the_most():
    found = Costs("own", np.array([1.0, 3.0]))
    assert found.of_sets(np.eye(2, dtype=bool), np.array([2, 1])).tolist() == [3, 0]
