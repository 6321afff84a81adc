"""Serves sets over HTTP: `python -m train.serve --program=FILE`.

The program is one that train.export wrote. A request is sent to /predict:

    curl --form image=@photograph.jpg http://127.0.0.1:8000/predict

A form has files of the field "image". A body of the type application/json is an object with a list:
{"images": [...]}, files in base64, or {"features": [[...], ...]}. The response is {"sets": [...]},
in the order of the examples; the fields of a set are those of train.predict. What is refused is
answered by {"error": "..."}, with a status code of 400 or more.

/health says what is served. /metrics has counts and times for Prometheus. At SIGTERM the server
refuses new requests, answers those that have come, and ends. It belongs behind a proxy.
"""

import functools
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

from absl import flags

from train.foundation import command, kinds
from train.foundation.errors import needs_package
from train.foundation.flags import Flag, Needed, check, declare

_PROGRAM = flags.DEFINE_string(
    "program",
    None,
    "Needed. A program that train.export wrote. It is read once, at the start: a replaced file "
    "has no effect.",
)
_HOST = flags.DEFINE_string(
    "host", "127.0.0.1", "The address to listen at; 0.0.0.0 is every address of the machine."
)
_PORT = flags.DEFINE_integer("port", 8000, "The port; 0 is any that is free.")
_WORKERS = flags.DEFINE_integer(
    "workers", 1, "The number of processes that answer. Each has the program in memory."
)
_MAX_REQUEST_MB = flags.DEFINE_integer(
    "max_request_mb", 32, "The largest body of a request, in MiB."
)
_MAX_MEGAPIXELS = flags.DEFINE_integer(
    "max_megapixels",
    50,
    "The most pixels that the images of a request have together, in millions. No more are decoded.",
)
_MAX_WAITING = flags.DEFINE_integer(
    "max_waiting",
    256,
    "The most examples that wait in a worker, at least the 64 of a request; further requests are "
    "refused.",
)
_TIMEOUT_S = flags.DEFINE_float(
    "timeout_s", 30.0, "The seconds from the start of a request to its answer."
)
# Pillow refuses to decode more.
_MOST_MEGAPIXELS = 178
_ROWS = declare(
    Needed(("program",), "a program that train.export wrote"),
    Flag("program", kinds.TEXT),
    Flag("host", kinds.TEXT),
    Flag("port", kinds.integer(0, 65535)),
    Flag("workers", kinds.integer(1, 64)),
    Flag("max_request_mb", kinds.integer(1, 1024)),
    Flag("max_megapixels", kinds.integer(1, _MOST_MEGAPIXELS)),
    Flag("max_waiting", kinds.integer(64)),
    Flag("timeout_s", kinds.number(gt=0, le=3600)),
)


def main() -> None:
    """Serves until a signal comes."""
    check(_ROWS)
    assert _PROGRAM.value is not None
    try:
        import uvicorn

        from train.classifiers import packaged
        from train.package import serving
    except ModuleNotFoundError as error:
        raise needs_package("train.serve", str(error.name), "server") from error

    host, port, workers = _HOST.value, _PORT.value, _WORKERS.value
    try:
        # Before minutes of compilation.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise OSError(f"--host={host} --port={port}: {error.strerror}") from error
    settings = {
        "path": _PROGRAM.value,
        "request_bytes": _MAX_REQUEST_MB.value * 2**20,
        "pixels": _MAX_MEGAPIXELS.value * 10**6,
        "waiting": _MAX_WAITING.value,
        "seconds": _TIMEOUT_S.value,
        "threads": max(2, (os.cpu_count() or 1) // workers),
    }
    run = functools.partial(
        uvicorn.run,
        host=host,
        port=port,
        # Its heads are bounded.
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        limit_concurrency=512,
        # Longer than proxies keep an idle connection: they would send into one that ends.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(_TIMEOUT_S.value) + 5,
        # Of a worker that compiles beside others.
        timeout_worker_healthcheck=60,
    )
    if workers == 1:
        run(serving.application(**settings))
        return
    # uvicorn would start a worker again and again that cannot serve.
    serving.check(packaged.read(Path(_PROGRAM.value)), 1)
    with tempfile.TemporaryDirectory(prefix="topk_jax_") as folder:
        # A worker that is started again has the same program.
        for suffix in ("", ".json"):
            shutil.copy(f"{_PROGRAM.value}{suffix}", folder)
        settings["path"] = str(Path(folder, Path(_PROGRAM.value).name))
        os.environ |= {serving.SETTINGS: json.dumps(settings), serving.COUNTS: folder}
        run("train.package.serving:create", factory=True, workers=workers)


if __name__ == "__main__":
    command.run(main)
