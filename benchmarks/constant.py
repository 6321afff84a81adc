"""A server with the connections of `train.serve` that answers each request with a constant.

python -m benchmarks.constant
"""

import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

from train.serving import listening
from train.serving.connections import BoundedProtocol

_BODY = b'{"sets": []}\n'
_HEADERS = [(b"content-length", str(len(_BODY)).encode()), (b"content-type", b"application/json")]


async def _answer(_scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    while True:
        message = await receive()
        if message["type"] != "http.request" or not message["more_body"]:
            break
    await send(
        {"type": "http.response.start", "status": 200, "headers": _HEADERS, "trailers": False}
    )
    await send({"type": "http.response.body", "body": _BODY, "more_body": False})


def main() -> None:
    """Answers until SIGTERM comes."""
    socket = listening.listen("127.0.0.1", 0)
    print(f"ready     {listening.url(socket)}", flush=True)  # noqa: T201
    config = uvicorn.Config(
        _answer, http=BoundedProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    uvicorn.Server(config).run(sockets=[socket])


if __name__ == "__main__":
    main()
