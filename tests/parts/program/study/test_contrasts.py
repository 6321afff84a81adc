"""The contrasts of a study as they are printed; the commands' tests have their numbers."""

import io

import pytest
from rich.console import Console

from train.study import contrasts
from train.study.plan import Contrast, Study
from train.study.statistics import Estimate

BETTER = Estimate(0.02, 0.004, 4, "seeds and test examples")


@pytest.mark.parametrize(("other", "adjusted"), [(BETTER, 2), (None, None)])
def test_p_values_are_adjusted_when_all_primary_contrasts_are_known(other, adjusted):
    planned = [
        Contrast(name, "a", "b", "top_1_accuracy", primary=name != "more")
        for name in ("first", "second", "more")
    ]
    console = Console(file=io.StringIO(), width=200)
    estimates = {"first": BETTER, "second": other, "more": BETTER}
    contrasts.show(console, Study(seeds=(0, 1), contrasts=planned), estimates)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    of = {line[0]: line for line in lines if line and line[0] in estimates}
    p_value = f"{BETTER.p_value:.2g}"
    assert of["first"][:4] == ["first", "top-1", "+2.00", "±"]
    holm = "-" if adjusted is None else f"{adjusted * BETTER.p_value:.2g}"
    assert of["first"][5:7] == [p_value, holm]
    assert of["more"][5:7] == [p_value, "-"]
    assert (of["second"][2] == "-") == (other is None)
