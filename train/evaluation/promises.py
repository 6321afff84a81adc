"""Whether sets on new data have their labels as often as they promise."""

from typing import Any

from train.evaluation import thresholds
from train.evaluation.conformal_rules import ConformalRule


def promised(coverage: float, rule: ConformalRule) -> float:
    """The coverage over all examples that the sets of a rule promise."""
    if rule.quantile != "middle":
        return coverage
    # Halfway between two quantiles, only twice the error is bounded.
    return max(0.0, float(1 - 2 * thresholds.error_of(coverage)))


def holds(asked: float, low: float, high: float) -> bool | None:
    """Whether sets have the coverage that was asked; None if its interval does not decide that."""
    return False if high < asked else True if low >= asked else None


def verdict(asked: float, share: float, low: float, high: float, these: str) -> str:
    """The same in a sentence.

    Args:
        asked: the coverage that the sets promise.
        share: the share of examples that have their label in their set.
        low: the lower end of its interval.
        high: the upper end.
        these: the examples, as "these images".
    """
    in_words = {
        False: f"the promise does not hold on {these}",
        True: f"the promise holds on {these}",
        None: f"{these} do not contradict the promise",
    }
    got = f"{share:.3f} ({low:.3f} to {high:.3f})"
    return f"asked {asked:g}, got {got}: {in_words[holds(asked, low, high)]}"


def to_json(asked: float, share: float, interval: list[float], these: str) -> dict[str, Any]:
    """What was promised and whether it holds, as files have it; see `verdict`."""
    low, high = interval
    return {
        "promised": asked,
        "holds": holds(asked, low, high),
        "in_words": verdict(asked, share, low, high, these),
    }
