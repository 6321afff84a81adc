"""--shard=i/n: a command takes every n-th example, and its output has only these."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from absl import flags

from train.foundation.errors import UserError

# So that --help shows the flag as one of the command.
flags.disclaim_key_flags()


def define(*outputs: flags.FlagHolder[str | None]) -> Callable[[], slice]:
    """Defines the flag; returns a function that returns the share that it names.

    Args:
        outputs: the flags of files, which shares must not overwrite for each other.
    """
    shard = flags.DEFINE_string(
        "shard",
        None,
        "i/n, as 1/4: takes the i-th example and every n-th after it, with i from 1 to n. Tasks of "
        "a job array, of srun or of mpirun need it; 1/1 takes all.",
    )

    def chosen() -> slice:
        if shard.value is None:
            # It imports JAX, which a wrong flag does not wait for.
            from train.devices import processes  # noqa: PLC0415

            how = "give each --shard=i/n, or --shard=1/1 for all examples"
            processes.refuse_tasks(how, in_arrays=True)
            return slice(0, None, 1)
        found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", shard.value)
        index, number = (0, 0) if found is None else map(int, found.groups())
        if not 1 <= index <= number:
            raise UserError(field="--shard", must_be="i/n, with i from 1 to n", got=shard.value)
        for flag in outputs:
            if number > 1 and flag.value and str(index) not in Path(flag.value).name:
                must_be = f"a name with {index} in it, the share, as no other share has"
                raise UserError(field=f"--{flag.name}", must_be=must_be, got=flag.value)
        return slice(index - 1, None, number)

    return chosen


def places(share: slice, number: int) -> np.ndarray:
    """The places of a share among some examples; refuses a share without any."""
    if share.start >= number:
        must_be = f"i/n, with i at most {number:,}, the number of examples"
        raise UserError(field="--shard", must_be=must_be, got=f"{share.start + 1}/{share.step}")
    return np.arange(number)[share]
