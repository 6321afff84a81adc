"""`train.prepare`, killed or on a full disk at an exact moment, on a small archive."""

import os
import resource
import signal
import zipfile
from pathlib import Path

from tests.parts.program.data import small
from train import prepare as program
from train.data import look
from train.data.sources import tfds as prepared_files

# Smaller than the smallest shard, which ArrayRecord fills up to 64 KiB.
FILE_SIZE_LIMIT = 30_000


def kill_at_call(owner, name, count=1, *, after=False):
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
    "never": lambda: None,
    # After the two files of metadata, 30 images are for training.
    "at an image": lambda: kill_at_call(zipfile.ZipFile, "read", 20),
    "between splits": lambda: kill_at_call(zipfile.ZipFile, "read", 36),
    "before the check": lambda: kill_at_call(look, "look"),
    "at a check": lambda: kill_at_call(look, "_look", 30),
    "before the labels": lambda: kill_at_call(prepared_files, "leave_out"),
    "after the labels": lambda: kill_at_call(prepared_files, "leave_out", after=True),
    "after the renaming": lambda: kill_at_call(Path, "rename", after=True),
    "full disk": lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT, FILE_SIZE_LIMIT)
    ),
}


def main():
    small.shrink(setattr)
    MOMENTS[os.environ["MOMENT"]]()
    program.main()
