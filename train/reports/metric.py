"""The metrics of an evaluation, as objects; files and flags have them by their names."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from train.foundation.errors import UserError

Rule = Literal["top", "average"]
Average = Literal["micro", "macro", "few", "medium", "many"]
Quantity = Literal["loss", "accuracy", "set_size"]
Value = TypeVar("Value")

AVERAGES: tuple[Average, ...] = get_args(Average)
SHOTS: tuple[Average, ...] = ("few", "medium", "many")


@dataclass(frozen=True)
class Metric:
    """A number that is reported for a split.

    Attributes:
        rule: what makes the sets: "top", the K best classes, or "average", the classes above a
            threshold with which sets have K classes on average; None for the loss.
        k: the K of the rule; None for the loss.
        average: what the mean is over: "micro" for examples, "macro" for classes, and "few",
            "medium" or "many" for the classes of few, medium or many shots.
        quantity: what the mean is of: the losses, the hits or the sizes of the sets.
    """

    rule: Rule | None
    k: int | None
    average: Average
    quantity: Quantity

    @classmethod
    def accuracy(cls, rule: Rule, k: int, average: Average = "micro") -> "Metric":
        """The share of the sets that have the label."""
        return cls(rule, k, average, "accuracy")

    @classmethod
    def set_size(cls, k: int) -> "Metric":
        """The mean size of the average-K sets."""
        return cls("average", k, "micro", "set_size")

    @classmethod
    def parse(cls, name: str) -> "Metric":
        """The metric of a name, such as `macro_top_5_accuracy`.

        Raises:
            UserError: no metric has that name.
        """
        metric = _parse(name)
        if metric is None:
            raise UserError(
                field="a metric",
                must_be="a name such as loss, top_5_accuracy, macro_average_5_accuracy or "
                "average_5_set_size",
                got=name,
            )
        return metric

    @property
    def name(self) -> str:
        """The name in files, flags and configurations: `macro_top_5_accuracy`."""
        return "_".join([*self._sets("_"), self.quantity])

    @property
    def in_words(self) -> str:
        """The name in words: `macro top-5 accuracy`."""
        return " ".join([*self._sets("-"), self.quantity.replace("_", " ")])

    @property
    def in_few_words(self) -> str:
        """The same without the word accuracy, for use before a value in per cent: `macro top-5`."""
        return " ".join(self._sets("-")) if self.is_accuracy else self.in_words

    @property
    def is_accuracy(self) -> bool:
        """Whether it is a share, which is printed in per cent."""
        return self.quantity == "accuracy"

    def format(self, value: float | None) -> str:
        """A value as it is printed; a dash if there is none, as for classes that do not occur."""
        if value is None or math.isnan(value):
            return "-"
        return f"{value:.2%}" if self.is_accuracy else f"{value:.4g}"

    def without_value(self) -> UserError:
        """The error of a run that selects by this metric, where it has no value."""
        return UserError(
            field="config.select_by",
            must_be="a metric that the validation split has",
            but=f"{self.name!r} has no value, because no class of that kind occurs in it",
        )

    def _sets(self, separator: str) -> list[str]:
        average: list[str] = [] if self.average == "micro" else [self.average]
        return average if self.rule is None else [*average, f"{self.rule}{separator}{self.k}"]


LOSS = Metric(None, None, "micro", "loss")


def selectable(ks: Iterable[int]) -> list[Metric]:
    """Every metric that an epoch can be selected by: the loss, and the accuracies."""
    kinds = itertools.product(ks, get_args(Rule), AVERAGES)
    return [LOSS, *(Metric.accuracy(rule, k, average) for k, rule, average in kinds)]


def of_classes(
    ks: Iterable[int], select_by: str, num_classes: int
) -> tuple[tuple[int, ...], Metric]:
    """The sizes of sets that leave a class out, and the metric that an epoch is selected by.

    A set of all classes has every label. If the metric is of such a size, the largest that is left
    takes its place.
    """
    left = tuple(k for k in ks if k < num_classes) or (1,)
    metric = Metric.parse(select_by)
    fits = metric.k is None or metric.k in left
    return left, metric if fits else dataclasses.replace(metric, k=left[-1])


def to_json(values: Mapping[Metric, Value]) -> dict[str, Value]:
    """The values by the names of their metrics, as files have them."""
    return {metric.name: value for metric, value in values.items()}


def from_json(values: Mapping[str, Any]) -> dict[Metric, Any]:
    """The values of a JSON object by their metrics, without other entries."""
    parsed = ((_parse(name), value) for name, value in values.items())
    return {metric: value for metric, value in parsed if metric is not None}


def _parse(name: str) -> Metric | None:
    """The metric of a name; None if there is none. All but the K is known beforehand."""
    # Python refuses to read numbers of thousands of digits.
    ks = [int(word) for word in name.split("_") if word.isdecimal() and len(word) < 20]
    possible = [*selectable(ks), *map(Metric.set_size, ks)]
    return next((metric for metric in possible if metric.name == name), None)
