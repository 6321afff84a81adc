"""Serves sets over HTTP: `python -m train.serve --program=FILE`.

The program is one that train.export wrote. A request is sent to /predict:

    curl --form image=@photograph.jpg http://127.0.0.1:8000/predict

A form has files of the field "image". A body of the type application/json is an object with a list:
{"images": [...]}, files in base64, or {"features": [[...], ...]}. The response is {"sets": [...]},
in the order of the examples; the fields of a set are those of train.predict. What is refused is
answered by {"error": "..."}, with a status code of 400 or more.

/health says what is served, with the status code 200 if requests are answered and 503 if not.
/metrics has counts and times for Prometheus.

At SIGTERM the server refuses new requests, answers those that have come, and ends. It writes no
file. Programs of strangers in front of it, a name, a password and TLS are for a proxy.
"""

import os
import sys
from pathlib import Path

from absl import flags

from train.foundation import command, kinds
from train.foundation.console import show_line
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
    "The most pixels that the images of a request have together, in millions. An image is decoded "
    "only if it has fewer.",
)
_MAX_WAITING = flags.DEFINE_integer(
    "max_waiting", 256, "The most examples that wait in a worker; further requests are refused."
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
    Flag("max_waiting", kinds.integer(1)),
    Flag("timeout_s", kinds.number(gt=0, le=3600)),
)


def main() -> None:
    """Serves until a signal comes."""
    check(_ROWS)
    assert _PROGRAM.value is not None
    from train.classifiers import program as programs
    from train.serving import listening
    from train.serving.limits import Limits

    try:
        from train.serving.meter import Meter
        from train.serving.supervisor import Supervisor
        from train.serving.worker import Worker
    except ModuleNotFoundError as error:
        raise needs_package("train.serve", str(error.name), "server") from error

    program = programs.read(Path(_PROGRAM.value))
    workers = _WORKERS.value
    limits = Limits(
        request_bytes=_MAX_REQUEST_MB.value * 2**20,
        pixels=_MAX_MEGAPIXELS.value * 10**6,
        waiting=_MAX_WAITING.value,
        seconds=_TIMEOUT_S.value,
    )
    meter = Meter(workers)
    worker = Worker(
        program=program,
        limits=limits,
        socket=listening.listen(_HOST.value, _PORT.value),
        meter=meter,
        threads=max(2, (os.cpu_count() or 1) // workers),
    )
    url = listening.url(worker.socket)
    show_line(f"starting  {url}, {program.path}, SHA-256 {program.digest}")

    def show_ready() -> None:
        show_line(f"ready     {url}")

    if workers == 1:
        worker.run(show_ready)
    else:
        Supervisor(worker, workers).run(show_ready)
    accepted, answered = meter.totals()
    show_line(f"ended     {answered:,} of {accepted:,} requests answered")
    sys.stdout.flush()
    # A thread may be in a decoder or in the compiler, and Python would wait for it.
    os._exit(0)


if __name__ == "__main__":
    command.run(main)
