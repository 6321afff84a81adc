"""Damaged files of the corpus at the doors for weights and for images, in this process.

Whatever is in a file, a door returns what it documents or raises what it documents. It runs no code
of the file, and writes nothing.
"""

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

from tests.endurance.fuzz import blocks
from tests.endurance.fuzz.make_corpus import CORPUS
from tests.endurance.fuzz.mutations import mutated
from tests.endurance.fuzz.trials import drawn
from train.data import look, photographs
from train.data.crops import ImageReader
from train.data.examples import Examples
from train.data.image_changes import CHANGES
from train.data.images import UnreadableImageError
from train.foundation import reading
from train.foundation.errors import UserError
from train.models.weights import files as weight_files
from train.prediction import inputs
from train.prediction.thumbnails import Thumbnail

# Bytes that a door may take, beside what the process has. The largest image that Pillow decodes has
# twice 90 million pixels: half a GB, and as much again for a copy in other colours.
_MEMORY = 3 * 2**30
# Of a message, in characters: with a name of 200 bytes, each of which is shown as four.
_LONGEST = 1500


def _weights(path: Path) -> None:
    for name, array in weight_files.read(path).items():
        assert isinstance(name, str)
        # All of its numbers are the file's own: none is read from elsewhere.
        assert array.size == 0 or np.isfinite(array.astype(np.float64).ravel()[-1]) in (True, False)


def _read_by(reader: ImageReader) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        draws = np.full(reader.change.num_draws, 0.3)
        for found in (
            reader.for_training(path.read_bytes(), path.name, draws),
            reader.for_evaluation(path.read_bytes(), path.name),
        ):
            assert found.shape == reader.shape
            assert found.dtype == np.uint8

    return read


def _predicted(path: Path) -> None:
    examples = inputs.find([str(path)], None, None)
    image = ImageReader.plain((8, 8, 3)).decode(examples.encoded(0), path.name)
    assert image.mode == "RGB"
    Thumbnail.of(image)


def _looked_at(path: Path) -> None:
    labels = np.zeros(1, np.int32)
    looks = look.look(Examples.of_source([path.read_bytes()], labels, ("any",), "photos"))
    assert (looks.sizes > 0).all() == (looks.reasons[0] == "")


# The names of the doors, by the folder of their corpus.
DOORS: Mapping[str, Mapping[str, Callable[[Path], None]]] = {
    "weights": {"weights": _weights},
    "images": {
        "prediction": _predicted,
        "before training": _looked_at,
        "photographs": _read_by(photographs.READER),
        **{
            f"own images, {name}": _read_by(ImageReader.own((20, 24, channels), CHANGES[name]))
            for name, channels in zip(CHANGES, (3, 1, 3, 1, 3), strict=True)
        },
    },
}
# What the interpreter announces before it does it.
_FORBIDDEN = (
    "os.", "shutil.", "subprocess.", "socket.", "ctypes.", "pty.", "webbrowser.", "urllib.",
    "code.__new__", "function.__new__", "signal.", "sys.",
)  # fmt: skip
_ALLOWED = ("os.listdir", "os.scandir", "os.walk", "sys._getframe", "sys.unraisablehook")
_IMPORTS = "<frozen importlib"


class _Watched:
    """Notes what the code of a file could do: write, run, or reach the network."""

    def __init__(self) -> None:
        self.seen: list[str] | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event == "open":
            _, mode, flags = arguments
            writes = isinstance(flags, int) and bool(flags & 0o3)
            suspicious = writes or (isinstance(mode, str) and set(mode) & set("wax+"))
        elif event in ("exec", "compile", "import"):
            # Pillow imports the readers of rare formats when it meets them.
            suspicious = not _in_import()
        else:
            suspicious = event.startswith(_FORBIDDEN) and event not in _ALLOWED
        if suspicious:
            self.seen.append(f"{event} {arguments!r}"[:200])


def _in_import() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            return True
        frame = frame.f_back
    return False


def _tried(watched: _Watched, door: Callable[[Path], None], path: Path) -> str | None:
    """Why a door failed at a file, if it did."""
    watched.seen = []
    told = ""
    try:
        door(path)
    except (UserError, UnreadableImageError) as error:
        told = str(error)
    except BaseException:
        return traceback.format_exc()[-2000:]
    finally:
        seen, watched.seen = watched.seen, None
    if seen:
        return f"did what a file asks for: {seen}"
    if "MemoryError" in told or "cannot allocate" in told.lower():
        return f"took {_MEMORY} bytes: {told}"
    if told.count("\n") or len(told) > _LONGEST:
        return f"a message of more than a line: {told!r}"
    return None


def _begin(folder: Path) -> blocks.Trial:
    reading.ignore_warnings()
    Image.init()
    chosen = blocks.settings()
    kind, seed = str(chosen["kind"]), int(chosen["seed"])
    doors, corpus = DOORS[kind], sorted((CORPUS / kind).iterdir())
    # What is imported at the first use.
    for file in corpus:
        for door in doors.values():
            with contextlib.suppress(UserError):
                door(file)
    watched = _Watched()

    def trial(index: int) -> tuple[str, Callable[[], str | None]]:
        draw = drawn(kind, seed, index)
        name = draw.choice(list(doors))
        file = draw.choice(corpus)
        path = folder / file.name
        path.write_bytes(mutated(file.read_bytes(), draw))
        return f"{name}, {file.name}", functools.partial(_tried, watched, doors[name], path)

    return trial


def main() -> None:
    blocks.serve(_begin, memory=_MEMORY)


if __name__ == "__main__":
    main()
