"""More workers and consumers than cores: the same batches in the same order, and an end."""

import io
import itertools
import multiprocessing

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data.test_pipeline import assert_same, in_time
from train.data import large_images, photographs
from train.data.pipeline import Pipeline
from train.data.records import Records, Split

BATCH_SIZE = 8
# The timeout of a process that would wait for ever, in seconds.
TIME_LIMIT = 60
# The second epoch starts in the middle.
NUM_EXAMPLES, NUM_STEPS = 44, 10
MANY = 8


@pytest.fixture(scope="module")
def encoded():
    rng = np.random.default_rng(0)
    files = []
    for _ in range(NUM_EXAMPLES):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3)).astype(np.uint8))
        file = io.BytesIO()
        coarse.resize((350, 280), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        files.append({"image": file.getvalue()})
    return files


@pytest.fixture
def split(encoded):
    records = Records(encoded, np.arange(NUM_EXAMPLES), "train in a folder", photographs.READER)
    return Split(records, np.arange(NUM_EXAMPLES, dtype=np.int32))


def training(split, **options):
    return Pipeline(BATCH_SIZE, seed=3, **options).training(
        split, first_step=0, last_step=NUM_STEPS
    )


def test_any_number_of_workers_gives_the_same_batches(split):
    expected = list(training(split))
    assert len(expected) == NUM_STEPS
    for num_workers in (1, 2, MANY):
        found = in_time(lambda number=num_workers: list(training(split, num_workers=number)))
        assert_same(found, expected)
    evaluated = list(Pipeline(BATCH_SIZE, seed=3).evaluation(split))
    # Fewer batches than workers: some have nothing to do.
    assert len(evaluated) < MANY
    assert_same(
        in_time(lambda: list(Pipeline(BATCH_SIZE, seed=3, num_workers=MANY).evaluation(split))),
        evaluated,
    )


def write(buffer):
    large_images._end_with_the_stream()
    for _ in range(2):
        buffer.put(bytes(2**22))


def test_a_worker_does_not_wait_for_a_reader_of_what_it_wrote_last():
    context = multiprocessing.get_context("spawn")
    buffer = context.Queue(2)
    # As Grain names it.
    worker = context.Process(target=write, kwargs={"buffer": buffer}, daemon=True)
    worker.start()
    worker.join(TIME_LIMIT)
    ended = worker.exitcode
    worker.kill()
    assert ended == 0


def test_workers_end_with_a_stream_that_is_closed_early(split):
    # Batches of 5 MB; a worker has some that it has not written into its pipe.
    pipeline = Pipeline(4 * BATCH_SIZE, seed=3, num_workers=MANY)
    before = multiprocessing.active_children()

    def ended():
        stream = pipeline.training(split, first_step=0, last_step=1000)
        batches = list(itertools.islice(stream, 2 * MANY))
        workers = [child for child in multiprocessing.active_children() if child not in before]
        stream.close()
        for worker in workers:
            worker.join()
        return batches, [worker.exitcode for worker in workers]

    batches, codes = in_time(ended)
    # By themselves: Grain kills a worker that has not ended after 25 seconds.
    assert codes == [0] * MANY
    alone = Pipeline(4 * BATCH_SIZE, seed=3).training(split, first_step=0, last_step=2 * MANY)
    assert_same(batches, list(alone))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_consumers_that_wait_for_each_other_get_their_shares(split, num_workers):
    def shares():
        streams = [
            training(split, process_index=index, process_count=MANY, num_workers=num_workers)
            for index in range(MANY)
        ]
        # Each step needs a batch of every stream.
        return list(zip(*streams, strict=True))

    joined = [
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for parts in in_time(shares)
    ]
    assert_same(joined, training(split))
