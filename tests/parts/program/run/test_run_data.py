"""What a run finds in its data before anything is written."""

from types import SimpleNamespace

import numpy as np
import pytest

from train.data import Examples
from train.data.classes import Classes
from train.data.truths import SEVERAL, Truths
from train.foundation.errors import UserError
from train.run.run_data import RunData

# Few training images of class 0, and many of the others.
CLASSES = Classes(tuple("abc"), (3, 200, 300))


def check(select_by, labels, truths=None):
    rows = np.zeros((len(labels), 1))
    validation = Examples.of_source(rows, labels, "abc", "DATA", truths=truths)
    data = SimpleNamespace(
        config=SimpleNamespace(select_by=select_by, num_epochs=1),
        dataset=SimpleNamespace(validation=validation),
        classes=CLASSES,
        steps_per_epoch=1,
    )
    RunData.check(data)


def test_a_run_is_not_selected_by_classes_that_validation_does_not_have():
    check("few_top_1_accuracy", np.array([0, 1, 2]))
    with pytest.raises(UserError, match=r"config\.select_by must be .* has no value"):
        check("few_top_1_accuracy", np.array([1, 2]))
    # A class may occur beside a rarer one, which stands for the example.
    truths = Truths(np.array([[0, 1], [0, 2]]), np.full((2, 2), 0.5, np.float32), SEVERAL)
    check("many_top_1_accuracy", truths.labels, truths)
