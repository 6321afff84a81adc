"""Every class is drawn as often, exactly; an order is a function of the seed and the epoch."""

import pickle

import numpy as np
import pytest

from train.data.batches import TrainingBatches, steps_in_epoch
from train.data.class_balance import ClassBalance, epoch_order
from train.data.records import Split

# A long tail; the third class has no example.
COUNTS = (40, 9, 0, 4, 1)
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), COUNTS)).astype(np.int32)


def balance(num_draws, seed=0, labels=LABELS):
    return ClassBalance.of_labels(labels, num_draws=num_draws, seed=seed)


# Fewer draws than classes, and several passes through most classes.
@pytest.mark.parametrize("num_draws", [3, 203])
def test_every_class_is_drawn_as_often(num_draws):
    present = np.flatnonzero(COUNTS)
    drawn = np.zeros(5, int)
    for epoch in range(30):
        order = epoch_order(balance(num_draws), epoch)
        assert order.shape == (num_draws,)
        of_epoch = np.bincount(LABELS[order], minlength=5)
        drawn += of_epoch
        for counts in (of_epoch, drawn):
            assert counts[2] == 0
            assert np.ptp(counts[present]) <= 1


@pytest.mark.parametrize("num_draws", [3, 203])
def test_no_example_comes_again_before_all_others_of_its_class(num_draws):
    drawn = np.concatenate([epoch_order(balance(num_draws), epoch) for epoch in range(60)])
    for label, size in enumerate(COUNTS):
        if size:
            of_class = drawn[LABELS[drawn] == label]
            passes = of_class[: len(of_class) // size * size].reshape(-1, size)
            members = np.flatnonzero(label == LABELS)
            np.testing.assert_array_equal(
                np.sort(passes, axis=1), np.broadcast_to(members, passes.shape)
            )


def test_passes_and_epochs_have_orders_of_their_own():
    first, second = (epoch_order(balance(4 * 40), epoch) for epoch in (0, 1))
    # For the largest class, both epochs are one pass.
    passes = [order[LABELS[order] == 0].tolist() for order in (first, second)]
    assert sorted(passes[0]) == sorted(passes[1]) == np.flatnonzero(LABELS == 0).tolist()
    assert passes[0] != passes[1]
    assert passes[0] != sorted(passes[0])
    # Classes are mixed: neighbours are of one of four classes with probability 39/159. That is 39
    # of 159 pairs, with a standard deviation of 5.4; four deviations are allowed.
    labels = LABELS[first]
    assert abs((labels[1:] == labels[:-1]).sum() - 39) < 4 * 5.4
    assert (epoch_order(balance(4 * 40, seed=1), 0) != first).any()


def test_the_balanced_order_is_that_of_every_run():
    # Pinned: a run that resumes under another release continues with the same examples.
    labels = np.array([0, 0, 0, 0, 1, 2, 2])
    orders = [epoch_order(balance(7, labels=labels), epoch).tolist() for epoch in (0, 1)]
    assert orders == [[5, 2, 3, 6, 4, 4, 0], [4, 4, 1, 5, 6, 4, 3]]


def make_batches(split, process_index=0, process_count=1):
    return TrainingBatches(
        split, 8, process_index, process_count, seed=3, sampling="class_balanced"
    )


def test_batches_are_the_order_of_each_epoch_and_the_same_everywhere():
    images = np.arange(len(LABELS), dtype=np.uint8).reshape(-1, 1, 1, 1)
    split = Split(images, LABELS)
    batches = make_batches(split)
    steps = steps_in_epoch(len(LABELS), 8)
    for epoch in (0, 2):
        examples = np.concatenate(
            [batches[epoch * steps + step]["examples"] for step in range(steps)]
        )
        np.testing.assert_array_equal(examples, epoch_order(balance(8 * steps, seed=3), epoch))
    batch = batches[17]
    np.testing.assert_array_equal(batch["labels"], LABELS[batch["examples"]])
    np.testing.assert_array_equal(batch["images"].ravel(), batch["examples"])
    # In another process, which also starts at another step, and in shares.
    elsewhere = pickle.loads(pickle.dumps(batches))[17]
    shares = [make_batches(split, index, 4)[17] for index in range(4)]
    for name, array in batch.items():
        np.testing.assert_array_equal(elsewhere[name], array)
        np.testing.assert_array_equal(np.concatenate([share[name] for share in shares]), array)
