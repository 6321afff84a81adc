"""Numbers of the evidence as text, for the blocks of the pages."""

import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import better_heads
import pooling
from answers import (
    Answer,
    of_contrast,
    results,
    secondary,
    studies_of,
)
from effects import is_inside
from pretrained import answers as pretrained_answers
from pretrained import committed, design
from pretrained.collecting import FOLDER
from times import ratio, times

from train.series.contrasts import Contrast

POINTS = 100.0


def with_interval(found: Contrast) -> str:
    """A difference in points, with its 95 % interval."""
    return f"{POINTS * found.estimate:+.2f} ± {POINTS * found.half_width:.2f}"


def p_value_text(value: float) -> str:
    """With as many digits as the bootstrap has."""
    return "below 0.001" if value < 1e-3 else f"{value:.2g}"


def number_text(value: Any) -> str:
    """A parameter, with four digits if it is a real number."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def from_to(found: Sequence[Answer]) -> str:
    """The smallest and the largest difference, in points."""
    return range_of([one.found for one in found])


def gain(question: str, contrast: str) -> str:
    """The difference of a contrast: with its interval in one study, from and to in several."""
    return _gain([one.found for one in of_contrast(question, contrast)])


def in_studies(question: str, contrast: str) -> str:
    """The answers to a contrast over the studies: "better in 2, undecided in 1 of 3 studies".

    A single study has the answer alone: "better".
    """
    found = of_contrast(question, contrast)
    if len(found) == 1:
        return found[0].verdict
    return f"{_counted([one.verdict for one in found])} studies"


def difference(question: str, contrast: str) -> str:
    """The difference of a contrast and its answers: "-1.92 ± 1.28, undecided"."""
    return f"{gain(question, contrast)}, {in_studies(question, contrast)}"


def selected(question: str, arm: str, field: str) -> str:
    """The smallest and the largest value that the searches selected for a field of an arm.

    Raises:
        ValueError: no study of the question has the arm.
    """
    values = [found["selected"][field] for found in _arms(question) if found["name"] == arm]
    if not values:
        raise ValueError(f"no study of {question!r} has the arm {arm!r}")
    return ends(values, number_text)


def accuracy(study: str, arm: str, metric: str | None = None) -> str:
    """The mean test accuracy of an arm over the fresh seeds, in per cent.

    Args:
        study: the name of the study.
        arm: that of the arm.
        metric: the accuracy, in a test's metrics; None is the one that the study selects by.

    Raises:
        ValueError: the study has no such arm or metric.
    """
    of_study = results(study)
    arms = {one["name"]: one for one in of_study["arms"]}
    if arm not in arms:
        raise ValueError(f"{study} has no arm {arm!r}; it has {list(arms)}")
    return f"{POINTS * statistics.mean(scores(of_study, arms[arm], metric)):.1f}"


def secondary_gain(question: str, contrast: str) -> str:
    """The difference of a secondary contrast, as `gain` has that of a primary one.

    Raises:
        ValueError: no study of the question has the contrast.
    """
    studies = studies_of(question)
    numbers = [found for study, name, found in secondary() if study in studies and name == contrast]
    if not numbers:
        raise ValueError(f"no study of {question!r} has the secondary contrast {contrast!r}")
    return _gain(numbers)


def better_head_gain(question: str, loss: str) -> str:
    """The difference from cross-entropy if each of the two has its better head.

    Raises:
        ValueError: no study of the question tried the loss and cross-entropy with several heads.
    """
    studies = studies_of(question)
    numbers = [
        one.found
        for one in better_heads.differences()
        if one.study in studies and one.first.partition(", ")[0] == loss
    ]
    if not numbers:
        raise ValueError(f"no study of {question!r} compares {loss!r} with its better head")
    return _gain(numbers)


def published_inside(question: str, contrast: str) -> str:
    """How many of the intervals have the largest published effect inside: "0 of 6"."""
    known = [answer for answer in of_contrast(question, contrast) if answer.published]
    return f"{sum(is_inside(one.published, one.found) for one in known)} of {len(known)}"


def on_average(question: str, contrast: str) -> str:
    """The answer of the hierarchical model to a contrast.

    Raises:
        ValueError: the question has no such contrast over several studies.
    """
    found = {(one.question, one.name): one.pooled for one in pooling.pooled_contrasts()}
    if (question, contrast) not in found:
        raise ValueError(f"no model of {question!r} has the contrast {contrast!r}")
    return found[question, contrast].verdict


def pretrained_difference(question: str, contrast: str) -> str:
    """The differences of a contrast on a pretrained network: "+0.2 to +1.5, better in 2 of 6".

    Raises:
        ValueError: the question is not complete, or has no such contrast.
    """
    found = _pretrained_answers(question, contrast)
    counts = _counted([one.verdict for one in found])
    return f"{range_of([one.difference.found for one in found])}, {counts} settings"


def pretrained_detectable(question: str, contrast: str) -> str:
    """The smallest and the largest detectable effect of a contrast on a pretrained network.

    Raises:
        ValueError: as of `pretrained_difference`.
    """
    found = [one.detectable for one in _pretrained_answers(question, contrast)]
    return ends(found, lambda effect: f"{100 * effect:.2f}")


def pretrained_top_1(question: str, loss: str) -> str:
    """The top-1 differences from cross-entropy with the same head, on a pretrained network.

    Raises:
        ValueError: the question is not complete, or has no such loss.
    """
    study = design.study()
    found = [
        one.top_1
        for finished in committed.complete(study, FOLDER)
        if finished.setting.question == question
        for one in pretrained_answers.secondary(study, finished)
        if one.loss == loss and one.top_1 is not None
    ]
    if not found:
        raise ValueError(f"no complete setting of {question!r} has the loss {loss!r}")
    return range_of(found)


def _pretrained_answers(question: str, contrast: str) -> list[pretrained_answers.Answer]:
    found = [
        one
        for one in committed.answered()
        if (one.difference.setting.question, one.difference.contrast.name) == (question, contrast)
    ]
    if not found:
        raise ValueError(f"no complete setting of {question!r} has the contrast {contrast!r}")
    return found


def _counted(verdicts: Sequence[str]) -> str:
    """How often each answer was given: "better in 2, undecided in 1 of 3"."""
    counts = sorted(Counter(verdicts).items())
    told = ", ".join(f"{verdict} in {count}" for verdict, count in counts)
    return f"{told} of {len(verdicts)}"


def _arms(question: str) -> list[Mapping[str, Any]]:
    """The arms of all studies of a question."""
    return [arm for study in studies_of(question) for arm in results(study)["arms"]]


def _gain(found: Sequence[Contrast]) -> str:
    return with_interval(found[0]) if len(found) == 1 else range_of(found)


def range_of(found: Sequence[Contrast]) -> str:
    """The smallest and the largest of these differences, in points."""
    return ends([POINTS * one.estimate for one in found], "{:+.2f}".format)


def ends(values: Sequence[Any], text: Callable[[Any], str]) -> str:
    """The smallest and the largest value."""
    return " to ".join(dict.fromkeys(map(text, (min(values), max(values)))))


def scores(
    of_study: Mapping[str, Any], arm: Mapping[str, Any], metric: str | None = None
) -> list[float]:
    """The accuracies of an arm by seed; runs that diverged count as 0.

    Raises:
        ValueError: the runs do not have the metric.
    """
    name = of_study["select_by"] if metric is None else metric
    return [0.0 if run["diverged"] else _measured(run["metrics"], name) for run in arm["runs"]]


def _measured(metrics: Mapping[str, float | None], name: str) -> float:
    value = metrics.get(name)
    if value is None:
        known = [one for one, other in metrics.items() if other is not None]
        raise ValueError(f"no run has measured {name!r}; they have {known}")
    return value


def time_of_the_expectation(question: str) -> str:
    """How many times as long the expected hinge takes as the noised one, from and to."""
    found = times()
    ratios = [ratio(found[study]) for study in studies_of(question) if study in found]
    return ends(ratios, "{:.1f}".format)


def time_of_an_epoch(question: str, arm: str, other: str) -> str:
    """How many times as long an epoch of an arm takes as one of another arm, from and to.

    Raises:
        ValueError: no study of the question has both.
    """
    ratios = []
    for study in studies_of(question):
        seconds = {
            # The median of a run leaves out the compilation in its first epoch.
            one["name"]: statistics.median(
                statistics.median(run["epoch_seconds"]) for run in one["runs"]
            )
            for one in results(study)["arms"]
        }
        if arm in seconds and other in seconds:
            ratios.append(seconds[arm] / seconds[other])
    if not ratios:
        raise ValueError(f"no study of {question!r} has the arms {arm!r} and {other!r}")
    return ends(ratios, "{:.2f}".format)


def best_in_the_last_epoch(question: str) -> str:
    """How many of the runs with fresh seeds were best in their last epoch: "29 of 30"."""
    curves = [run["validation_by_epoch"] for arm in _arms(question) for run in arm["runs"]]
    # An epoch that is only as good as an earlier one is not selected.
    last = sum(curve[-1] > max(curve[:-1]) for curve in curves)
    return f"{last} of {len(curves)}"


# What braces of blocks.toml may ask for: `{gain QUESTION; CONTRAST}`. A part of a question or a
# study may replace the question.
KINDS: Mapping[str, Callable[..., str]] = {
    "difference": difference,
    "gain": gain,
    "secondary gain": secondary_gain,
    "in studies": in_studies,
    "better head gain": better_head_gain,
    "pretrained difference": pretrained_difference,
    "pretrained detectable": pretrained_detectable,
    "pretrained top-1": pretrained_top_1,
    "published inside": published_inside,
    "on average": on_average,
    "selected": selected,
    "accuracy": accuracy,
    "time of the expectation": time_of_the_expectation,
    "time of an epoch": time_of_an_epoch,
    "best in the last epoch": best_in_the_last_epoch,
}
_ASKED = re.compile(rf"(?P<kind>{'|'.join(KINDS)}) (?P<arguments>.+)")
_BRACES = re.compile(r"\{([^{}]*)\}")


def number(asked: str) -> str:
    """The text of a number: a kind of KINDS and its arguments.

    Raises:
        ValueError: there is no such kind, or its arguments name nothing.
    """
    found = _ASKED.fullmatch(asked)
    if not found:
        raise ValueError(f"a number must be one of {list(KINDS)}, with arguments; got {asked!r}")
    return KINDS[found["kind"]](*found["arguments"].split("; "))


def filled(template: str) -> str:
    """A text whose braces ask for numbers, with the numbers of now."""
    return _BRACES.sub(lambda braces: number(braces[1]), template)


def block(template: str) -> str:
    """A block of blocks.toml with the numbers of now, between empty lines."""
    return f"\n{filled(template)}\n"
