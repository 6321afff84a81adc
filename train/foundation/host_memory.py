"""Refuses what cannot fit into the memory of this machine, before anything of it is made."""

import os

from train.foundation.errors import UserError

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def check_fits(what: str, num_bytes: int) -> None:
    """Refuses arrays that are larger than the memory of this machine.

    Linux hands out memory that it does not have, and kills the process that uses it. XLA aborts the
    process, or waits for years of work. So what is certainly held is counted first.

    Args:
        what: the arrays, in the plural, and the fields that they come from, for the message.
        num_bytes: the size of the arrays, a Python integer, which does not overflow.

    Raises:
        UserError: they are larger.
    """
    physical = _physical()
    if num_bytes > physical:
        raise UserError(
            f"{what} need {in_words(num_bytes)} of memory; this machine has {in_words(physical)}"
        )


def in_words(num_bytes: int) -> str:
    """A number of bytes with its unit, such as "1,280 TB"."""
    power = min((len(str(num_bytes)) - 1) // 3, len(_UNITS) - 1)
    # Four digits are easier to compare than a fraction of the next unit.
    if num_bytes < 10_000 * 1000 ** (power - 1):
        power = max(power - 1, 0)
    return f"{num_bytes // 1000**power:,} {_UNITS[power]}"


def _physical() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
