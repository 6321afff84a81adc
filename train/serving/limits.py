"""What a server takes, and the refusal of what it does not take."""

from dataclasses import dataclass

# The examples of a request.
MOST_EXAMPLES = 64
# The connections of a worker. A process may usually have 1,024 open files.
MOST_CONNECTIONS = 512
# The bytes of all requests of a worker that have come, and are not answered yet: some of the
# largest, and a floor for small ones.
_LARGEST_REQUESTS = 8
_FLOOR = 64 * 2**20


@dataclass(frozen=True)
class Limits:
    """The limits that flags set.

    Attributes:
        request_bytes: the largest body of a request.
        pixels: the most pixels that the images of a request have, all together.
        waiting: the most examples of a worker that wait for their answer.
        seconds: from the head of a request to its answer.
    """

    request_bytes: int
    pixels: int
    waiting: int
    seconds: float

    @property
    def held_bytes(self) -> int:
        """The most bytes of bodies that a worker holds."""
        return max(_FLOOR, _LARGEST_REQUESTS * self.request_bytes)


class RefusalError(Exception):
    """A request that is not answered.

    Args:
        status: the status code of the response.
        message: why, in one line.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
