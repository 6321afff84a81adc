"""A plan has the memory of the step that a run compiles, for chips that share it."""

import dataclasses

import jax
import numpy as np
import pytest

from configs import digits, features, synthetic_latents
from tests.parts.program.configurations import changed
from tests.parts.program.data.own import matrices
from train.assembly.parts import Assembly
from train.configuration.parsing import parse
from train.foundation.errors import UserError
from train.planning import report
from train.planning.plans import Largest, StepPlanner
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
def test_the_parts_are_those_of_the_run(plan):
    assembly = Assembly(config_of(), None, None)
    state = assembly.state_shapes()

    def size(tree):
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))

    assert plan.parts["params"] == size(state.params)
    assert plan.parts["opt_state"] == size(state.opt_state)
    # Of each example the features, a label and a position; and a request.
    width = int(np.prod(assembly.data.image_shape))
    assert plan.parts["batch"] == 64 // CHIPS * 4 * (width + 2) + 4
    # The gradients are averaged over the chips.
    assert plan.account.collectives["all-reduce"] >= plan.parts["params"]
    # Four batches wait while a step runs.
    assert plan.needed >= sum(plan.parts.values()) + 4 * plan.parts["batch"]
    lines = list(report.describe(plan, target_of()))
    assert lines[0] == "four:4: 4 chips, each with 1,099 GB"
    assert "parameters" in "".join(lines)


@pytest.mark.usefixtures("standard_promotion")
def test_classes_over_chips_are_planned(plan):
    split = config_of(parallel="mesh", class_devices=2)
    assert StepPlanner(split, target_of()).plan(64).parts["params"] < plan.parts["params"]


@pytest.mark.usefixtures("standard_promotion")
def test_the_largest_batch_fits_and_a_larger_one_does_not(plan):
    memory = plan.needed * 4
    target = target_of(memory)
    planner = StepPlanner(config_of(), target)
    found = planner.find_largest(plan)
    size, too_large = found.plan.batch_size, found.too_large
    assert found.plan.fits(target)
    assert 64 < size < too_large <= max(size + 8 * CHIPS, size * 9 // 8)
    assert not planner.plan(too_large).fits(target)
    line = report.describe_largest(found, target)
    assert f"about {size:,}" in line
    assert f"{too_large:,} do not fit" in line
    too_small = target_of(plan.parts["params"])
    assert StepPlanner(config_of(), too_small).find_largest(plan) is None
    assert report.describe_largest(None, too_small).startswith("No batch of eight")


@pytest.mark.usefixtures("standard_promotion")
def test_a_batch_that_fits_is_the_largest_if_the_next_one_is_refused(plan, monkeypatch):
    monkeypatch.setattr(
        StepPlanner,
        "plan",
        lambda _, size: dataclasses.replace(plan, batch_size=size, account=None),
    )
    small = dataclasses.replace(plan, batch_size=4)
    assert StepPlanner(config_of(), target_of()).find_largest(small) == Largest(small, 8 * CHIPS)


@pytest.mark.usefixtures("standard_promotion")
def test_a_program_that_its_compiler_refuses_does_not_fit(plan):
    refused = dataclasses.replace(plan, account=None)
    assert not refused.fits(target_of())
    assert list(report.describe(refused, target_of()))[-1].endswith("does not fit")


@pytest.mark.usefixtures("standard_promotion")
def test_a_batch_that_the_chips_cannot_share_is_refused():
    with pytest.raises(UserError, match="multiple of the 4 devices; got 6"):
        StepPlanner(config_of(**{"dataset.batch_size": 6}), target_of())


def test_more_chips_of_a_class_than_there_are_chips_are_refused():
    with pytest.raises(UserError, match="divide the 4 devices: one of 1, 2, 4; got 10"):
        StepPlanner(config_of(parallel="mesh", class_devices=10), target_of())


@pytest.mark.parametrize(
    ("loss", "changes"),
    [("hierarchical_cross_entropy", {}), ("cross_entropy", {"loss.rank_weights": (1.0, 1.0)})],
)
def test_ranks_above_the_classes_are_those_of_the_data_set(loss, changes):
    """Without them, the plan would be of another loss. The digits have none."""
    config = changed(digits.get_config(loss).to_dict(), changes)
    with pytest.raises(UserError, match="needs a taxonomy of the classes"):
        StepPlanner(parse(config), target_of())


def test_images_that_the_network_does_not_take_are_refused():
    config = changed(digits.get_config("cross_entropy").to_dict(), {"model.name": "inception_v3"})
    with pytest.raises(UserError, match=r"config\.model\.name=inception_v3 takes"):
        StepPlanner(parse(config), target_of())


def test_a_batch_has_all_votes_of_its_examples(tmp_path):
    content = matrices.arrays()
    content["labels"] = np.stack([content["labels"], np.roll(content["labels"], 1)], axis=1)
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
