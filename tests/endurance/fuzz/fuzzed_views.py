"""Weights of strangers: tensors that view their storage in any way, and archives laid out in any.

A door returns the numbers that the file has for a tensor, or refuses the file. What it returns is
never larger than the file.
"""

import io
import math
import random
import traceback
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.endurance.fuzz import blocks
from tests.endurance.fuzz.trials import drawn
from tests.parts.program.models import torch_writer as writer
from train.foundation.errors import UserError
from train.models.weights import files as weight_files

KIND = "views of storages"
# Bytes more than the process has. The files of the trials have some thousands.
_MEMORY = 2**29
_SMALL = (0, 1, 2, 3, 5)
_SIZES = (*_SMALL, 64, 2**16, 2**30, 2**31, 2**62)
_FOLDER = "archive"


def _drawn_view(draw: random.Random) -> writer.Tensor:
    """A tensor whose shape, strides and offset may be any."""
    storage = np.arange(draw.choice((0, 1, 6, 24, 1000)), dtype=draw.choice(("f4", "f2", "i8")))
    rank = draw.choice((0, 1, 1, 2, 2, 3, 4, 60))
    sizes = _SIZES if draw.random() < 0.5 else _SMALL
    shape = tuple(draw.choice(sizes) for _ in range(rank))
    strides = tuple(draw.choice((0, 0, 1, 1, 2, 3, *sizes)) for _ in range(rank))
    return writer.Tensor(storage, draw.choice((0, 0, 1, 5, 2**40)), shape, strides)


def _transposed(draw: random.Random) -> writer.Tensor:
    """A matrix, or its transpose, as any file has them."""
    rows, columns = draw.randint(1, 6), draw.randint(1, 6)
    storage = np.arange(rows * columns, dtype="f4")
    if draw.random() < 0.5:
        return writer.Tensor(storage, 0, (rows, columns), (columns, 1))
    return writer.Tensor(storage, 0, (columns, rows), (1, columns))


def _places(view: writer.Tensor) -> np.ndarray | None:
    """Where in its storage each number of a tensor is; None if one would be outside, or if there
    are more numbers than in the storage."""
    last = view.offset + sum(
        (size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)
    )
    if math.prod(view.shape) > view.storage.size or last >= view.storage.size:
        return None
    places = np.full(view.shape, view.offset)
    for axis, stride in enumerate(view.strides):
        along = np.arange(view.shape[axis]) * stride
        places += along.reshape(-1, *(1,) * (len(view.shape) - axis - 1))
    return places


def _why_wrong(view: writer.Tensor, found: dict[str, np.ndarray] | None) -> str | None:
    """Why the arrays read from a file with one tensor are wrong; None if the file was refused."""
    if 0 in view.shape:
        # Whether a tensor without numbers is refused, such as one of shape [0, 2**62], is open.
        return None if found is None or found["weight"].size == 0 else f"read {found}"
    places = _places(view)
    if found is None:
        repeats = places is None or len(np.unique(places)) < places.size
        return None if repeats else "refused a tensor of numbers that are all in the file"
    if places is None:
        return f"read an array of shape {found['weight'].shape}"
    same = np.array_equal(found["weight"], view.storage[places])
    return None if same else f"read {found['weight']}"


def _nested_archive(draw: random.Random) -> bytes:
    """An archive with a storage inside another one, with all checksums right."""
    inner = np.frombuffer(draw.randbytes(draw.randint(1, 100)), "u1")
    info = zipfile.ZipInfo(f"{_FOLDER}/data/1")
    info.CRC, info.file_size, info.compress_size = (
        zlib.crc32(inner.tobytes()),
        inner.size,
        inner.size,
    )
    before = draw.randbytes(draw.randint(0, 100))
    content = before + info.FileHeader() + inner.tobytes() + draw.randbytes(draw.randint(0, 100))
    storages, buffer = writer.Storages(), io.BytesIO()
    tensors = {
        "outer": writer.tensor(np.frombuffer(content, "u1")),
        "inner": writer.tensor(inner),
    }
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{_FOLDER}/data.pkl", writer.dumps(tensors, storages))
        archive.writestr(f"{_FOLDER}/data/0", content)
        info.header_offset = buffer.getvalue().index(content) + len(before)
        # An entry of the directory, and no member of its own.
        archive.filelist.append(info)
        archive.NameToInfo[info.filename] = info
    return buffer.getvalue()


def _begin(folder: Path) -> blocks.Trial:
    seed = int(blocks.settings()["seed"])
    path = folder / "weights.pth"

    def read() -> dict[str, np.ndarray] | None:
        try:
            return dict(weight_files.read(path))
        except UserError as error:
            if len(str(error).splitlines()) != 1:
                raise
            return None

    def trial(index: int) -> tuple[str, Callable[[], str | None]]:
        draw = drawn(KIND, seed, index)
        if draw.random() < 0.1:
            path.write_bytes(_nested_archive(draw))
            return "a storage inside another", lambda: None if read() is None else "read it"
        view = _transposed(draw) if draw.random() < 0.3 else _drawn_view(draw)
        name, to_bytes = draw.choice(list(writer.FORMATS.items()))
        path.write_bytes(to_bytes({"weight": view}))

        def tried() -> str | None:
            try:
                return _why_wrong(view, read())
            except Exception:
                return traceback.format_exc()[-2000:]

        described = f"shape {view.shape}, strides {view.strides}, offset {view.offset}"
        return f"{name}: {described} of {view.storage.size} numbers", tried

    return trial


def main() -> None:
    blocks.serve(_begin, memory=_MEMORY)


if __name__ == "__main__":
    main()
