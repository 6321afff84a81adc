"""`train.prepare`, killed or on a full disk at an exact moment, on a small archive."""

import os
import resource
import signal

from absl import logging

from tests.parts.program.data import small
from train import prepare as program
from train.data.preparing import dataset_writer, shards

# Smaller than the smallest shard, which ArrayRecord fills up to 64 KiB.
FILE_SIZE_LIMIT = 30_000


def kill_at_call(owner, name, count, *, after=False):
    """Has the process killed in the `count`-th call of a function, before or after its work."""
    original = getattr(owner, name)
    calls = 0

    def counted(*arguments, **keywords):
        nonlocal calls
        calls += 1
        result = original(*arguments, **keywords) if calls < count or after else None
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, counted)


MOMENTS = {
    # 30 images are three shards and a part.
    "in a shard": lambda: kill_at_call(shards, "_checked", 30),
    "before the journal": lambda: kill_at_call(shards.Journal, "note", 3),
    "before the description": lambda: kill_at_call(dataset_writer, "_describe", 1),
    "before the renaming": lambda: kill_at_call(dataset_writer, "_describe", 1, after=True),
    "full disk": lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT, FILE_SIZE_LIMIT)
    ),
}


def main():
    small.shrink(setattr)
    MOMENTS[os.environ["MOMENT"]]()
    logging.set_verbosity(logging.ERROR)
    program.main()
