"""Requests per second of `train.serve` beside a bare loop over the same program.

    python -m benchmarks.deployment [--seconds=4] [--output=FILE.json]

Two programs are exported: the network of the digits, trained for an epoch, and EfficientNet-Lite0
with random weights. Each request has one image in a form. 1 and 16 clients send their next request
when they have the answer to the last one. The bare loop decodes as many files, one after another,
and calls the program. The server and the loop take turns, so that other jobs slow down both.
"""

import contextlib
import http.client
import io
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks import input_pipeline, table, timing
from train.classifiers import packaged
from train.classifiers.packaged import Package
from train.models import HEADS, MODELS
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of

CLIENTS = (1, 16)
_NUM_CLASSES = 1000
_FORM_HEAD = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
_FORM_TYPE = {"Content-Type": "multipart/form-data; boundary=x"}


def main() -> None:
    """Measures both programs and prints or writes the results as JSON."""
    parser = timing.parser(__doc__, repetitions=3, what="turns of the server and of the loop")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn")
    given = timing.parse(parser)
    turns = given.repetitions, 0.5 if given.smoke else given.seconds
    with tempfile.TemporaryDirectory() as made:
        run, digits = Path(made, "run"), Path(made, "digits")
        _command("main", "--config=digits:cross_entropy", "--config.num_epochs=1", workdir=run)
        export({"workdir": run}, digits)
        programs = {"digits": _compare(digits, _digit(), *turns)}
        if not given.smoke:
            lite0 = Path(made, "lite0")
            export(make_lite0(Path(made)), lite0)
            photograph = input_pipeline.photographs()[0]
            programs["EfficientNet-Lite0"] = _compare(lite0, photograph, *turns)
    results = {
        "machine": timing.machine(),
        "repetitions": given.repetitions,
        "programs": programs,
    }
    timing.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """The rates as Markdown."""
    rows = (
        [name, clients, *(f"{rate:,.0f}" for rate in rates)]
        for name, of_clients in results["programs"].items()
        for clients, rates in of_clients.items()
    )
    header = ["program", "clients", "requests per second", "images per second of the bare loop"]
    return f"{table.machine(results)}.\n\n{table.markdown(header, rows)}"


def make_lite0(folder: Path) -> dict[str, Any]:
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
    return {"weights": weights, "model": name, "classes": classes}


def export(classifier: Mapping[str, Any], out: Path, *more: str) -> Path:
    """Exports a classifier with the rule top-5, and returns the file."""
    _command("export", "--top_k=5", *more, **classifier, out=out)
    return out


def _command(name: str, *given: str, **flags: Any) -> None:
    line = [f"--{flag}={value}" for flag, value in flags.items()]
    subprocess.run([sys.executable, "-m", f"train.{name}", *given, *line], check=True)


def _compare(
    program: Path, file: bytes, turns: int, seconds: float
) -> dict[str, tuple[float, float]]:
    """The medians of the rates of the server and of the loop, by the number of clients."""
    classifier = packaged.read(program)
    found: dict[str, list[tuple[float, float]]] = {str(clients): [] for clients in CLIENTS}
    with _served(program) as address:
        # The first turn warms up.
        for turn in range(turns + 1):
            for clients in CLIENTS:
                rates = (
                    _requests(address, file, clients, seconds) / seconds,
                    _loop(classifier, file, clients, seconds),
                )
                if turn:
                    found[str(clients)].append(rates)
    return {
        clients: tuple(map(statistics.median, zip(*rates, strict=True)))
        for clients, rates in found.items()
    }


def _requests(address: str, file: bytes, clients: int, seconds: float) -> int:
    """How many requests all clients sent that were answered."""
    body, end = _FORM_HEAD + file + b"\r\n--x--\r\n", time.perf_counter() + seconds

    def client(_: int) -> int:
        connection, number = http.client.HTTPConnection(address), 0
        while time.perf_counter() < end:
            connection.request("POST", "/predict", body, _FORM_TYPE)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ConnectionError(answer.read())
            answer.read()
            number += 1
        connection.close()
        return number

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(client, range(clients)))


def _loop(classifier: Package, file: bytes, size: int, seconds: float) -> float:
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


def _digit() -> bytes:
    file = io.BytesIO()
    pixels = load_digits().images[0] * 255 / 16
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()
