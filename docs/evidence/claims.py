"""The claims of the thesis, and whether the answers reproduce them."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from answers import FOLDER, Answer, of_contrast, secondary, studies_of
from effects import Effect, effect

from train.series.contrasts import Contrast

# The answers that speak against a claim, and those that not a single study may have.
_AGAINST = {
    "better": ("worse", "equivalent"),
    "worse": ("better", "equivalent"),
    "equivalent": ("better", "worse"),
}
_REVERSED = {"better": ("worse",), "worse": ("better",), "equivalent": ("better", "worse")}


@dataclass(frozen=True)
class Claim:
    """A claim of the thesis, as `claims.toml` has it.

    Attributes:
        claim: the claim in words.
        source: where it is.
        question: the question whose studies test it; empty for one that nothing tests.
        contrast: the name of the primary contrast that does.
        expected: the answer that it expects of that.
        untested: why nothing tests it.
        remark: what else to know about the test.
        cells: the published effects of a claim that nothing tests: two losses, a table, and one
            column or two. The effects of other claims are those of their contrast.
        secondary: secondary contrasts that a claim has which nothing tests.
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
    cells: tuple[tuple[str, ...], ...] = ()
    secondary: tuple[str, ...] = ()
    unfair: str = ""
    limit: str = ""

    @property
    def answers(self) -> list[Answer]:
        """Those of its contrast, by study."""
        return [] if self.untested else of_contrast(self.question, self.contrast)

    @property
    def published(self) -> list[Effect]:
        """The published effects, each once."""
        if self.untested:
            found = [effect((first, second), *cell) for first, second, *cell in self.cells]
        else:
            found = [one for answer in self.answers for one in answer.published]
        return list(dict.fromkeys(found))

    @property
    def secondary_contrasts(self) -> list[Contrast]:
        """What was found for its secondary contrasts."""
        studies = studies_of(self.question) if self.secondary else ()
        return [
            found
            for study, name, found in secondary()
            if study in studies and name in self.secondary
        ]

    @property
    def verdict(self) -> str:
        """Whether the claim is reproduced, by the rules of the design."""
        if self.untested:
            return "not tested"
        if self.unfair:
            return "no fair test"
        verdicts = [answer.verdict for answer in self.answers]
        if set(verdicts) == {"cannot tell"}:
            return "cannot tell"
        found = self._by_rule(verdicts)
        return f"{found} {self.limit}" if self.limit else found

    def _by_rule(self, verdicts: Sequence[str]) -> str:
        """The rule of the design, which has no "cannot tell": that is one kind of undecided."""
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
def claims() -> list[Claim]:
    """All claims, in the order of the file."""
    content = tomllib.loads((FOLDER / "claims.toml").read_text())
    return [Claim(**claim) for claim in content["claims"]]
