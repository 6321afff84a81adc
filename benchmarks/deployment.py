"""Requests per second of `train.serve`, and their times, beside a loop over the same program.

    python -m benchmarks.deployment [--repetitions=3] [--seconds=4] [--output=FILE.json]

Needs the program's dependencies, the packages of the server and scikit-learn. Two programs are
exported: the network of the digits, trained for an epoch, and EfficientNet-Lite0 with random
weights. Each request has one image in a form: a digit as a PNG file of 8 by 8 pixels, or a
photograph as a JPEG file of 500 by 400. 1, 16 and 64 clients send their next request when they have
the answer to the last one. They are one process on the same machine, and take processor time from
the server. The server has one worker, and then one worker per core. A server with the same
connections that answers all requests with a constant shows the limit that HTTP and the clients set.

The loop decodes the same file for each answer. It is the loop of `train.predict`: threads read
files a little ahead, and the program gets batches of the size that the server uses for the same
number of waiting images. It uses neither HTTP nor JSON. The servers and the loop take turns, so
that other jobs on the machine slow down all of them. The ratio is the median over the turns.

Then hostile requests come, and beside them one client sends a request at a time. The slowest answer
is reported, and the memory before, after a quarter of the requests, after all of them, and some
seconds later.
"""

import contextlib
import http.client
import importlib.metadata
import io
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks import command, data, hostile, markdown, timing, watched
from train.classifiers import program as programs
from train.classifiers.program import Program
from train.data import reading
from train.models import HEADS, MODELS
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of
from train.serving.batcher import Batcher, choose

CLIENTS = (1, 16, 64)
HOSTILE = 2000
# The wait in seconds, until the last images of hostile requests are decoded.
_LATER = 15
_NUM_CLASSES = 1000
K = 5


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=3, what="turns of the server and of the loop")
    parser.add_argument("--seconds", type=command.integer(1), default=4, help="of each turn")
    arguments = parser.parse_args()
    command.write(measure(arguments.repetitions, arguments.seconds), arguments.output)


def measure(repetitions: int, seconds: int) -> dict[str, Any]:
    """The rates and the times of both programs, and the hostile requests."""
    machine = timing.machine()
    for package in ("starlette", "uvicorn", "pillow"):
        machine["versions"][package] = importlib.metadata.version(package)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = {
            "digits": (export(train_digits(folder), folder / "digits"), _digits()),
            "EfficientNet-Lite0": (
                export(make_lite0(folder), folder / "lite0"),
                data.photographs()[:16],
            ),
        }
        return {
            "machine": machine,
            "repetitions": repetitions,
            "seconds": seconds,
            "programs": {
                name: _compare(program, files, folder, repetitions, seconds)
                for name, (program, files) in programs.items()
            },
            "hostile": _attack(programs["digits"][0], _digits()[0]),
        }


def tables(results: dict[str, Any]) -> str:
    """The rates, the times and the hostile requests as Markdown."""
    rows = [
        [
            name,
            workers,
            clients,
            f"{found['served_per_second']:,.0f}",
            f"{found['loop_per_second']:,.0f}",
            f"{100 * found['ratio']:.0f} %",
            f"{found['constant_per_second']:,.0f}",
            f"{1000 * found['p50']:.1f}",
            f"{1000 * found['p99']:.1f}",
        ]
        for name, program in results["programs"].items()
        for workers, of_clients in program["workers"].items()
        for clients, found in of_clients.items()
    ]
    header = [
        *("program", "workers", "clients", "requests per second", "images per second of the loop"),
        *("server / loop", "constant answers per second", "p50, ms", "p99, ms"),
    ]
    attack = results["hostile"]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}.",
            markdown.table(header, rows),
            f"Beside {attack['requests']:,} hostile requests, {attack['answers']:,} requests of "
            f"another client were answered, all of them with sets: half within "
            f"{1000 * attack['p50']:.0f} ms, 99 of 100 within {1000 * attack['p99']:.0f} ms, and "
            f"the slowest within {attack['slowest']:.2f} s. The server had "
            f"{attack['mb_at_start']:,} MB in memory before, {attack['mb_before']:,} MB after the "
            f"first quarter of as many, {attack['mb_after']:,} MB at the end, and "
            f"{attack['mb_later']:,} MB {_LATER} seconds later.",
        ]
    )


def _compare(
    program: Path, files: Sequence[bytes], folder: Path, repetitions: int, seconds: int
) -> dict[str, Any]:
    classifier = programs.read(program).load()
    batcher = Batcher(classifier, lambda _size, _number: None)
    batcher.compile()
    request = folder / "request"
    request.write_bytes(hostile.post(*hostile.form(files[0])))
    found: dict[tuple[int, int], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        constant, _ = stack.enter_context(_started("benchmarks.constant"))
        servers = {
            workers: stack.enter_context(_served(program, f"--workers={workers}"))[0]
            for workers in sorted({1, os.cpu_count() or 1})
        }
        # The first turn warms up.
        for turn, clients in itertools.product(range(repetitions + 1), CLIENTS):
            size = choose(clients, batcher.seconds)
            loop = _loop(classifier, files[0], size, seconds)
            others = {
                "loop_per_second": loop,
                "constant_per_second": len(_load(constant, request, clients, seconds)) / seconds,
            }
            for workers, address in servers.items():
                taken = _load(address, request, clients, seconds)
                p50, p99 = np.percentile(taken, [50, 99]).tolist()
                served = len(taken) / seconds
                row = {"served_per_second": served, "ratio": served / loop, "p50": p50, "p99": p99}
                if turn:
                    found.setdefault((workers, clients), []).append({**row, **others})
    return {
        "batch_seconds": {str(size): taken for size, taken in batcher.seconds.items()},
        "workers": {
            str(workers): {
                str(clients): {
                    name: statistics.median(turn[name] for turn in turns) for name in turns[0]
                }
                for (number, clients), turns in found.items()
                if number == workers
            }
            for workers in servers
        },
    }


def _loop(classifier: Program, file: bytes, size: int, seconds: int) -> float:
    """The images per second of a loop over the program."""
    reader = classifier.reader
    assert reader is not None
    number, begun = 0, time.perf_counter()
    read = reading.in_threads(
        lambda one: reader.for_evaluation(one, ""), itertools.repeat(file), ahead=size
    )
    with contextlib.closing(read):  # type: ignore[type-var]
        while (taken := time.perf_counter() - begun) < seconds:
            batch = np.stack(list(itertools.islice(read, size)))
            jax.block_until_ready(classifier.call(batch))
            number += size
    return number / taken


def _load(address: tuple[str, int], request: Path, clients: int, seconds: int) -> list[float]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.load", f"{address[0]}:{address[1]}", str(request)),
            *(f"--clients={clients}", f"--seconds={seconds}"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    taken: list[float] = json.loads(done.stdout)
    return taken


_Served = tuple[tuple[str, int], "subprocess.Popen[str]"]


def _served(program: Path, *more: str) -> contextlib.AbstractContextManager[_Served]:
    """A server of the program: its address and its process."""
    return _started("train.serve", f"--program={program}", "--port=0", *more)


@contextlib.contextmanager
def _started(module: str, *arguments: str) -> Iterator[_Served]:
    """A server that prints its address when it is ready."""
    with subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = (re.match(r"ready +http://(.*):(\d+)", line) for line in process.stdout)
            ready = next(filter(None, lines))
            yield (ready[1], int(ready[2])), process
        finally:
            process.send_signal(signal.SIGTERM)


def _attack(program: Path, file: bytes) -> dict[str, Any]:
    """One client beside hostile requests."""
    kind, body = hostile.form(file)
    taken: list[float] = []
    is_over = threading.Event()

    with _served(program) as (address, process):

        def ask() -> None:
            while not is_over.wait(0.02):
                begun = time.perf_counter()
                connection = http.client.HTTPConnection(*address, timeout=60)
                connection.request("POST", "/predict", body, {"Content-Type": kind.decode()})
                response = connection.getresponse()
                content = response.read()
                connection.close()
                if response.status != 200:
                    raise ConnectionError(content)
                taken.append(time.perf_counter() - begun)

        at_start = _resident_mb(process.pid)
        client = threading.Thread(target=ask)
        client.start()
        hostile.attack(address, HOSTILE // 4)
        before = _resident_mb(process.pid)
        hostile.attack(address, HOSTILE, seed=1)
        after = _resident_mb(process.pid)
        time.sleep(_LATER)
        later = _resident_mb(process.pid)
        is_over.set()
        client.join()
    p50, p99 = np.percentile(taken, [50, 99]).tolist()
    return {
        "requests": HOSTILE + HOSTILE // 4,
        "answers": len(taken),
        "p50": p50,
        "p99": p99,
        "slowest": max(taken),
        "mb_at_start": at_start,
        "mb_before": before,
        "mb_after": after,
        "mb_later": later,
    }


def _resident_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"VmRSS:\s+(\d+)", status)
    return int(kilobytes) * 1024 // 10**6


def train_digits(folder: Path) -> dict[str, str]:
    """The flags of a run on the digits, after an epoch."""
    workdir = folder / "run"
    watched.run(
        [
            *("-m", "train.main", "--config=configs/digits.py:cross_entropy"),
            "--config.num_epochs=1",
            f"--workdir={workdir}",
        ]
    )
    return {"workdir": str(workdir)}


def _digits() -> list[bytes]:
    file = io.BytesIO()
    pixels = load_digits().images[0] * 255 / 16
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return [file.getvalue()]


def make_lite0(folder: Path) -> dict[str, str]:
    """The flags of EfficientNet-Lite0 with random weights."""
    name = "efficientnet_lite0"
    spec = MODELS[name]
    assert spec.names is not None
    network = Classifier(spec.build(axis_name=None), HEADS["linear"](_NUM_CLASSES))
    variables = network.init(
        jax.random.key(0),
        np.zeros((1, spec.image_size, spec.image_size, 3), np.float32),
        train=False,
    )
    weights, classes = folder / "lite0.safetensors", folder / "classes.txt"
    arrays = arrays_of(variables["params"], variables["batch_stats"], spec.names)
    safetensors.numpy.save_file(arrays, weights)
    classes.write_text("".join(f"class {index}\n" for index in range(_NUM_CLASSES)))
    return {"weights": str(weights), "model": name, "classes": str(classes)}


def export(classifier: Mapping[str, str], out: Path, *more: str) -> Path:
    """Exports a classifier with the rule top-5, and returns the file."""
    given = (f"--{name}={value}" for name, value in classifier.items())
    watched.run(["-m", "train.export", *given, f"--top_k={K}", f"--out={out}", *more])
    return out


if __name__ == "__main__":
    main()
