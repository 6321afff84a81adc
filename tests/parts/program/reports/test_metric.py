"""Metrics: their names, in files and in words, and their values for people."""

import pytest

from train.foundation.errors import UserError
from train.reports import metric
from train.reports.metric import LOSS, Metric

NAMES = {
    "loss": (LOSS, "loss"),
    "top_1_accuracy": (Metric.accuracy("top", 1), "top-1 accuracy"),
    "macro_top_10_accuracy": (Metric.accuracy("top", 10, "macro"), "macro top-10 accuracy"),
    "few_average_5_accuracy": (Metric.accuracy("average", 5, "few"), "few average-5 accuracy"),
    "average_5_set_size": (Metric.set_size(5), "average-5 set size"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_parsed_and_written_back(name):
    found = Metric.parse(name)
    assert (found, found.in_words) == NAMES[name]
    assert found.name == name
    assert found.in_few_words == found.in_words.removesuffix(" accuracy")


@pytest.mark.parametrize(
    "name",
    [
        *("", "top_1", "top_x_accuracy", "top_05_accuracy", "macro_few_top_5_accuracy"),
        *("macro_loss", "top_5_set_size", "average_2.5_accuracy"),
    ],
)
def test_what_is_no_metric_is_refused(name):
    with pytest.raises(UserError, match=f"{name!r}$"):
        Metric.parse(name)


def test_every_metric_that_selects_has_a_name_of_its_own():
    found = metric.selectable((1, 5))
    # The loss, and by K two rules with five averages each.
    assert len({one.name for one in found}) == len(found) == 1 + 2 * 2 * 5
    assert [Metric.parse(one.name) for one in found] == found


def test_values_are_those_of_json_without_what_is_no_metric():
    line = {"step": 3, "split": "validation", "loss": 0.5, "macro_top_1_accuracy": None}
    values = metric.from_json(line)
    assert values == {LOSS: 0.5, Metric.accuracy("top", 1, "macro"): None}
    assert metric.to_json(values) == {"loss": 0.5, "macro_top_1_accuracy": None}
