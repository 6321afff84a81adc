"""Sets of the largest expected utility: what a set of each size is worth if it has the label."""

import math

import jax
import numpy as np

from topk_jax import sets
from topk_jax.rules import _sorting
from topk_jax.rules._calibration import Calibration
from topk_jax.rules._rule import Rule, each_example
from topk_jax.rules._thresholds import check_probabilities

# The kinds of `topk_jax.sets.set_utilities` with their parameters.
_KINDS = {
    **{"precision": (), "u65": (), "u80": ()},
    **{"f_beta": ("beta",), "reject": ("alpha", "beta")},
}
_MUST_BE = (
    "one of precision, f1, u65, u80, f_beta=BETA with BETA above 0, reject=ALPHA,BETA with ALPHA "
    "from 0 to 1 and BETA above 0, or numbers from 0 on between commas, as 1,0.7,0.5: the worth of "
    "a set of 1, 2, 3 classes that has the label"
)


class Utility(Rule):
    """The set of the largest expected utility."""

    name = "utility"
    words = "the largest expected utility, as u65, f_beta=2 or 1,0.7,0.5"
    needs_limits = False

    @classmethod
    def read_value(cls, text: str) -> str:
        _kind_and_numbers(text)
        return text

    def check(self, examples: Calibration) -> None:
        check_probabilities(self, examples)
        self.worth(examples.num_classes)

    def worth(self, num_classes: int) -> np.ndarray:
        """What a set of 1 to L classes that has the label is worth, `[L]`; others are worth 0.

        Args:
            num_classes: the number of classes L.

        Raises:
            ValueError: it has values of larger sets than there are.
        """
        kind, parameters, values = _kind_and_numbers(str(self.value))
        if kind is not None:
            with jax.ensure_compile_time_eval():
                found = sets.set_utilities(kind, num_classes=num_classes, **parameters)
                return np.asarray(found, np.float32)
        if len(values) > num_classes:
            raise ValueError(
                f"utility must have at most {num_classes} numbers, one for each size of a set of "
                f"the {num_classes} classes; got {self.value}"
            )
        return np.array([*values, *[0] * (num_classes - len(values))], np.float32)

    def choose(self, scores: jax.Array) -> jax.Array:
        worth = self.worth(scores.shape[-1])
        return each_example(lambda row: sets.utility_set(row, utilities=worth), scores)

    def choose_by_sorting(self, scores: jax.Array) -> jax.Array:
        return _sorting.best_sets(scores, self.worth(scores.shape[-1]))

    def describe_sets(self) -> str:
        return (
            f"Each set has the largest expected utility, {self.value}: what a set of its size is "
            "worth that has the true class. Another set is worth nothing."
        )


def _kind_and_numbers(text: str) -> tuple[str | None, dict[str, float], tuple[float, ...]]:
    """The kind of `topk_jax.sets.set_utilities` and its parameters, or else values by size."""
    kind, is_kind, rest = ("f_beta=1" if text == "f1" else text).partition("=")
    names = _KINDS.get(kind)
    if names == () and not is_kind:
        return kind, {}, ()
    try:
        numbers = tuple(map(float, (rest if is_kind else text).split(",")))
    except ValueError:
        numbers = (math.nan,)
    named = dict(zip(names or (), numbers, strict=False))
    if is_kind:
        right = bool(names) and len(numbers) == len(names or ())
        right &= 0 < named.get("beta", 0) < math.inf and 0 <= named.get("alpha", 0) <= 1
    else:
        right = all(0 <= one < math.inf for one in numbers) and any(numbers)
    if not right:
        raise ValueError(_MUST_BE)
    return (kind, named, ()) if is_kind else (None, {}, numbers)
