"""Random trials: each is drawn from the seed and its own number; failures are reported."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Trials:
    """The trials of one kind.

    Args:
        kind: what is tried.
        seed: of all trials.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self.seed = seed
        self.number = 0
        self.failures: list[str] = []

    def draw(self, index: int | str) -> random.Random:
        """The random numbers of a trial, whatever other trials there are."""
        return drawn(self.kind, self.seed, index)

    def add(self, what: str, failure: str | None) -> None:
        """Counts a trial, which has failed if there is a reason."""
        self.number += 1
        if failure is not None:
            self.failures.append(f"{what}: {failure}")

    def attempt(self, what: str, tried: Callable[[], str | None]) -> None:
        """Makes and counts a trial, which fails with the reason that it returns, or by a hang."""
        try:
            self.add(what, tried())
        except TimeoutError as error:
            self.add(what, str(error))

    @contextmanager
    def trial(self, what: str) -> Iterator[None]:
        """Counts a trial, which fails with an AssertionError."""
        try:
            yield
        except AssertionError as error:
            self.add(what, str(error))
        else:
            self.add(what, None)

    def check(self) -> None:
        """Fails with all that has failed."""
        if self.failures:
            told = "\n\n".join(self.failures[:20])
            raise AssertionError(
                f"{len(self.failures)} of {self.number} trials failed "
                f"(--trial-seed={self.seed}):\n{told}"
            )


def drawn(kind: str, seed: int, index: int | str) -> random.Random:
    return random.Random(f"{seed} {kind} {index}")
