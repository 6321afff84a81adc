"""The address of the server."""

import socket

from train.foundation.errors import UserError

# Connections that wait to be accepted.
_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; a port of 0 is any that is free.

    Raises:
        UserError: another program has the port, or this machine does not have the address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UserError(field="--host", must_be="an address of this machine", got=host) from error
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise UserError(
            f"--host and --port must be an address that is free; {host}:{port}: {error.strerror}"
        ) from error
    return made


def url(listening: socket.socket) -> str:
    """The address for a browser."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
