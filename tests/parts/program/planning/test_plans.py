"""A plan has the memory of the step that a run compiles, for chips that share it."""

import jax
import numpy as np
import pytest

from configs import digits, features, synthetic_latents
from tests.parts.program.configurations import changed
from tests.parts.program.data import matrices
from train.configuration.parsing import parse
from train.foundation.errors import UserError
from train.planning.plans import StepPlanner
from train.planning.targets import Target

CHIPS = 4


def config_of(**changes):
    recipe = synthetic_latents.get_config().to_dict()
    return parse(changed(recipe, {"dataset.batch_size": 64, **changes}))


def target_of(memory=2**40):
    return Target("four:4", "cpu", memory, jax.devices()[:CHIPS])


@pytest.fixture(scope="module")
def plan():
    return StepPlanner(config_of(), target_of()).plan(64)


@pytest.mark.usefixtures("standard_promotion")
def test_classes_over_chips_are_planned(plan):
    split = config_of(parallel="mesh", class_devices=2)
    assert StepPlanner(split, target_of()).plan(64).parts["params"] < plan.parts["params"]


@pytest.mark.usefixtures("standard_promotion")
def test_a_batch_that_the_chips_cannot_share_is_refused():
    with pytest.raises(UserError, match="multiple of the 4 devices; got 6"):
        StepPlanner(config_of(**{"dataset.batch_size": 6}), target_of())


@pytest.mark.parametrize(
    ("loss", "changes"),
    [("hierarchical_cross_entropy", {}), ("cross_entropy", {"loss.rank_weights": (1.0, 1.0)})],
)
def test_ranks_above_the_classes_are_those_of_the_data_set(loss, changes):
    """Without them, the plan would be of another loss. The digits have none."""
    config = changed(digits.get_config(loss).to_dict(), changes)
    with pytest.raises(UserError, match="needs a taxonomy of the classes"):
        StepPlanner(parse(config), target_of())


def test_a_batch_has_all_votes_of_its_examples(tmp_path):
    content = matrices.arrays()
    content["class_names"] = np.array(matrices.CLASSES)
    content["labels"] = np.tile([[3, 2, 0], [1, 0, 4]], (30, 1))
    fields = {
        "dataset.path": str(matrices.write(tmp_path / "a.npz", **content)),
        "dataset.labels": "votes",
        "dataset.batch_size": 8,
        "eval.ks": (1,),
        "select_by": "top_1_accuracy",
    }
    config = parse(changed(features.get_config().to_dict(), fields))
    _, (_, _, batch) = StepPlanner(config, target_of()).step_with_inputs(8)
    assert batch["classes"].shape == batch["shares"].shape == (8, 2)
