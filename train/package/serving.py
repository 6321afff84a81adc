"""Sets over HTTP: /predict, /health and /metrics of a packaged classifier, by Starlette.

A thread calls the program, and a few others decode images. uvicorn has the connections and the
processes, prometheus-client the counts of all processes.
"""

import asyncio
import base64
import io
import json
import logging
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client as prometheus
from PIL import Image, UnidentifiedImageError
from prometheus_client import multiprocess
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, parse_options_header
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from topk_jax.rules import Answer
from train.classifiers import packaged
from train.classifiers.packaged import CHOSEN, NODES, NONE_OF_THESE, PROBABILITIES, Package
from train.data import images, reading, steps
from train.data.dataset import INPUT_DTYPES
from train.data.images import UnreadableImageError
from train.foundation.errors import errors_told, first_line
from train.prediction.entries import Entry, to_line

# The variables of a worker's environment: its settings as JSON, and the folder of all counts.
SETTINGS, COUNTS = "TOPK_JAX_SERVER", "PROMETHEUS_MULTIPROC_DIR"
# Few, because the program is compiled for each.
_SIZES = (1, 4, 16, 64)
_MOST_EXAMPLES = 64
_JSON, _FORM = "application/json", "multipart/form-data"
# The decoders that strangers reach; the others are for pictures that are rarely photographs.
_STRANGERS = {"AVIF", "BMP", "GIF", "HEIF", "JPEG", "PNG", "WEBP"}
_FORMATS = tuple(name for name in images.FORMATS if name in _STRANGERS)
# What texts have around base64: the start of a data URL, and ends of lines.
_AROUND_BASE64 = re.compile(r"^data:[^,]*,|\s")

_REQUESTS = prometheus.Counter("topk_jax_requests", "Answers to /predict by status.", ["status"])
_SECONDS = prometheus.Histogram("topk_jax_request_seconds", "The seconds of an answer.")
_EXAMPLES = prometheus.Counter("topk_jax_examples", "Examples that the program has answered.")
_BATCHES = prometheus.Counter("topk_jax_batches", "Calls of the program.")
_NONE = prometheus.Counter("topk_jax_none_of_these", "Sets that say: maybe none of the classes.")
_SET_SIZE = prometheus.Histogram(
    "topk_jax_set_size", "The classes of a set.", buckets=(0, 1, 2, 3, 5, 10, 20, 50, 100, 1000)
)

# The outputs of the program for one example, by their names.
Row = dict[str, Any]


class Batcher:
    """Calls a program for all examples that wait, in batches of a few sizes.

    Raises:
        UserError: see `check`.
    """

    def __init__(self, program: Package) -> None:
        for size in _SIZES:
            check(program, size)
        self._program = program
        self._waiting: list[tuple[np.ndarray, asyncio.Future[Row]]] = []
        self._calling: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="program")

    async def answer(self, examples: list[np.ndarray]) -> list[Row]:
        """The outputs for each example."""
        loop = asyncio.get_running_loop()
        rows: list[asyncio.Future[Row]] = [loop.create_future() for _ in examples]
        self._waiting += zip(examples, rows, strict=True)
        if self._calling is None or self._calling.done():
            self._calling = asyncio.create_task(self._call_until_none_waits())
        return await asyncio.gather(*rows)

    async def _call_until_none_waits(self) -> None:
        # For those that are done, nobody waits any longer.
        while waiting := [one for one in self._waiting if not one[1].done()]:
            # At least half of a batch is examples.
            size = max(one for one in _SIZES if one <= 2 * len(waiting))
            taken, self._waiting = waiting[:size], waiting[size:]
            batch = _zeros(self._program, size)
            batch[: len(taken)] = [example for example, _ in taken]
            call = asyncio.get_running_loop().run_in_executor(self._thread, self._call, batch)
            found: dict[str, np.ndarray] | BaseException
            (found,) = await asyncio.gather(call, return_exceptions=True)
            _BATCHES.inc()
            _EXAMPLES.inc(len(taken))
            for index, row in enumerate(row for _, row in taken):
                if row.done():
                    continue
                if isinstance(found, BaseException):  # The next batch may have room in memory.
                    row.set_exception(found)
                else:
                    row.set_result({name: output[index] for name, output in found.items()})

    def _call(self, batch: np.ndarray) -> dict[str, np.ndarray]:
        return {name: np.asarray(rows) for name, rows in self._program.call(batch).items()}


def check(program: Package, size: int) -> None:
    """Calls a program, so that it is compiled for a batch of this size.

    Raises:
        UserError: it cannot be compiled.
    """
    with errors_told(f"--program {program.path} does not run"):
        program.call(_zeros(program, size))


def _zeros(program: Package, size: int) -> np.ndarray:
    return np.zeros((size, *program.shape), INPUT_DTYPES[program.inputs])


@dataclass
class Service:
    """Answers requests with a packaged classifier, within limits.

    Attributes:
        path: the file of the classifier.
        request_bytes: of a body.
        pixels: of all images of a request.
        waiting: examples that are not answered yet.
        seconds: from the start of a request to its answer.
        threads: how many decode.
    """

    path: str
    request_bytes: int
    pixels: int
    waiting: int
    seconds: float
    threads: int

    def __post_init__(self) -> None:
        """Reads and compiles the program; raises `UserError`: see `packaged.read` and `check`."""
        self._program = packaged.read(Path(self.path))
        self._batcher = Batcher(self._program)
        self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix="requests")
        self._held = 0

    async def health(self, _request: Request) -> Response:
        """What is served."""
        program = self._program
        return JSONResponse(
            {
                "status": "ready",
                "program": program.path.name,
                "sha256": program.digest,
                "inputs": program.inputs,
                "shape": program.shape,
                "classes": len(program.classes),
                "rule": str(program.own_rule),
                "rule_in_words": program.own_rule.in_words,
            }
        )

    async def metrics(self, _request: Request) -> Response:
        """The counts of all workers, for Prometheus."""
        registry = prometheus.REGISTRY
        if COUNTS in os.environ:
            registry = prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        found = prometheus.generate_latest(registry)
        return Response(found, media_type=prometheus.CONTENT_TYPE_LATEST)

    async def predict(self, request: Request) -> Response:
        """The sets of the examples of a request."""
        begun, status = time.monotonic(), 500
        try:
            async with asyncio.timeout(self.seconds):
                response = await self._answer(request)
            status = response.status_code
        except TimeoutError as error:
            status = 504
            raise HTTPException(504, f"there is no answer within {self.seconds:g} s") from error
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            _REQUESTS.labels(status).inc()
            _SECONDS.observe(time.monotonic() - begun)
        return response

    async def _answer(self, request: Request) -> Response:
        held = self._hold(1)
        try:
            kind, body = self._kind(request), await self._body(request)
            read = asyncio.get_running_loop().run_in_executor
            examples = await read(self._threads, self._examples, kind, body)
            held += self._hold(len(examples) - 1)
            rows = await self._batcher.answer(examples)
        finally:
            self._held -= held
        return JSONResponse({"sets": [self._describe(row) for row in rows]})

    def _hold(self, more: int) -> int:
        if self._held + more > self.waiting:
            wait = {"Retry-After": "1"}
            raise HTTPException(503, "too many requests wait; ask again in a moment", wait)
        self._held += more
        return more

    def _kind(self, request: Request) -> str:
        kind = request.headers.get("content-type", "")
        taken = (_JSON, _FORM) if self._program.inputs == "images" else (_JSON,)
        if kind.partition(";")[0].strip().lower() not in taken:
            raise HTTPException(415, f"the Content-Type must be {' or '.join(taken)}")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "a body with a Content-Encoding is not read")
        return kind

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self.request_bytes:
                    raise HTTPException(413, f"the body has more than {self.request_bytes:,} bytes")
        except ClientDisconnect as error:
            raise HTTPException(400, "the connection ended before the body did") from error
        return bytes(body)

    def _examples(self, kind: str, body: bytes) -> list[np.ndarray]:
        """The examples of a body, as the program takes them; a thread reads them."""
        inputs = self._program.inputs
        if kind.lower().startswith(_FORM):
            return self._pixels(_files_of_form(kind, body))
        values = _values_of_json(body, inputs)
        if inputs == "images":
            return self._pixels([_decoded(value) for value in values])
        return _rows(values, self._program.shape[0])

    def _pixels(self, files: list[bytes]) -> list[np.ndarray]:
        reader, left, found = self._program.reader, self.pixels, []
        assert reader is not None
        if not files:
            raise HTTPException(400, "the request has no images")
        for index, file in enumerate(files):
            name = "the image" if len(files) == 1 else f"image {index + 1}"
            image = _opened(file, name)
            width, height = image.size
            left -= max(width * height, steps.enlarged(reader.fit.resize, image.size))
            if left < 0:
                raise HTTPException(
                    413,
                    f"{name}, {width} x {height} pixels, is too large: the images of a request "
                    f"have at most {self.pixels:,} pixels together, also while they are resized",
                )
            try:
                found.append(reader.for_evaluation(image, name))
            except UnreadableImageError as error:
                raise HTTPException(422, str(error)) from error
        return found

    def _describe(self, row: Row) -> dict[str, Any]:
        """The line of a set, as train.predict writes it."""
        rule = self._program.own_rule
        answer = Answer(row[CHOSEN], row.get(NODES), row.get(NONE_OF_THESE))
        entry = Entry(probabilities=row[PROBABILITIES]).answered(answer, rule.tree)
        _SET_SIZE.observe(len(entry.classes))
        _NONE.inc(bool(entry.none_of_these))
        return to_line(entry, rule, self._program.classes.names)


def _files_of_form(kind: str, body: bytes) -> list[bytes]:
    """The files of a form; a part is one, with or without the name of a file."""
    boundary = parse_options_header(kind)[1].get(b"boundary")
    if not boundary:
        raise HTTPException(400, "the Content-Type has no boundary of the form")
    found: list[bytes] = []

    def take(part: Field | File) -> None:
        if part.field_name != b"image":
            raise HTTPException(400, 'each part of a form must be a file of the field "image"')
        _check_number(len(found) + 1)
        if isinstance(part, File):
            part.file_object.seek(0)
            found.append(part.file_object.read())
        else:
            found.append(part.value or b"")

    ends: list[None] = []
    in_memory = {"MAX_MEMORY_FILE_SIZE": len(body)}
    try:
        parser = FormParser(_FORM, take, take, lambda: ends.append(None), boundary, None, in_memory)
        # What comes before the first boundary is no part.
        parser.write(body[max(0, body.find(b"--" + boundary)) :])
        parser.finalize()
    except FormParserError as error:
        raise HTTPException(400, f"the body is not a form of the type {_FORM}") from error
    if not ends:
        raise HTTPException(400, "the form is cut: its last boundary is missing")
    return found


def _values_of_json(body: bytes, inputs: str) -> list[Any]:
    """The values of an object with one list."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error
    found = value[inputs] if isinstance(value, dict) and list(value) == [inputs] else None
    if not isinstance(found, list) or not found:
        raise HTTPException(400, f'the body must be {{"{inputs}": [...]}}, and the list not empty')
    _check_number(len(found))
    return found


def _check_number(examples: int) -> None:
    if examples > _MOST_EXAMPLES:
        raise HTTPException(413, f"a request has at most {_MOST_EXAMPLES} examples")


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(_AROUND_BASE64.sub("", value), validate=True)
    except (TypeError, ValueError) as error:
        raise HTTPException(422, "each image must be a text, a file in base64") from error


def _rows(values: list[Any], number: int) -> list[np.ndarray]:
    """Examples of numbers as rows."""
    try:
        found = np.array(values)
    except ValueError:  # They differ in length.
        found = np.array(None)
    # Of texts, NumPy would make numbers.
    if found.dtype.kind in "iuf" and found.shape == (len(values), number):
        with np.errstate(over="ignore"):
            rows = found.astype(np.float32)
        if np.isfinite(rows).all():
            return [*rows]
    raise HTTPException(422, f"each example must be a list of {number} finite numbers")


def _opened(file: bytes, name: str) -> Image.Image:
    """An image whose header is read, and whose pixels are not."""
    try:
        return images.opened(io.BytesIO(file), _FORMATS)
    except (ImportError, UnidentifiedImageError) as error:
        formats = ", ".join(_FORMATS)
        raise HTTPException(415, f"{name} has none of the formats {formats}") from error
    except Image.DecompressionBombError as error:
        raise HTTPException(413, f"{name} has more pixels than Pillow decodes") from error
    except Exception as error:  # Pillow's readers can raise anything for a damaged file.
        raise HTTPException(422, f"cannot read {name}: {first_line(error)}") from error


def application(**settings: Any) -> Starlette:
    """The paths of the server; the settings are those of `Service`."""
    reading.ignore_warnings()
    # It logs what is wrong with a form.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
    service = Service(**settings)

    async def refuse(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def fail(_request: Request, _error: Exception) -> Response:
        return JSONResponse({"error": "an error of the server; see its log"}, 500)

    routes = [
        Route("/predict", service.predict, methods=["POST"]),
        Route("/health", service.health),
        Route("/metrics", service.metrics),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: refuse, Exception: fail})


def create() -> Starlette:
    """The application of a worker, which uvicorn has started."""
    return application(**json.loads(os.environ[SETTINGS]))
