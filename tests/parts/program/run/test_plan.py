"""How the devices of a plan share what a step is given."""

import jax

from configs import million_classes
from train.configuration.parsing import parse
from train.run.plan import StepPlanner, Target

CLASSES, BATCH = 1_000, 64


def plan(number, batch_size=BATCH, **fields):
    """The plan of a head for `CLASSES` classes on this many devices."""
    config = million_classes.get_config()
    config.update_from_flattened_dict({"dataset.num_classes": CLASSES, **fields})
    target = Target("here", "cpu", 2**40, jax.devices()[:number])
    with jax.numpy_dtype_promotion("standard"):
        return StepPlanner(parse(config.to_dict()), target).plan(batch_size)


def test_devices_that_share_classes_or_parameters_have_a_part_of_the_head():
    parts = plan(1).parts
    assert plan(4, parallel="pmap").parts["parameters"] == parts["parameters"]
    shared = plan(4, class_devices=4).parts
    sharded = plan(4, parallel="fsdp").parts
    for name in ("parameters", "state of the optimizer"):
        # A part of the network below the head, or a bias, is on every device.
        assert parts[name] / 4 < shared[name] < parts[name] / 3
        assert parts[name] / 4 < sharded[name] < parts[name] / 3


def test_a_larger_batch_needs_more():
    small, large = plan(2), plan(2, 4 * BATCH)
    assert large.parts["parameters"] == small.parts["parameters"]
    assert large.temporary > small.temporary
    assert large.needed > small.needed
