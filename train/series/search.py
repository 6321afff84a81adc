"""A random search of some fields; it is extended while the best candidate is at a range's end."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.reports.metric import Metric
from train.series import parameters
from train.series.parameters import Choice, Parameter, Range, Side
from train.series.recipe import Overrides, Recipe

# How often a search is extended at most, and with how many candidates each time.
ROUNDS = 3
_PER_ROUND = 4
_ATTEMPTS = 100


@dataclass(frozen=True)
class Drawn:
    """The candidates of a search that are known now.

    Attributes:
        seed: the seed of the draws.
        space: the parameters, with the ranges as they are now.
        candidates: the candidates, each once.
        extensions: the rounds of more candidates.
    """

    seed: int
    space: tuple[Parameter, ...]
    candidates: tuple[Overrides, ...]
    extensions: tuple["Extension", ...] = ()


@dataclass(frozen=True)
class Extension:
    """A round of more candidates.

    Attributes:
        first: the index of its first candidate.
        ranges: by field, the range after the extension.
        sides: by field, the end that was extended.
    """

    first: int
    ranges: Mapping[str, Range]
    sides: Mapping[str, Side]


@functools.cache
def begin(space: tuple[Parameter, ...], count: int, seed: int) -> Drawn:
    """The first candidates: random draws, or every combination of choices if there are fewer."""
    return Drawn(seed, space, _draw(space, count, seed, part=0, known=()))


def extended(known: Drawn, best: Overrides) -> Drawn | None:
    """The candidates with a round of more.

    If the best candidate is near an end of a range, the range is extended there. The new candidates
    have these fields in the new parts and in the outer tenths beside them, and the other fields
    anywhere.

    Args:
        known: the candidates, all of which have a score.
        best: the best candidate.

    Returns:
        None if no parameter of the best candidate is near an end that can be extended, or if the
        ranges were extended often enough.
    """
    values = dict(best)
    sides: dict[str, Side] = {}
    for parameter in known.space:
        side = None if isinstance(parameter, Choice) else parameter.edge(values[parameter.name])
        if side is not None:
            sides[parameter.name] = side
    if not sides or len(known.extensions) == ROUNDS:
        return None
    space: list[Parameter] = []
    drawn: list[Parameter] = []
    for parameter in known.space:
        if isinstance(parameter, Range) and parameter.name in sides:
            space.append(parameter.extended(sides[parameter.name]))
            drawn.append(parameter.beyond(sides[parameter.name]))
        else:
            space.append(parameter)
            drawn.append(parameter)
    part = len(known.extensions) + 1
    more = _draw(drawn, _PER_ROUND, known.seed, part=part, known=known.candidates)
    ranges = {one.name: one for one in space if isinstance(one, Range) and one.name in sides}
    extension = Extension(len(known.candidates), ranges, sides)
    return Drawn(
        known.seed,
        tuple(space),
        (*known.candidates, *more),
        (*known.extensions, extension),
    )


@dataclass(frozen=True)
class Search:
    """Candidates for some fields; the best on the validation split is selected.

    Attributes:
        recipe: the recipe that each candidate changes.
        space: the fields.
        metric: the accuracy that candidates are selected by.
        count: the number of candidates before extensions.
        finalists: how many of them are run with all seeds.
        seeds: the seeds of the runs; all candidates run with the first.
        draw_seed: the seed of the draws.
    """

    recipe: Recipe
    space: tuple[Parameter, ...]
    metric: Metric
    count: int
    finalists: int = 1
    seeds: tuple[int, ...] = (0,)
    draw_seed: int = 0

    @property
    def first(self) -> Drawn:
        """The candidates before extensions."""
        return begin(self.space, self.count, self.draw_seed)

    @property
    def recipes(self) -> list[Recipe]:
        """The recipes of these candidates."""
        return [self.recipe.changed(fields) for fields in self.first.candidates]


def furthest(parameter: Range, side: Side) -> float:
    """The value that extensions of one end can reach."""
    for _ in range(ROUNDS):
        parameter = parameter.extended(side)
    return parameter.start if side == "low" else parameter.end


def _draw(
    space: Sequence[Parameter], count: int, seed: int, *, part: int, known: Sequence[Overrides]
) -> tuple[Overrides, ...]:
    """Different candidates that are not known."""
    if all(isinstance(parameter, Choice) for parameter in space):
        choices = [parameter for parameter in space if isinstance(parameter, Choice)]
        if math.prod(len(choice.values) for choice in choices) <= count:
            names = [choice.name for choice in choices]
            every = itertools.product(*(choice.values for choice in choices))
            return tuple(tuple(zip(names, values, strict=True)) for values in every)
    generators = {one.name: parameters.generator(seed, one.name, part) for one in space}
    drawn: dict[Overrides, None] = {}
    # A range can be so narrow that it has fewer values of four digits than are wanted.
    for _ in range(_ATTEMPTS * count):
        candidate = tuple((one.name, one.draw(generators[one.name])) for one in space)
        if candidate not in known:
            drawn[candidate] = None
        if len(drawn) == count:
            break
    return tuple(drawn)
