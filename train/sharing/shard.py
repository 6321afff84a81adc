"""One of the shares of a command's work: which one, and of how many."""

import re
from dataclasses import dataclass

from train.foundation.errors import UserError

# No command has enough batches for more processes.
_MOST = 2**20
_PATTERN = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """A share of the work of a command.

    Attributes:
        index: which one, from 0.
        number: how many shares there are.
    """

    index: int
    number: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """The shard that --shard names.

        Raises:
            UserError: it names none.
        """
        match = _PATTERN.fullmatch(text)
        if match is not None:
            index, number = int(match[1]), int(match[2])
            if index < number <= _MOST:
                return cls(index, number)
        must_be = f"i/n, with n from 1 to {_MOST:,} and i from 0 to n - 1, as 0/4"
        raise UserError(field="--shard", must_be=must_be, got=text)

    def share(self, units: int) -> range:
        """Its share of some units of work, which may be empty; shares are consecutive."""
        return range(
            self.index * units // self.number,
            (self.index + 1) * units // self.number,
        )

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"
