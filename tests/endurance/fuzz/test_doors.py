"""Damaged images, tables and weights at the doors that read files of other people.

Whatever is in a file, a door returns what it documents or raises one line; it runs no code of the
file and writes nothing. The trials of a kind are made in a process of their own, with limits.
"""

import io
import json
import math
import os
import random
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from safetensors.numpy import save

from tests.parts.program.forked import start
from tests.promises import torch_files
from train.data import look, reading
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.data.image_changes import CHANGES
from train.data.images import UnreadableImageError
from train.data.sources import features, table
from train.foundation.errors import UserError
from train.models.weights import files as weight_files
from train.scores import files as score_files

NUMBERS = {"images": 1000, "tables": 500, "weights": 1500}
# Of a process: the largest image that Pillow decodes has twice 90 million pixels.
MEMORY, SECONDS_OF_A_TRIAL = 4 * 2**30, 60
_SETTINGS = "FUZZED"


def images() -> Iterator[tuple[str, bytes]]:
    across, down = np.meshgrid(np.arange(13), np.arange(9))
    ramp = Image.fromarray(np.stack([across * 19, down * 28, across * down * 2], -1).astype("u1"))
    exif = Image.Exif()
    exif[0x112] = 6
    written: list[tuple[str, Image.Image, dict[str, Any]]] = [
        ("rgb.png", ramp, {}),
        ("palette.png", ramp.convert("P"), {"transparency": 3}),
        ("sixteen_bits.png", Image.fromarray((across * 5000).astype(np.uint16)), {}),
        # Resized until its shorter side has 256 pixels, it would have 3.9 thousand million.
        ("narrow.png", Image.new("1", (1, 60_000)), {}),
        ("rgb.jpg", ramp, {"exif": exif}),
        ("inks.jpg", ramp.convert("CMYK"), {"progressive": True}),
        ("animated.gif", ramp.convert("P"), {"save_all": True, "append_images": [ramp]}),
        ("deflated.tif", ramp, {"compression": "tiff_deflate"}),
        ("real.tif", Image.fromarray((across / 13).astype(np.float32)), {}),
        *((f"rgb.{ending}", ramp, {}) for ending in ("bmp", "webp", "ppm", "tga", "ico", "jp2")),
    ]
    for name, image, options in written:
        buffer = io.BytesIO()
        image.save(buffer, format=Image.registered_extensions()[Path(name).suffix], **options)
        yield name, buffer.getvalue()


def tables() -> Iterator[tuple[str, bytes]]:
    yield "a.csv", b"path,label,group\na.jpg,ash,1\nb.jpg,oak,2\n"
    yield "a.tsv", "path\tlabel\na.jpg\tash\nb.jpg\toak\n".encode("utf-16")
    columns, buffer = {"path": ["a.jpg", "b.jpg"], "label": ["ash", "oak"]}, io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), buffer)
    yield "a.parquet", buffer.getvalue()
    for name in ("features", "scores"):
        arrays: dict[str, Any] = {"labels": np.arange(4), name: np.eye(4, dtype="f4")}
        np.savez(buffer := io.BytesIO(), **arrays)
        yield f"{name}.npz", buffer.getvalue()


def weights() -> Iterator[tuple[str, bytes]]:
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = torch_files.Tensor(np.arange(8, dtype=np.float16), 1, (2, 2), (1, 3))
    parameter = torch_files.parameter(view)
    saved = torch_files.checkpoint({"module.weight": kernel})
    # None of this code may run, whatever becomes of the bytes around it.
    call = torch_files.call(torch_files.name("posix", "system"), "touch code-ran")
    run = torch_files.Opcodes(b'(S\'open("code-ran", "w")\'\nibuiltins\nexec\n')
    for name, to_bytes in torch_files.FORMATS.items():
        for number, more in enumerate((saved, parameter, call, run)):
            yield f"{number}.{name}", to_bytes({"weight": view, "more": more})
    yield "kernel.safetensors", save({"weight": kernel})


def seen_before_training(path: Path) -> None:
    labels = np.zeros(1, np.int32)
    looks = look.look(Examples.of_source([path.read_bytes()], labels, ("any",), "photos"))
    assert (looks.sizes > 0).all() == (looks.reasons[0] == "")


def read_as(reader: ImageReader) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        draws = np.full(reader.change.num_draws, 0.3)
        found = reader.for_training(path.read_bytes(), path.name, draws)
        assert found.shape == reader.shape
        assert found.dtype == np.uint8

    return read


def read_table(path: Path) -> None:
    if path.suffix != ".npz":
        table.read(path)
    elif path.name == "scores.npz":
        score_files.read(path, flag="--scores")
    else:
        features.find(path)


CORPORA = {"images": images, "tables": tables, "weights": weights}
DOORS: Mapping[str, list[Callable[[Path], Any]]] = {
    "images": [
        seen_before_training,
        *(read_as(ImageReader.own((20, 24, 3), change)) for change in CHANGES.values()),
    ],
    "tables": [read_table],
    "weights": [weight_files.read],
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        begin, size = draw.randrange(len(changed) + 1), draw.choice((1, 1, 2, 4, 8, 64, 1024))
        part = changed[begin : begin + size]
        number = draw.choice((0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**63 - 1, 2**64 - 1))
        encoded = (number % 2 ** (8 * min(size, 8))).to_bytes(min(size, 8), "little")
        flipped = bytes([part[0] ^ 1 << draw.randrange(8)]) + part[1:] if part else b""
        others = (b"", part * 2, flipped, flipped, encoded, encoded[::-1], draw.randbytes(size))
        changed[begin : begin + size] = draw.choice(others)
    return bytes(changed[: draw.randrange(len(changed) + 1)] if draw.random() < 0.1 else changed)


class Watch:
    """Notes what the code of a file could do: write, run, or reach the network."""

    _FORBIDDEN = ("os.", "shutil.", "subprocess.", "socket.", "ctypes.", "urllib.", "signal.")
    _ALLOWED = ("os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv")

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event == "open":
            is_wrong = isinstance(arguments[2], int) and bool(arguments[2] & 0o3)
        elif event in ("exec", "import"):
            is_wrong = not self._imports()
        else:
            is_wrong = event.startswith(self._FORBIDDEN) and event not in self._ALLOWED
        if is_wrong:
            self.seen.append(f"{event} {arguments!r}"[:200])

    @staticmethod
    def _imports() -> bool:
        # Libraries import the readers of rare formats when they meet them.
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" not in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None


def why_wrong(watch: Watch, door: Callable[[Path], Any], path: Path) -> str:
    """Why a door failed at a file; empty if it did not."""
    watch.seen, told = [], ""
    try:
        door(path)
    except (UserError, UnreadableImageError) as error:
        told = str(error)
    except BaseException:
        return traceback.format_exc()
    finally:
        seen, watch.seen = watch.seen, None
    # The pickle of weights may claim any size.
    is_large = "MemoryError" in told and door is not weight_files.read
    return f"did {seen}" if seen else told if "\n" in told or is_large else ""


def main() -> None:
    """Makes the trials of a kind, and prints each before it is made, and why it failed."""
    kind, seed = json.loads(os.environ[_SETTINGS])
    reading.ignore_warnings()
    watch, corpus = Watch(), dict(CORPORA[kind]())
    with tempfile.TemporaryDirectory() as folder:
        for index in range(-len(corpus), NUMBERS[kind]):
            draw = random.Random(f"{seed} {index}")
            # At first each whole file: what is imported at the first use is no fault.
            name = [*corpus][index] if index < 0 else draw.choice([*corpus])
            path = Path(folder, name)
            path.write_bytes(corpus[name] if index < 0 else damaged(corpus[name], draw))
            for number, door in enumerate(DOORS[kind]):
                signal.alarm(SECONDS_OF_A_TRIAL)
                print(f"trial {index} of {seed}: {name} at door {number}", flush=True)
                wrong = why_wrong(watch, door, path)
                if wrong and index >= 0:
                    print(f"FAILED {wrong}", flush=True)
    signal.alarm(0)


@pytest.mark.parametrize("kind", NUMBERS)
def test_damaged_files_are_read_or_told(kind, run_seed):
    settings = json.dumps([kind, run_seed])
    ended = start(__name__, environment={_SETTINGS: settings}, memory=MEMORY, time_limit=1500)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    failed = ended.stdout.find("FAILED")
    assert failed < 0, ended.stdout[max(0, failed - 200) : failed + 3000]


def test_tensors_of_strangers_are_read_exactly_or_refused(tmp_path, run_seed):
    draw = random.Random(run_seed)
    sizes = (0, 1, 1, 2, 2, 3, 5, 64, 2**31, 2**62)
    for _ in range(1000):
        storage = np.arange(draw.choice((0, 1, 6, 24, 1000)), dtype=draw.choice(("f4", "i8")))
        rank = draw.choice((0, 1, 2, 2, 3, 60))
        shape, strides = (tuple(draw.choices(sizes, k=rank)) for _ in range(2))
        view = torch_files.Tensor(storage, draw.choice((0, 0, 1, 5, 2**40)), shape, strides)
        path, to_bytes = tmp_path / "weights", draw.choice([*torch_files.FORMATS.values()])
        path.write_bytes(to_bytes({"weight": view}))
        what = f"shape {shape}, strides {strides}, offset {view.offset} of {storage.size}"
        try:
            found = weight_files.read(path)["weight"]
        except UserError:
            continue
        assert found.shape == view.shape, what
        if 0 < found.size <= 10_000:
            places = np.indices(shape).reshape(rank, math.prod(shape))
            numbers = view.offset + np.array(strides, np.int64) @ places
            np.testing.assert_array_equal(found.ravel(), storage[numbers], what)
