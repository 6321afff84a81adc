"""The numbers that blocks and sentences about the comparison of losses rest on, computed again."""

from collections import Counter
from collections.abc import Callable

from tests.reference import _pretrained_study as pretrained
from tests.reference import _studies as studies
from tests.reference import _study_answers as answers
from tests.reference import _study_pooling as pooling
from tests.reference import _study_text as text
from tests.reference import _study_times as times


def gain(question: str, name: str) -> str:
    """The differences of a primary contrast."""
    return _spread([one.difference for one in answers.answers_to(question, name)])


def secondary_gain(question: str, name: str) -> str:
    """The differences of a secondary contrast."""
    return _spread(
        [
            answers.difference(contrast)
            for study in studies.studies_of(question)
            for contrast in studies.contrasts(study)
            if contrast.name == name and not contrast.primary
        ]
    )


def better_head_gain(question: str, loss: str) -> str:
    """The differences from cross-entropy with the better heads."""
    asked = studies.studies_of(question)
    return _spread(
        [
            one
            for one in pooling.better_heads()
            if one.contrast.study in asked and one.contrast.first.split(", ")[0] == loss
        ]
    )


def published_inside(question: str, name: str) -> str:
    """How many intervals have the largest published effect inside."""
    return answers.published_inside(answers.answers_to(question, name))


def on_average(question: str, name: str) -> str:
    """The answer of the hierarchical model, over all studies of the question."""
    return pooling.verdict(pooling.model(question, name, 2.0)[0])


def _spread(found: list[answers.Difference]) -> str:
    """The interval of one study, or the smallest and the largest difference of several."""
    if len(found) == 1:
        return text.with_interval(found[0])
    return text.extremes([one.points for one in found], "+.2f")


def in_studies(question: str, name: str) -> str:
    """How many of the studies gave which answer to a primary contrast."""
    verdicts = [one.verdict for one in answers.answers_to(question, name)]
    if len(verdicts) == 1:
        return verdicts[0]
    found = sorted(Counter(verdicts).items())
    counts = ", ".join(f"{verdict} in {count}" for verdict, count in found)
    return f"{counts} of {len(verdicts)} studies"


def pretrained_difference(question: str, name: str) -> str:
    """The differences of a contrast on a pretrained network, and the answers in its settings."""
    found = _pretrained_answers(question, name)
    counts = sorted(Counter(one.verdict for one in found).items())
    verdicts = ", ".join(f"{verdict} in {count}" for verdict, count in counts)
    extremes = text.extremes([one.points for one in found], "+.2f")
    return f"{extremes}, {verdicts} of {len(found)} settings"


def pretrained_detectable(question: str, name: str) -> str:
    """The detectable effects of a contrast on a pretrained network."""
    found = _pretrained_answers(question, name)
    return text.extremes([one.detectable for one in found], ".2f")


def pretrained_top_1(question: str, loss: str) -> str:
    """The top-1 differences from cross-entropy with the same head, in the settings."""
    settings = _pretrained_settings(question)
    found = []
    for row in pretrained.secondary(pretrained.read()):
        setting, name, top_1 = row[0], row[1], row[4]
        if setting in settings and name in (f"{loss}, linear", f"{loss}, cosine"):
            assert isinstance(top_1, tuple)
            found.append(top_1[0])
    return text.extremes(found, "+.2f")


def _pretrained_answers(question: str, name: str) -> list[pretrained.Answer]:
    settings = _pretrained_settings(question)
    return [
        one
        for one in pretrained.answers(pretrained.read())
        if one.setting in settings and one.contrast == name
    ]


def _pretrained_settings(question: str) -> set[str]:
    return {one["name"] for one in pretrained.plan()["settings"] if one["question"] == question}


def difference(question: str, name: str) -> str:
    """The differences of a primary contrast, and how many studies gave which answer."""
    return f"{gain(question, name)}, {in_studies(question, name)}"


def accuracy(study: str, arm: str, metric: str = "") -> str:
    """The mean accuracy of a loss in a study: of the kind that it selects by, or of another one."""
    kind = metric or studies.results(study)["select_by"]
    return f"{answers.stored_accuracies(study, arm, kind).mean():.1f}"


def selected(question: str, arm: str, field: str) -> str:
    """The values of a parameter that the studies selected for a loss."""
    found = [
        one["selected"][field]
        for study in studies.studies_of(question)
        for one in studies.results(study)["arms"]
        if one["name"] == arm
    ]
    return text.extremes(found, "g")


def time_of_the_expectation(question: str) -> str:
    """How many times as long the expected hinge trains as the noised one, to one accuracy."""
    found = [times.comparison(study).ratio for study in studies.studies_of(question)]
    return text.extremes(found, ".1f")


def time_of_an_epoch(question: str, arm: str, other: str) -> str:
    """How many times as long an epoch takes with a loss as with another one."""
    found = [
        times.epoch_seconds(study, arm) / times.epoch_seconds(study, other)
        for study in studies.studies_of(question)
        if {arm, other} <= {one["name"] for one in studies.planned(study)["arms"]}
    ]
    return text.extremes(found, ".2f")


def best_in_the_last_epoch(question: str) -> str:
    """How many of the final runs have their first highest score of validation at the end."""
    found = [
        max(range(len(scores)), key=scores.__getitem__) == len(scores) - 1
        for study in studies.studies_of(question)
        for arm in studies.results(study)["arms"]
        for scores in (run["validation_by_epoch"] for run in arm["runs"])
    ]
    return f"{sum(found)} of {len(found)}"


# Braces have one of these, a blank and the arguments.
SENTENCES: dict[str, Callable[..., str]] = {
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
    "accuracy": accuracy,
    "selected": selected,
    "time of the expectation": time_of_the_expectation,
    "time of an epoch": time_of_an_epoch,
    "best in the last epoch": best_in_the_last_epoch,
}


def sentence(asked: str) -> str:
    """The number that braces ask for."""
    for kind, made in SENTENCES.items():
        if asked.startswith(f"{kind} "):
            return made(*asked.removeprefix(f"{kind} ").split("; "))
    raise ValueError(f"no kind of number is called {asked!r}")
