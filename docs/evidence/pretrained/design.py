"""What `study.toml` plans: settings, arms, their candidates, searches and contrasts."""

import functools
import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

_FILE = Path(__file__).parent / "study.toml"
# Values of candidates have as many digits.
_DIGITS = 4

HEADS = ("linear", "cosine")
Rule = Literal["correct", "wrong"]


@dataclass(frozen=True)
class Range:
    """A range of a parameter.

    Attributes:
        start: its lower end.
        end: its upper end.
        is_log: whether values are uniform in their logarithm.
    """

    start: float
    end: float
    is_log: bool

    def at(self, share: float) -> float:
        """The value after this share of the range, with few digits."""
        if self.is_log:
            value = math.exp(
                math.log(self.start) + share * (math.log(self.end) - math.log(self.start))
            )
        else:
            value = self.start + share * (self.end - self.start)
        return float(f"{value:.{_DIGITS}g}")

    def share_of(self, value: float) -> float:
        """How much of the range lies below the value."""
        if self.is_log:
            return math.log(value / self.start) / math.log(self.end / self.start)
        return (value - self.start) / (self.end - self.start)


@dataclass(frozen=True)
class Setting:
    """Data that all arms are trained on.

    Attributes:
        name: its name.
        question: tail, noise or sets.
        data_set: tiny_imagenet or omniglot.
        steps: the steps of a run.
        batch_size: the examples of a step.
        largest: the training images of the largest class of a long tail; None if there is none.
        smallest: those of the smallest class.
        wrong: the share of wrong training labels.
        groups: within or across groups of similar classes, what wrong labels stay in.
    """

    name: str
    question: str
    data_set: str
    steps: int
    batch_size: int
    largest: float | None = None
    smallest: float | None = None
    wrong: float = 0.0
    groups: str | None = None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The labels of the validation images that may select."""
        return ("correct", "wrong") if self.wrong else ("correct",)


@dataclass(frozen=True)
class Loss:
    """A loss.

    Attributes:
        name: its name.
        questions: the questions that it is an arm of.
        searches: how many of the searches it has.
        spaces: by head, the ranges of its parameters; a number is fixed.
    """

    name: str
    questions: tuple[str, ...]
    searches: int
    spaces: Mapping[str, Mapping[str, Range | float]]


@dataclass(frozen=True)
class Search:
    """A search of the parameters of an arm.

    Attributes:
        name: its name.
        seeds: the first is that of all candidates, the others are those of the finalists.
    """

    name: str
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Arm:
    """A loss with a head in a setting, and one of its searches.

    Attributes:
        setting: the setting.
        loss: the loss.
        head: linear or cosine.
        search: the search.
    """

    setting: Setting
    loss: Loss
    head: str
    search: Search


@dataclass(frozen=True)
class Contrast:
    """A planned difference of two losses, each with its better head.

    Attributes:
        question: the question of the settings that have it.
        first: the name of the first loss.
        second: the name of the loss that is subtracted.
        is_equivalence: whether an equivalence is planned.
        losses: the two losses in the tables of the thesis; empty if nothing was published.
        cells: the table and the columns of each published effect.
    """

    question: str
    first: str
    second: str
    is_equivalence: bool
    losses: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.first} - {self.second}"


@dataclass(frozen=True)
class Study:
    """The numbers of the design.

    Attributes:
        settings: in the order in which they run.
        losses: the losses; those with two searches first.
        searches: the searches.
        contrasts: the primary contrasts.
        seeds: of the runs that are compared.
        numbers: all other numbers of the file.
        digest: the SHA-256 of the file.
    """

    settings: tuple[Setting, ...]
    losses: tuple[Loss, ...]
    searches: tuple[Search, ...]
    contrasts: tuple[Contrast, ...]
    seeds: tuple[int, ...]
    numbers: Mapping[str, Any]
    digest: str

    def losses_of(self, setting: Setting) -> list[Loss]:
        """The losses of a setting."""
        return [loss for loss in self.losses if setting.question in loss.questions]

    def searches_of(self, loss: Loss) -> tuple[Search, ...]:
        """The searches of a loss."""
        return self.searches[: loss.searches]

    def contrasts_of(self, setting: Setting) -> list[Contrast]:
        """The primary contrasts of a setting."""
        return [one for one in self.contrasts if one.question == setting.question]

    def arms_of(self, setting: Setting) -> list[Arm]:
        """The arms of a setting, each with each of its searches."""
        return [
            Arm(setting, loss, head, search)
            for loss in self.losses_of(setting)
            for search in self.searches_of(loss)
            for head in HEADS
        ]

    def arms(self) -> list[Arm]:
        """All arms in the order in which they run.

        Those with two searches come first in all settings: the primary contrasts need these.
        """
        every = [arm for setting in self.settings for arm in self.arms_of(setting)]
        return sorted(every, key=lambda arm: arm.loss.searches == 1)

    def candidates(self, arm: Arm) -> list[dict[str, float]]:
        """The candidates of an arm's search, from a low-discrepancy sequence.

        Each arm and search has a shift of its own, so that a lucky draw is one of one arm alone.
        """
        space = arm.loss.spaces[arm.head]
        ranges = {name: one for name, one in space.items() if isinstance(one, Range)}
        words = "\n".join([arm.setting.name, arm.loss.name, arm.head, arm.search.name])
        seed = int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big")
        shares = low_discrepancy(self.numbers["candidates"], len(ranges), seed)
        return [
            {
                **{name: one for name, one in space.items() if not isinstance(one, Range)},
                **{
                    name: one.at(share)
                    for (name, one), share in zip(ranges.items(), row, strict=True)
                },
            }
            for row in shares.tolist()
        ]


def low_discrepancy(count: int, dimensions: int, seed: int) -> np.ndarray:
    """Points of the unit cube, [count, dimensions]: a lattice with a random shift.

    In each dimension the points have equal distances. The lattice is the one of Korobov's whose
    wrap-around discrepancy (Hickernell, 1998) is smallest; a shift does not change it.
    """
    units = [one for one in range(1, count) if math.gcd(one, count) == 1]
    lattices = [_lattice(count, dimensions, unit) for unit in units]
    shift = np.random.default_rng(seed).random(dimensions)
    return (min(lattices, key=_discrepancy) + shift) % 1


def _lattice(count: int, dimensions: int, generator: int) -> np.ndarray:
    steps = [pow(generator, power, count) for power in range(dimensions)]
    return np.outer(np.arange(count), steps) % count / count


def _discrepancy(points: np.ndarray) -> float:
    """The squared wrap-around discrepancy, plus a constant."""
    distances = np.abs(points[:, None] - points)
    return float((1.5 - distances * (1 - distances)).prod(axis=-1).mean())


@functools.cache
def study(path: Path = _FILE) -> Study:
    """The study that a file plans."""
    text = path.read_text()
    content = tomllib.loads(text)
    heads = {name: content["heads"][name]["space"] for name in HEADS}
    tables = {name: content.pop(name) for name in ("settings", "losses", "searches", "contrasts")}
    return Study(
        settings=tuple(Setting(**one) for one in tables["settings"]),
        losses=tuple(_loss(one, heads) for one in tables["losses"]),
        searches=tuple(Search(one["name"], tuple(one["seeds"])) for one in tables["searches"]),
        contrasts=tuple(
            Contrast(
                one["question"],
                one["first"],
                one["second"],
                one.get("equivalence", False),
                tuple(one.get("losses", ())),
                tuple(map(tuple, one.get("cells", ()))),
            )
            for one in tables["contrasts"]
        ),
        seeds=tuple(content.pop("seeds")),
        numbers=content,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def _loss(table: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]]) -> Loss:
    spaces = {
        head: {
            name: _range(value)
            for name, value in {
                **space,
                **table.get("space", {}),
                **table.get(head, {}),
            }.items()
        }
        for head, space in heads.items()
    }
    return Loss(table["name"], tuple(table["questions"]), table["searches"], spaces)


def _range(value: Any) -> Range | float:
    if not isinstance(value, Mapping):
        return float(value)
    return Range(value["from"], value["to"], value.get("scale", "log") == "log")


def names(these: Sequence[Setting | Loss | Search]) -> list[str]:
    """Their names."""
    return [one.name for one in these]
