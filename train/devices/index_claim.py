"""Finds two processes of one machine that have one index, while process 0 is not there to do so.

On one machine a copied command most often gives one index twice. The claim is a socket with an
abstract name: Linux frees the name when the process ends, however it ends. Other systems have no
such names; there, process 0 finds the mistake when it comes.
"""

import contextlib
import hashlib
import select
import socket
import sys
from types import TracebackType


class IndexClaim:
    """The index of this process, until it is closed.

    Args:
        place: where process 0 is to listen.
        index: the index of this process.
    """

    def __init__(self, place: str, index: int) -> None:
        # The name of a socket is short; the name of a host may be long.
        digest = hashlib.sha256(f"{place} {index}".encode()).hexdigest()
        self._name = f"\0topk_jax {digest}"
        self._listener: socket.socket | None = None
        self._is_shared = False

    def __enter__(self) -> "IndexClaim":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()

    def is_shared(self) -> bool:
        """Whether another process has, or had, the index. The other process finds it too."""
        if self._is_shared or sys.platform != "linux":
            return self._is_shared
        if self._listener is None:
            self._claim()
        elif select.select([self._listener], [], [], 0)[0]:
            self._is_shared = True
        return self._is_shared

    def _claim(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(self._name)
            listener.listen()
        except OSError:
            listener.close()
            # A process that cannot be reached has just ended, or listens the next time.
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as other:
                other.connect(self._name)
                self._is_shared = True
        else:
            self._listener = listener
