"""Batches are functions of their number: any workers, any processes, any first step."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.encoded_images import encode
from tests.parts.program.forked import ROOT
from train.data import images, photographs
from train.data.batches import CLASS_BALANCED, Batches
from train.data.examples import Examples
from train.data.images import UnreadableImageError
from train.data.streaming import stream
from train.foundation.errors import UserError

NUM_EXAMPLES, BATCH_SIZE = 21, 8
# Seconds; a worker that hangs has to fail the test, not hold up all of them.
TIME_LIMIT = 240
READER = photographs.READER


def examples_of(inputs, labels=None, **more):
    labels = np.arange(len(inputs)) if labels is None else labels
    class_names = [f"class {label}" for label in range(labels.max() + 1)]
    return Examples.of_source(inputs, labels, class_names, "train in a folder", **more)


def photos(unreadable=()):
    """Photographs of noise, some of them cut off."""
    rng = np.random.default_rng(0)
    contents = []
    for index in range(NUM_EXAMPLES):
        pixels = rng.integers(0, 256, (230, 260, 3)).astype(np.uint8)
        content = encode(Image.fromarray(pixels), "PNG")
        contents.append(content[:3000] if index in unreadable else content)
    names = np.array([f"{index}.png" for index in range(NUM_EXAMPLES)], object)
    return examples_of(contents, names=names, reader=READER)


@pytest.fixture(scope="module")
def streamed():
    return photos()


@pytest.fixture(scope="module")
def in_memory():
    pixels = np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, 4, 4, 3)).astype(np.uint8)
    return examples_of(pixels)


@pytest.fixture(params=["streamed", "in_memory"])
def examples(request):
    return request.getfixturevalue(request.param)


def assert_same(batches, others):
    for batch, other in zip(batches, others, strict=True):
        assert batch.keys() == other.keys()
        for name, array in batch.items():
            assert array.dtype == other[name].dtype
            np.testing.assert_array_equal(array, other[name])


def in_time(function):
    """What the function returns, or a failure if it takes too long."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(TIME_LIMIT)
    assert results, "no result in time, or an error in the thread"
    return results[0]


def training(examples, first=0, last=5, *, num_workers=0, **options):
    batches = Batches(examples=examples, size=BATCH_SIZE, seed=3, **options)
    return list(stream(batches, range(first, last), num_workers=num_workers))


def orders(batches, epochs):
    """The examples of some epochs in their order, [epochs, n]."""
    steps = range(len(batches))
    numbers = [epoch * len(steps) + step for epoch in epochs for step in steps]
    return np.stack([batches[number]["examples"] for number in numbers]).reshape(len(epochs), -1)


def test_a_batch_is_the_same_in_any_order_and_for_any_process(examples):
    whole = training(examples)
    batches = Batches(examples=examples, size=BATCH_SIZE, seed=3)
    assert_same([batches[number] for number in range(4, -1, -1)], whole[::-1])
    for count in (2, 4):
        shares = [training(examples, share=(index, count)) for index in range(count)]
        sizes = {len(batch["labels"]) for share in shares for batch in share}
        assert sizes == {BATCH_SIZE // count}
        joined = [
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            for parts in zip(*shares, strict=True)
        ]
        assert_same(joined, whole)


def test_an_epoch_has_each_example_once_but_for_those_that_fill_no_batch(examples):
    batches = Batches(examples=examples, size=BATCH_SIZE, seed=3)
    np.testing.assert_array_equal(batches[0]["labels"], batches[0]["examples"])
    found = orders(batches, range(3))
    assert [len({*epoch}) for epoch in found.tolist()] == [16] * 3
    assert (found[0] != found[1]).any()


def test_what_is_drawn_is_that_of_every_run(crops):
    """A run that resumes under another release continues with the same examples and crops."""
    ten = examples_of(np.zeros((10, 1)))
    for seed, epoch, expected in (
        (0, 0, [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]),
        (1, 2, [8, 5, 6, 0, 9, 1, 4, 3, 7, 2]),
    ):
        assert orders(Batches(examples=ten, size=10, seed=seed), [epoch]).tolist() == [expected]
    batches = balanced(7, labels=np.array([0, 0, 0, 0, 1, 2, 2]))
    assert orders(batches, (0, 1)).tolist() == [[6, 4, 4, 5, 2, 3, 4], [1, 2, 6, 4, 4, 4, 5]]
    assert crops[0, :3].tolist() == [[14, 13], [19, 10], [5, 6]]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_evaluation_covers_every_example_once_over_processes(examples, count):
    shares = [
        list(stream(Batches(examples=examples, size=BATCH_SIZE, share=(index, count))))
        for index in range(count)
    ]
    # As many batches for each, full ones: they wait for each other.
    assert {len(share) for share in shares} == {3}
    parts = [part for batches in zip(*shares, strict=True) for part in batches]
    labels = np.concatenate([part["labels"] for part in parts])
    mask = np.concatenate([part["mask"] for part in parts])
    np.testing.assert_array_equal(labels[mask], np.arange(NUM_EXAMPLES))
    # It is filled up with the last example.
    assert labels[~mask].tolist() == [20, 20, 20]
    if examples.are_encoded:
        middle = READER.pixels(images.decode(examples.encoded(0), "a"), "a")
        np.testing.assert_array_equal(parts[0]["images"][0], middle)


def test_a_batch_that_processes_cannot_share_is_refused(in_memory):
    # Rounded down, the shares of evaluation would leave examples out in silence.
    with pytest.raises(UserError, match="batch_size must be a multiple of the 4 processes; got 10"):
        Batches(examples=in_memory, size=10, share=(0, 4))


@pytest.fixture(scope="module")
def crops():
    """The positions of the crops of a hundred steps with two seeds, [200, 8, 2]."""
    lines, columns = np.mgrid[:256, :258]
    # A pixel encodes its place; nothing is resized.
    pixels = np.stack([lines, columns % 256, columns // 256], axis=-1).astype(np.uint8)
    encoded = encode(Image.fromarray(pixels), "PNG")
    # Two steps an epoch, so that steps and epochs differ.
    places = examples_of([encoded] * NUM_EXAMPLES, reader=READER)
    corners = [
        batch["images"][:, 0, 0].astype(int)
        for seed in (0, 1)
        for batch in stream(Batches(examples=places, size=BATCH_SIZE, seed=seed), range(100))
    ]
    return np.stack([(c[:, 0], c[:, 1] + 256 * c[:, 2]) for c in corners]).swapaxes(1, 2)


def test_crops_change_with_seed_step_and_position_and_every_place_is_as_likely(crops):
    # No two steps have the eight places of one another: chances of 33 times 35, eight times over.
    assert len({step.tobytes() for step in crops}) == 200
    # Each of the 28 pairs of positions agrees in 200 / 1155 steps on average, 5 in all.
    same = (crops[:, :, None] == crops[:, None]).all(axis=-1).sum() - 200 * BATCH_SIZE
    assert same / 2 < 20
    for axis, places in ((0, 33), (1, 35)):
        counts = np.bincount(crops[..., axis].ravel(), minlength=places)
        assert len(counts) == places
        # Pearson's statistic: more than 5 deviations above its mean once in 100,000 times.
        statistic = ((counts - 1600 / places) ** 2 / (1600 / places)).sum()
        assert statistic < places - 1 + 5 * np.sqrt(2 * (places - 1))


# A long tail; the third class has no example.
COUNTS = (40, 9, 0, 4, 1)
TAIL = np.random.default_rng(0).permutation(np.repeat(np.arange(5), COUNTS))


def balanced(size, labels=TAIL, **options):
    """Batches of inputs that are their numbers."""
    examples = examples_of(np.arange(len(labels))[:, np.newaxis], labels)
    return Batches(examples=examples, size=size, sampling=CLASS_BALANCED, **{"seed": 0, **options})


# An epoch has 54, or 45 draws.
@pytest.mark.parametrize("size", [1, 15])
def test_every_class_is_drawn_as_often_and_its_examples_in_turns(size):
    batches = balanced(size)
    for order in orders(batches, range(20)):
        drawn = np.bincount(TAIL[order], minlength=5)
        assert drawn[2] == 0
        assert np.ptp(drawn[[0, 1, 3, 4]]) <= 1
        assert drawn.sum() == len(batches) * size
        for label in (0, 1, 3, 4):
            times = np.bincount(order, minlength=len(TAIL))[label == TAIL]
            assert np.ptp(times) <= 1
    # The pixels are those of the examples, and processes share a batch.
    batch, *shares = (balanced(8, seed=3, share=one)[17] for one in ((0, 1), (0, 2), (1, 2)))
    np.testing.assert_array_equal(batch["images"].ravel(), batch["examples"])
    for name, array in batch.items():
        np.testing.assert_array_equal(np.concatenate([share[name] for share in shares]), array)


def test_workers_make_the_same_batches_and_errors(streamed):
    assert_same(in_time(lambda: training(streamed, 1, num_workers=2)), training(streamed, 1))
    bad = photos(unreadable={5})

    def message():
        with pytest.raises(UnreadableImageError) as caught:
            training(bad, num_workers=2)
        return str(caught.value)

    assert in_time(message).startswith("cannot decode 5.png")


PROGRAM = """
import multiprocessing, sys, time
if __name__ == "__main__":
    from tests.parts.program.data.test_batches import photos
    from train.data.batches import Batches
    from train.data.streaming import stream
    batches = stream(Batches(examples=photos(), size=8, seed=0), range(10**6), num_workers=2)
    next(batches)
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    time.sleep(100)
"""


def test_a_killed_program_leaves_no_worker(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        workers = [int(pid) for pid in in_time(program.stdout.readline).split()]
        assert len(workers) == 2
        program.send_signal(signal.SIGKILL)
    end = time.monotonic() + 60
    while any(map(is_running, workers)):
        assert time.monotonic() < end
        time.sleep(0.1)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
