"""The runs of a loss that are compared: in each search with the head that validation prefers."""

from dataclasses import dataclass

import numpy as np

from pretrained import selection
from pretrained.design import Arm, Rule, Setting, Study
from pretrained.records import Records


@dataclass(frozen=True)
class Chosen:
    """The selected candidate of an arm in a search.

    Attributes:
        loss: the name of the loss.
        head: linear or cosine.
        search: the name of the search.
        rule: the labels of the validation images that selected.
        candidate: its index.
        parameters: its parameters.
        validation: the mean of its validation accuracies over the seeds of the search, a share.
        hits: by metric, which test examples have their label in the set, bool [seeds, n].
        accuracies: by metric, the accuracy with each seed, a share.
    """

    loss: str
    head: str
    search: str
    rule: Rule
    candidate: int
    parameters: dict[str, float]
    validation: float
    hits: dict[str, np.ndarray]
    accuracies: dict[str, list[float]]


def metrics(setting: Setting) -> tuple[str, ...]:
    """What is measured in a setting; the first is what selects."""
    return ("average_5",) if setting.question == "sets" else ("top_5", "top_1")


def chosen(study: Study, records: Records, arm: Arm, rule: Rule) -> Chosen:
    """What was selected in an arm whose runs have all finished."""
    candidate = selection.selected(study, records, arm, rule)
    runs = [records.found[selection.key(arm, candidate, seed)] for seed in study.seeds]
    hits = {one: np.stack([run.hits(rule, one) for run in runs]) for one in metrics(arm.setting)}
    return Chosen(
        arm.loss.name,
        arm.head,
        arm.search.name,
        rule,
        candidate,
        runs[0].parameters,
        selection.validation(records, arm, candidate, rule),
        hits,
        {metric: one.mean(axis=1).tolist() for metric, one in hits.items()},
    )


def of_setting(study: Study, records: Records, setting: Setting) -> list[Chosen]:
    """What was selected in all arms of a setting whose runs have all finished."""
    return [
        chosen(study, records, arm, rule)
        for arm in study.arms_of(setting)
        for rule in setting.rules
    ]
