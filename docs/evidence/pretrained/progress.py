"""How far the study is, and how long the rest takes."""

import statistics
from dataclasses import dataclass

from markdown_tables import markdown_table

from pretrained import selection
from pretrained.design import Arm, Setting, Study
from pretrained.records import Records


@dataclass(frozen=True)
class Progress:
    """How far a setting is.

    Attributes:
        setting: its name.
        done: the runs that have finished.
        to_go: those that are left, at most: which finalists and selected candidates are the same
            for both rules is known when they are.
        seconds_to_go: of the processor, for those; None if no run of it has finished.
    """

    setting: str
    done: int
    to_go: int
    seconds_to_go: float | None


def of_setting(study: Study, records: Records, setting: Setting) -> Progress:
    """The progress of a setting."""
    used: dict[tuple[str, str], list[float]] = {}
    for key, record in records.found.items():
        if key.setting == setting.name:
            used.setdefault((key.loss, key.head), []).append(record.used["cpu_seconds"])
    every = [seconds for of_arm in used.values() for seconds in of_arm]
    to_go, rest = 0, 0.0
    for arm in study.arms_of(setting):
        left = runs_to_go(study, records, arm)
        to_go += left
        if every:
            # An arm without runs takes as long as the others on average.
            rest += left * statistics.mean(used.get((arm.loss.name, arm.head), every))
    return Progress(setting.name, len(every), to_go, rest if every else None)


def runs_to_go(study: Study, records: Records, arm: Arm) -> int:
    """At most as many runs are left in an arm."""
    if not selection.pending(study, records, arm):
        return 0
    numbers, rules = study.numbers, len(arm.setting.rules)
    first, *others = arm.search.seeds
    most = {
        first: numbers["candidates"],
        **dict.fromkeys(others, numbers["finalists"] * rules),
        **dict.fromkeys(study.seeds, rules),
    }
    return sum(
        count
        - sum(
            selection.key(arm, one, seed) in records.found for one in range(numbers["candidates"])
        )
        for seed, count in most.items()
    )


def table(study: Study, records: Records) -> str:
    """The progress of all settings, in Markdown."""
    rows = []
    for setting in study.settings:
        one = of_setting(study, records, setting)
        hours = "" if one.seconds_to_go is None else f"{one.seconds_to_go / 3600:.2f}"
        rows.append([one.setting, f"{one.done:,}", f"{one.to_go:,}", hours])
    head = ["setting", "runs done", "runs to go, at most", "hours of one core to go, at most"]
    return markdown_table(head, rows)
