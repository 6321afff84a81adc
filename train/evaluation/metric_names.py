"""The names of the metrics of an evaluation, as functions of the set sizes K."""

import re
from collections.abc import Iterable, Iterator

LOSS = "loss"
SHOTS = ("few", "medium", "many")
# Training images: a class with fewer is of few shots, one with more of many.
FEW_BELOW = 20
MANY_ABOVE = 100


def top_k(k: int) -> str:
    """The rule that returns the K best classes."""
    return f"top_{k}"


def average_k(k: int) -> str:
    """The rule that returns K classes on average: those above a calibrated threshold."""
    return f"average_{k}"


def rule_accuracies(rule: str) -> dict[str, str]:
    """Every accuracy of a rule: by how it is averaged (micro, macro, few, medium, many)."""
    prefixes = {"micro": "", "macro": "macro_", **{shot: f"{shot}_" for shot in SHOTS}}
    return {average: f"{prefix}{rule}_accuracy" for average, prefix in prefixes.items()}


def in_words(name: str) -> str:
    """`macro_top_3_accuracy` as people write it: macro top-3 accuracy."""
    return re.sub(r"(top|average)_(\d+)", r"\1-\2", name).replace("_", " ")


def set_size(rule: str) -> str:
    """The mean size of a rule's sets."""
    return f"{rule}_set_size"


def selectable(ks: Iterable[int]) -> list[str]:
    """Every metric that an epoch can be selected by: the loss, and the accuracies."""
    return [LOSS, *_accuracies(ks)]


def _accuracies(ks: Iterable[int]) -> Iterator[str]:
    for k in ks:
        for rule in (top_k(k), average_k(k)):
            yield from rule_accuracies(rule).values()
