"""What sets promise, and how many examples that needs."""

import math
from dataclasses import dataclass
from decimal import Decimal

from topk_jax.rules._numbers import error_of, percent


class TooFewError(ValueError):
    """The calibration examples are too few for what the sets are to promise."""


@dataclass(frozen=True)
class CalibratedOn:
    """The examples that limits come from.

    Attributes:
        examples: their number n.
        groups: how many independent examples say as much, at least. It is less than n if examples
            of a group are alike.
        on: what they are, in words.
    """

    examples: int
    groups: float
    on: str

    def law(self, coverage: float) -> tuple[float, float] | None:
        """The two parameters of the beta distribution that the true coverage of the limits has.

        The limit is the score of rank r = ceil((n + 1) coverage) among n, and the coverage is then
        beta(r, n + 1 - r). If the examples of each of g groups are alike, it is the score of rank
        g r / n among the groups. It varies less if they are less alike.

        Args:
            coverage: the promised coverage.

        Returns:
            The parameters; None for limits of which nothing is promised, or that have all classes.
        """
        rank = math.ceil((self.examples + 1) * (1 - error_of(coverage)))
        if not 0 < rank <= self.examples:
            return None
        below = self.groups * rank / self.examples
        return below, self.groups + 1 - below


@dataclass(frozen=True)
class Promise:
    """How often sets have the label.

    Attributes:
        coverage: the probability of that, at least; for a label that is drawn, if the truth is
            several classes.
        calibrated_on: the examples that the limits come from; None if that is not known.
    """

    coverage: float
    calibrated_on: CalibratedOn | None = None

    @property
    def in_words(self) -> str:
        """A sentence."""
        of = "a new example"
        if self.calibrated_on is not None:
            of += f" like {self.calibrated_on.on}"
        return (
            f"The true class of {of} is in its set with a probability of at least "
            f"{percent(self.coverage)}."
        )


def fewest_examples(error: Decimal) -> int:
    """The fewest examples whose quantile at this error is one of their scores."""
    return math.ceil(1 / error - 1)


def check_enough(number: int, coverage: float) -> None:
    """Raises `TooFewError` if so few examples can only promise it by sets of all classes."""
    fewest = fewest_examples(error_of(coverage))
    if number < fewest:
        raise TooFewError(
            f"a coverage of {coverage} needs at least 1 / {error_of(coverage)} - 1 = {fewest} "
            f"examples to calibrate on; there are {number}"
        )
