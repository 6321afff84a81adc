"""A preparation that is killed, or runs into a full disk, at a given moment: a process of its own.

python -m tests.train.data.interrupted MOMENT MANUAL_DIR DATA_DIR
"""

import os
import resource
import signal
import sys

from absl import logging

from tests.train.data import small
from train import command_line, prepare
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
    moment, manual_dir, data_dir = sys.argv[1:]
    sys.argv[1:] = []
    small.shrink(setattr)
    MOMENTS[moment]()

    def command():
        logging.set_verbosity(logging.ERROR)
        prepare.prepare(
            "plantnet300k", data_dir=data_dir, manual_dir=manual_dir, skip_unreadable=False
        )

    command_line.run(command)


if __name__ == "__main__":
    main()
