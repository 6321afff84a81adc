"""Requests per second of `train.serve` beside a bare loop over the same program.

    python -m benchmarks.deployment [--repetitions=3] [--seconds=4] [--output=FILE.json]

Needs the packages of the server and scikit-learn. Two programs are exported: the network of the
digits, trained for an epoch, and EfficientNet-Lite0 with random weights. Each request has one image
in a form. 1 and 16 clients, in one process, send their next request when they have the answer to
the last one. The bare loop decodes as many files, one after another, and calls the program. The
server and the loop take turns, so that other jobs slow down both of them.
"""

import contextlib
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks import command, data, hostile, markdown, timing, watched
from train.classifiers import packaged
from train.classifiers.packaged import Package
from train.models import HEADS, MODELS
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of

CLIENTS = (1, 16)
_NUM_CLASSES = 1000
K = 5


def main() -> None:
    """Measures both programs and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=3, what="turns of the server and of the loop")
    parser.add_argument("--seconds", type=command.integer(1), default=4, help="of each turn")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        digits, lite0 = Path(made, "digits"), Path(made, "lite0")
        export(train_digits(Path(made)), digits)
        export(make_lite0(Path(made)), lite0)
        turns = given.repetitions, given.seconds
        programs = {
            "digits": _compare(digits, _digit(), *turns),
            "EfficientNet-Lite0": _compare(lite0, data.photographs()[0], *turns),
        }
    found = {"machine": timing.machine(), "repetitions": given.repetitions, "programs": programs}
    command.write(found, given.output)


def tables(results: dict[str, Any]) -> str:
    """The rates as Markdown."""
    rows = [
        [name, clients, *(f"{rate:,.0f}" for rate in rates)]
        for name, of_clients in results["programs"].items()
        for clients, rates in of_clients.items()
    ]
    header = ["program", "clients", "requests per second", "images per second of the bare loop"]
    return f"{markdown.machine(results['machine'])}.\n\n{markdown.table(header, rows)}"


def _compare(
    program: Path, file: bytes, turns: int, seconds: int
) -> dict[str, tuple[float, float]]:
    """The medians of the rates of the server and of the loop, by the number of clients."""
    classifier = packaged.read(program)
    request = program.with_name("request")
    request.write_bytes(hostile.post(*hostile.form(file)))
    found: dict[str, list[tuple[float, float]]] = {str(clients): [] for clients in CLIENTS}
    with _served(program) as address:
        # The first turn warms up.
        for turn in range(turns + 1):
            for clients in CLIENTS:
                flags = (f"--clients={clients}", f"--seconds={seconds}")
                line = [sys.executable, "-m", "benchmarks.load", address, str(request), *flags]
                answers = json.loads(subprocess.check_output(line))
                looped = _loop(classifier, file, clients, seconds)
                if turn:
                    found[str(clients)].append((len(answers) / seconds, looped))
    return {
        clients: tuple(map(statistics.median, zip(*rates, strict=True)))
        for clients, rates in found.items()
    }


def _loop(classifier: Package, file: bytes, size: int, seconds: int) -> float:
    """The images per second of a loop over the program."""
    assert classifier.reader is not None
    number, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        batch = np.stack([classifier.reader.for_evaluation(file, "") for _ in range(size)])
        jax.block_until_ready(classifier.call(batch))
        number += size
    return number / taken


@contextlib.contextmanager
def _served(program: Path) -> Iterator[str]:
    """The host and port of a server."""
    line = [sys.executable, "-m", "train.serve", f"--program={program}", "--port=0"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        running = (re.search(r"running on http://(\S+)", printed) for printed in process.stderr)
        try:
            yield next(filter(None, running))[1]
        finally:
            process.terminate()


def train_digits(folder: Path) -> dict[str, str]:
    """The flags of a run on the digits, after an epoch."""
    given = ("--config=digits:cross_entropy", "--config.num_epochs=1", f"--workdir={folder}/run")
    watched.run(["-m", "train.main", *given])
    return {"workdir": f"{folder}/run"}


def _digit() -> bytes:
    file = io.BytesIO()
    pixels = load_digits().images[0] * 255 / 16
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def make_lite0(folder: Path) -> dict[str, str]:
    """The flags of EfficientNet-Lite0 with random weights."""
    name = "efficientnet_lite0"
    spec = MODELS[name]
    assert spec.names is not None
    network = Classifier(spec.build(axis_name=None), HEADS["linear"](_NUM_CLASSES))
    zeros = np.zeros((1, spec.image_size, spec.image_size, 3), np.float32)
    variables = network.init(jax.random.key(0), zeros, train=False)
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
