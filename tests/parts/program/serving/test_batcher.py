"""Examples that wait are answered by one call; sizes of batches are those that pay."""

import asyncio
import threading

import numpy as np
import pytest

from tests.parts.program.serving.small_program import of_features
from train.foundation.errors import UserError
from train.serving.batcher import Batcher, choose


def outputs(batch):
    return batch, batch > 0


def run(batcher, questions):
    """The answers to some questions that come at once, before the thread starts."""

    async def ask():
        asked = [asyncio.create_task(batcher.answer(examples)) for examples in questions]
        await asyncio.sleep(0)
        thread = threading.Thread(target=batcher.run, args=[asyncio.get_running_loop()])
        thread.start()
        try:
            return await asyncio.wait_for(
                asyncio.gather(*asked, return_exceptions=True), timeout=60
            )
        finally:
            batcher.close()
            # Beside the loop, which the thread tells of its last batch.
            await asyncio.to_thread(thread.join, 60)

    return asyncio.run(ask())


def test_what_waits_is_answered_together_and_by_itself():
    batches = []
    batcher = Batcher(of_features(outputs), lambda *batch: batches.append(batch))
    batcher.seconds = {1: 1.0, 4: 1.1}
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    answers = run(batcher, [list(rows[:1]), list(rows[1:4]), list(rows[4:])])
    assert [len(answer) for answer in answers] == [1, 3, 2]
    found = [row[0] for answer in answers for row in answer]
    np.testing.assert_array_equal(found, rows)
    # The second batch has two rows of zeros.
    assert batches == [(4, 4), (4, 2)]


def test_nobody_waits_for_what_was_given_up():
    batches = []
    batcher = Batcher(of_features(outputs), lambda *batch: batches.append(batch))
    batcher.seconds = {1: 1.0}

    async def give_up():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await batcher.answer([np.zeros(2, np.float32)])

    asyncio.run(give_up())
    assert len(run(batcher, [[np.ones(2, np.float32)]])) == 1
    assert batches == [(1, 1)]


def test_a_batch_that_fails_fails_only_what_is_in_it():
    def fail_first(batch):
        if batch[0, 0] == 0:
            raise MemoryError("full")
        return outputs(batch)

    batcher = Batcher(of_features(fail_first), lambda *_: None)
    batcher.seconds = {1: 1.0}
    failed, answered = run(batcher, [[np.zeros(2, np.float32)], [np.ones(2, np.float32)]])
    assert isinstance(failed, MemoryError)
    assert answered[0][0].tolist() == [1, 1]


def test_the_size_is_the_one_that_answers_most_per_second():
    overhead = {1: 1.0, 4: 1.1, 16: 1.5}
    assert [choose(number, overhead) for number in (1, 2, 4, 6, 16, 99)] == [1, 4, 4, 16, 16, 16]
    proportional = {1: 1.0, 4: 3.5}
    assert [choose(number, proportional) for number in (1, 3, 4, 99)] == [1, 1, 4, 4]


def test_another_program_than_that_of_the_description_is_refused():
    call = of_features(lambda batch: (batch[:, :1], batch[:, :1] > 0))
    batcher = Batcher(call, lambda *_: None)
    with pytest.raises(UserError, match="is not the program of its description"):
        batcher.compile()
