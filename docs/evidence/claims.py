"""The claims of the thesis, and whether the answers reproduce them."""

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache

from answers import FOLDER, Answer, of_contrast

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
    """

    claim: str
    source: str
    question: str = ""
    contrast: str = ""
    expected: str = ""
    untested: str = ""
    remark: str = ""

    @property
    def answers(self) -> list[Answer]:
        """Those of its contrast, by study."""
        return [] if self.untested else of_contrast(self.question, self.contrast)

    @property
    def verdict(self) -> str:
        """Whether the claim is reproduced, by the rules of the design."""
        if self.untested:
            return "not tested"
        verdicts = Counter(answer.verdict for answer in self.answers)
        if verdicts["undecided"] == verdicts.total():
            return "undecided"
        against = sum(verdicts[verdict] for verdict in _AGAINST[self.expected])
        half = verdicts.total() / 2
        reversed_ = sum(verdicts[verdict] for verdict in _REVERSED[self.expected])
        if verdicts[self.expected] > half and not reversed_:
            return "reproduced"
        return "not reproduced" if against > half else "mixed"


@cache
def claims() -> list[Claim]:
    """All claims, in the order of the file."""
    content = tomllib.loads((FOLDER / "claims.toml").read_text())
    return [Claim(**claim) for claim in content["claims"]]
