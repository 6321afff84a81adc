"""What runs next in an arm, and which candidate is selected."""

from dataclasses import dataclass

from pretrained.design import Arm, Rule, Study
from pretrained.records import Key, Record, Records


@dataclass(frozen=True)
class Batch:
    """Runs of one seed that are trained at once.

    Attributes:
        arm: their arm.
        candidates: the indices of their candidates.
        seed: their seed.
        is_final: whether they are compared, and not only select.
    """

    arm: Arm
    candidates: tuple[int, ...]
    seed: int
    is_final: bool

    @property
    def run_keys(self) -> list[Key]:
        """What the runs are of."""
        return [key(self.arm, candidate, self.seed) for candidate in self.candidates]


def key(arm: Arm, candidate: int, seed: int) -> Key:
    """What the run of a candidate is of."""
    return Key(arm.setting.name, arm.loss.name, arm.head, arm.search.name, candidate, seed)


def pending(study: Study, records: Records, arm: Arm) -> list[Batch]:
    """The batches that can run now and have not; none if the arm is done.

    First come all candidates, then the finalists, then the runs that are compared.
    """

    def to_do(candidates: tuple[int, ...], seed: int, is_final: bool) -> list[Batch]:
        missing = tuple(one for one in candidates if key(arm, one, seed) not in records.found)
        return [Batch(arm, missing, seed, is_final)] if missing else []

    first, *others = arm.search.seeds
    everything = tuple(range(study.numbers["candidates"]))
    if batches := to_do(everything, first, False):
        return batches
    best_ones = finalists(study, records, arm)
    if batches := [one for seed in others for one in to_do(best_ones, seed, False)]:
        return batches
    rules = arm.setting.rules
    chosen = tuple(dict.fromkeys(selected(study, records, arm, rule) for rule in rules))
    return [one for seed in study.seeds for one in to_do(chosen, seed, True)]


def finalists(study: Study, records: Records, arm: Arm) -> tuple[int, ...]:
    """The best candidates by any rule, in the order of the candidates."""
    found = {one for rule in arm.setting.rules for one in finalists_of(study, records, arm, rule)}
    return tuple(sorted(found))


def selected(study: Study, records: Records, arm: Arm, rule: Rule) -> int:
    """The finalist with the best mean over the seeds of the search; the first among equals."""
    return max(
        sorted(finalists_of(study, records, arm, rule)),
        key=lambda one: validation(records, arm, one, rule),
    )


def validation(records: Records, arm: Arm, candidate: int, rule: Rule) -> float:
    """The mean of the best validation accuracies over the seeds of the search."""
    found = [best(records.found[key(arm, candidate, seed)], rule) for seed in arm.search.seeds]
    return sum(found) / len(found)


def best(record: Record, rule: Rule) -> float:
    """The validation accuracy at the best checkpoint."""
    return max(record.validation[rule])


def of_candidates(study: Study, records: Records, arm: Arm, rule: Rule) -> list[float]:
    """The best validation accuracy of each candidate with the first seed of a search."""
    return [
        best(records.found[key(arm, one, arm.search.seeds[0])], rule)
        for one in range(study.numbers["candidates"])
    ]


def finalists_of(study: Study, records: Records, arm: Arm, rule: Rule) -> list[int]:
    """The finalists of a rule; among equals the first."""
    of_first = of_candidates(study, records, arm, rule)
    order = sorted(range(len(of_first)), key=lambda one: -of_first[one])
    return order[: study.numbers["finalists"]]
