"""The conformal rules by name. Each has a score of classes, and a quantile that is calibrated.

Nothing is computed here: the help of commands names the rules without waiting for JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from train.foundation import fields
from train.foundation.errors import UserError

DEFAULT = "lac"
TAXONOMIC = "taxonomic"


@dataclass(frozen=True, kw_only=True)
class ConformalRule:
    """A conformal rule of the program.

    Attributes:
        name: the value of the flags.
        what: what its sets are, in the words of --help.
        score: the kind of the score and its parameters, as `topk_jax.sets.conformal_scores` takes
            them, without class counts; the kind `TAXONOMIC` is `topk_jax.sets.node_scores`. None
            for sets of the classes above a smallest probability.
        score_in_words: the score of a class, after "The score of a class is".
        quantile: the examples of a quantile: all, the examples of each class, or of each cluster
            of classes. "middle" is halfway between the first two.
        needs_distribution: whether the probabilities of an example must add up to 1.
    """

    name: str
    what: str
    score: Mapping[str, Any] | None
    score_in_words: str = ""
    quantile: Literal["all", "classes", "clusters", "middle"] = "all"
    needs_distribution: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the score, without its kind."""
        return {name: value for name, value in (self.score or {}).items() if name != "kind"}

    @property
    def needs_class_counts(self) -> bool:
        """Whether its score depends on the numbers of training examples."""
        return self.score is not None and self.score["kind"] == "pas"

    @property
    def needs_taxonomy(self) -> bool:
        """Whether its sets are nodes of a taxonomy."""
        return self.score is not None and self.score["kind"] == TAXONOMIC


_LAC = {"kind": "lac"}
_LAC_IN_WORDS = "1 minus its probability"
_LIKELIER = "the sum of the probabilities of likelier classes"

# There are no flags for the parameters, because a quantile is valid for any values. The authors use
# values of this size.
_RULES = (
    ConformalRule(
        name=DEFAULT, what="the classes above one probability, the smallest sets", score=None
    ),
    ConformalRule(
        name="aps",
        what="larger for ambiguous examples",
        score={"kind": "aps"},
        score_in_words=_LIKELIER,
        needs_distribution=True,
    ),
    ConformalRule(
        name="raps",
        what="the same, with fewer unlikely classes",
        score={"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5},
        score_in_words=f"{_LIKELIER}, plus 0.01 for each rank beyond the fifth",
        needs_distribution=True,
    ),
    ConformalRule(
        name="saps",
        what="the same, for probabilities that are badly calibrated",
        score={"kind": "saps", "rank_penalty": 0.2},
        score_in_words="0 for the likeliest class; for another it is the probability of the "
        "likeliest class, plus 0.2 for each rank beyond the second",
        needs_distribution=True,
    ),
    ConformalRule(
        name="margin",
        what="the classes that are not far below the likeliest",
        score={"kind": "margin"},
        score_in_words="the largest probability of another class, minus its own",
    ),
    ConformalRule(
        name="pas",
        what="more of the rare classes",
        score={"kind": "pas"},
        score_in_words="minus its probability divided by its frequency in training",
    ),
    ConformalRule(
        name="class_conditional",
        what="have the label of each class with that probability",
        quantile="classes",
        score=_LAC,
        score_in_words=_LAC_IN_WORDS,
    ),
    ConformalRule(
        name="clustered",
        what="the same for clusters of similar classes",
        quantile="clusters",
        score=_LAC,
        score_in_words=_LAC_IN_WORDS,
    ),
    ConformalRule(
        name="interpolated",
        what="halfway between lac and class_conditional",
        quantile="middle",
        needs_distribution=True,
        score=_LAC,
        score_in_words=_LAC_IN_WORDS,
    ),
    ConformalRule(
        name=TAXONOMIC,
        what="sets with a name, such as a genus",
        score={"kind": TAXONOMIC},
        score_in_words="0 for the likeliest class; for another it is the probability of the "
        "largest genus or other part of the taxonomy that has the likeliest class but not this one",
        needs_distribution=True,
    ),
)
RULES = {rule.name: rule for rule in _RULES}
IN_WORDS = "; ".join(f"{rule.name}: {rule.what}" for rule in _RULES)


def named(flag: str, name: str) -> ConformalRule:
    """The rule that a flag names.

    Raises:
        UserError: there is no rule of that name.
    """
    if wrong := fields.one_of(RULES)(name):
        raise UserError(field=f"--{flag}", must_be=wrong, got=name)
    return RULES[name]
