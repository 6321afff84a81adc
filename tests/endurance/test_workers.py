"""More workers and consumers than cores: the same batches in the same order, and an end."""

import io
import itertools
import multiprocessing

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.test_batches import assert_same, in_time
from train.data import photographs
from train.data.batches import Batches
from train.data.examples import Examples
from train.data.streaming import stream

BATCH_SIZE = 8
# The second epoch starts in the middle.
NUM_EXAMPLES, NUM_STEPS = 44, 10
MANY = 8


@pytest.fixture(scope="module")
def examples():
    rng = np.random.default_rng(0)
    files = []
    for _ in range(NUM_EXAMPLES):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3)).astype(np.uint8))
        file = io.BytesIO()
        coarse.resize((350, 280), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    labels = np.arange(NUM_EXAMPLES)
    names = [str(label) for label in labels]
    return Examples.of_source(files, labels, names, "a folder", reader=photographs.READER)


def training(examples, *, num_workers=0, **options):
    batches = Batches(examples=examples, size=BATCH_SIZE, seed=3, **options)
    return stream(batches, range(NUM_STEPS), num_workers=num_workers)


def test_any_number_of_workers_gives_the_same_batches(examples):
    expected = list(training(examples))
    assert len(expected) == NUM_STEPS
    for num_workers in (1, 2, MANY):
        found = in_time(lambda number=num_workers: list(training(examples, num_workers=number)))
        assert_same(found, expected)
    once = Batches(examples=examples, size=BATCH_SIZE)
    # Fewer batches than workers: some have nothing to do.
    assert len(once) < MANY
    assert_same(in_time(lambda: list(stream(once, num_workers=MANY))), stream(once))


def test_workers_end_with_a_stream_that_is_closed_early(examples):
    # Batches of 5 MB; a worker has some that nobody takes.
    batches = Batches(examples=examples, size=4 * BATCH_SIZE, seed=3)
    before = multiprocessing.active_children()

    def ended():
        found = stream(batches, range(1000), num_workers=MANY)
        first = list(itertools.islice(found, 2 * MANY))
        workers = [child for child in multiprocessing.active_children() if child not in before]
        found.close()
        return first, [worker.exitcode for worker in workers]

    first, codes = in_time(ended)
    assert set(codes) == {0}
    assert_same(first, stream(batches, range(2 * MANY)))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_consumers_that_wait_for_each_other_get_their_shares(examples, num_workers):
    def shares():
        streams = [
            training(examples, share=(index, MANY), num_workers=num_workers)
            for index in range(MANY)
        ]
        # Each step needs a batch of every stream.
        return list(zip(*streams, strict=True))

    joined = [
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for parts in in_time(shares)
    ]
    assert_same(joined, training(examples))
