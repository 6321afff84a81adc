"""Numbers and tables as the pages of the comparison of losses print them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

from tests.reference._study_answers import Difference


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def signed(points: float) -> str:
    """A difference in points."""
    return f"{points:+.2f}"


def with_interval(found: Difference) -> str:
    """A difference and half of its interval."""
    return f"{signed(found.points)} ± {found.half_width:.2f}"


def probability(p_value: float | None) -> str:
    """A p-value with two digits; empty without a test."""
    if p_value is None:
        return ""
    return "below 0.001" if p_value < 0.001 else f"{p_value:.2g}"


def extremes(numbers: Sequence[float | Decimal], style: str) -> str:
    """The smallest and the largest number; one of them if both read the same."""
    smallest, largest = (f"{one:{style}}" for one in (min(numbers), max(numbers)))
    return smallest if smallest == largest else f"{smallest} to {largest}"


def counted(words: Iterable[str]) -> str:
    """How often each word comes, in alphabetical order."""
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))
