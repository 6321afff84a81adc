"""One case, or several variants, for each public function of the library."""

from tests.cases import heads, losses, metrics, operators, sets

# Functions of arrays of a batch; the functions of heads have their own tests.
CASES = [*losses.CASES, *operators.CASES, *sets.CASES, *metrics.CASES]
CASES_WITH_HEADS = [*CASES, *heads.CASES]
