"""The claims of the thesis, and whether the answers reproduce them."""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import first_edition as earlier
from answers import (
    FOLDER,
    Answer,
    detectable,
    fine_tuned,
    of_contrast,
    results,
    secondary,
    studies_of,
)
from effects import Effect, combined
from pretrained import committed
from pretrained.answers import Answer as PretrainedAnswer
from unplanned import Unplanned

from train.series.contrasts import Contrast

# The answers that speak against a claim, and those that not a single study may have.
_AGAINST = {
    "better": ("worse", "equivalent"),
    "worse": ("better", "equivalent"),
    "equivalent": ("better", "worse"),
}
_REVERSED = {"better": ("worse",), "worse": ("better",), "equivalent": ("better", "worse")}
# Steps of the network of the published times, and its losses alone for several K.
_STEPS = FOLDER.parents[1] / "benchmarks" / "results" / "train_step_densenet-gpu.json"
_LOSSES = _STEPS.with_name("train_step-cpu.json")
# The values of K of the published times.
_SMALL_K, _LARGE_K = 5, 10


@dataclass(frozen=True)
class Time:
    """What a loss adds to a step of training.

    Attributes:
        name: that of the loss.
        percent: its time, less the time of cross-entropy, in per cent of a step.
        published: the same of an epoch.
    """

    name: str
    percent: float
    published: float


@dataclass(frozen=True)
class Claim:
    """A claim of the thesis, as `claims.toml` has it.

    Attributes:
        claim: the claim in words.
        source: where it is.
        question: the question whose studies test it; empty for one that no question tests.
        contrast: the name of the primary contrast that does.
        expected: the answer that it expects of its contrasts.
        untested: why no primary contrast tests it.
        remark: what else to know about the test.
        cells: the published effects, as `effects.combined` reads them. The effects of a claim
            without cells are those of its contrasts.
        published_text: a published effect that is not in points, in words.
        secondary: secondary contrasts of a claim without a primary one.
        unplanned: differences that no study planned, of a claim without a primary contrast.
        fine_tuned: a study of `fine_tuned.md`, and a primary contrast of it that tests the claim.
        pretrained: a question of `pretrained.md`, and a primary contrast of it that tests this.
        first_edition: the claim of the first edition.
        steps: the losses whose time in a step of training was published: how much longer the step
            is than with cross-entropy, in per cent, the fastest loss first.
        growth: losses whose time for two values of K is measured, in the order of its growth.
        unit: of the detectable effects, if these are not points.
        unfair: why the test of it is not fair; empty for one that is.
        limit: where the verdict holds only, in words; empty if the studies agree.
    """

    claim: str
    source: str
    question: str = ""
    contrast: str = ""
    expected: str = ""
    untested: str = ""
    remark: str = ""
    cells: tuple[Sequence[str], ...] = ()
    published_text: str = ""
    secondary: tuple[str, ...] = ()
    unplanned: tuple[Mapping[str, Any], ...] = ()
    fine_tuned: tuple[str, ...] = ()
    pretrained: tuple[str, ...] = ()
    first_edition: str = ""
    steps: Mapping[str, float] = field(default_factory=dict)
    growth: tuple[str, ...] = ()
    unit: str = ""
    unfair: str = ""
    limit: str = ""

    @property
    def answers(self) -> list[Answer]:
        """Those of its contrast, by study."""
        return of_contrast(self.question, self.contrast) if self.contrast else []

    @property
    def fine_tuned_answers(self) -> list[Answer]:
        """The answer of the study of fine-tuning, if it tests the claim."""
        if not self.fine_tuned:
            return []
        study, contrast = self.fine_tuned
        return [one for one in fine_tuned(study) if one.planned.name == contrast]

    @property
    def pretrained_answers(self) -> list[PretrainedAnswer]:
        """The answers of the study on a pretrained network, if its question is complete."""
        return [
            one
            for one in _of_pretrained_network()
            if (one.difference.setting.question, one.difference.contrast.name)
            == tuple(self.pretrained)
        ]

    @property
    def deciding(self) -> Sequence[Answer | PretrainedAnswer]:
        """The answers that decide: of the first studies or, where none has the contrast, later."""
        return self.answers or [*self.fine_tuned_answers, *self.pretrained_answers]

    @property
    def published(self) -> list[Effect]:
        """The published effects, each once."""
        found = [combined(cells) for cells in self.cells] or [
            one for answer in self.deciding for one in answer.published
        ]
        return list(dict.fromkeys(found))

    @property
    def others(self) -> list[tuple[str, Contrast]]:
        """What was found for its secondary and its unplanned contrasts, with their studies."""
        studies = studies_of(self.question) if self.secondary else ()
        planned = [
            (study, found)
            for study, name, found in secondary()
            if study in studies and name in self.secondary
        ]
        return planned + [one for given in self.unplanned for one in Unplanned(**given).found]

    @property
    def comparisons(self) -> list[earlier.Comparison]:
        """Those of the first edition."""
        if not self.first_edition:
            return []
        return list(earlier.CLAIMS[self.first_edition]())

    @property
    def times(self) -> list[Time]:
        """What its losses add to a step."""
        (network,) = json.loads(_STEPS.read_text())["models"]
        return [
            Time(name, found["loss_overhead_percent"], published)
            for name, published in self.steps.items()
            for found in network["losses"]
            # Three samples in the thesis; other losses have none.
            if found["loss"] == name and found["M"] in (3, None)
        ]

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as long its losses take for the larger K."""
        network, _ = json.loads(_LOSSES.read_text())["models"]
        seconds = {
            (found["loss"], found["K"]): found["loss_seconds"]
            for found in network["losses"]
            if found["M"] in (3, None)
        }
        return {name: seconds[name, _LARGE_K] / seconds[name, _SMALL_K] for name in self.growth}

    @property
    def detectable(self) -> list[float]:
        """The detectable effects, in points, with the same correction but in later studies."""
        found = [100 * answer.detectable for answer in self.deciding]
        for study, contrast in self.others:
            seeds = len(results(study)["arms"][0]["runs"])
            found.append(100 * detectable(contrast.standard_error, seeds - 1))
        # The numbers of the first edition are points, or coordinates.
        found += [
            detectable(one.difference.standard_error, one.difference.freedom)
            for one in self.comparisons
        ]
        return found

    @property
    def verdict(self) -> str:
        """Whether the claim is reproduced, by the rules of the design."""
        if self.unfair:
            return "no fair test"
        found = self._found
        return f"{found} {self.limit}" if self.limit and found != "cannot tell" else found

    @property
    def _found(self) -> str:
        """The verdict without a limit."""
        if answers := self.deciding:
            return self._by_rule([answer.verdict for answer in answers])
        if self.others:
            counts = Counter(self._side(found) for _, found in self.others)
            return f"secondary: {', '.join(f'{counts[one]} {one}' for one in sorted(counts))}"
        if self.comparisons:
            return f"{earlier.verdict(self.comparisons).lower()} (first edition)"
        if times := self.times:
            in_order = times == sorted(times, key=lambda time: time.percent)
            small = all(time.percent <= time.published for time in times)
            return "reproduced" if in_order and small else "not reproduced"
        if ratios := list(self.ratios.values()):
            return "reproduced" if ratios == sorted(ratios) else "not reproduced"
        return "not tested"

    def _side(self, found: Contrast) -> str:
        """For what the 95 % interval of a contrast without a correction speaks."""
        if abs(found.estimate) <= found.half_width:
            return "open"
        side = "better" if found.estimate > 0 else "worse"
        return "for" if side == self.expected else "against"

    def _by_rule(self, verdicts: Sequence[str]) -> str:
        """The rule of the design, with "cannot tell" as one kind of undecided."""
        if set(verdicts) == {"cannot tell"}:
            return "cannot tell"
        counts = Counter("undecided" if one == "cannot tell" else one for one in verdicts)
        if counts["undecided"] == counts.total():
            return "undecided"
        against = sum(counts[verdict] for verdict in _AGAINST[self.expected])
        half = counts.total() / 2
        reversed_ = sum(counts[verdict] for verdict in _REVERSED[self.expected])
        if counts[self.expected] > half and not reversed_:
            return "reproduced"
        return "not reproduced" if against > half else "mixed"


@cache
def _of_pretrained_network() -> list[PretrainedAnswer]:
    return committed.answered()


@cache
def claims() -> list[Claim]:
    """All claims, in the order of the file."""
    content = tomllib.loads((FOLDER / "claims.toml").read_text())
    return [Claim(**claim) for claim in content["claims"]]
