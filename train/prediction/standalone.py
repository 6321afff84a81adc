"""Sets for image files, by the program beside this file: `python PROGRAM.py photo.jpg`.

`train.export` writes this beside each program for images, with the text of what it imports of
topk_jax. It needs numpy and Pillow, jax and flatbuffers or for an ONNX file onnxruntime. It reads
PROGRAM.json, which describes the program.

It prints a line of JSON for each image. A file that cannot be read has {"path", "error"}, and the
exit code is then 1. If the program cannot be read, the exit code is 2, after one line.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import UnidentifiedImageError

from train.data.steps import prepare


def load(path: Path, description: dict[str, Any]) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """The program in a file, from images [n, height, width, channels] to its outputs by name."""
    content = path.read_bytes()
    if description.get("digest") not in (None, hashlib.sha256(content).hexdigest()):
        raise ValueError("it is not the file that the description describes")
    if "onnx" in description:
        import onnxruntime  # noqa: PLC0415

        session = onnxruntime.InferenceSession(content)

        def call(images: np.ndarray) -> Sequence[Any]:
            return session.run(None, {"images": images})
    else:
        import jax.export  # noqa: PLC0415

        call = jax.export.deserialize(bytearray(content)).call
    names = description["outputs"]
    return lambda images: dict(zip(names, map(np.asarray, call(images)), strict=True))


def main() -> None:
    """Prints a line of JSON with the set of each image file that the command line names."""
    own = Path(__file__)
    if not sys.argv[1:]:
        _end(f"name image files: python {own.name} photo.jpg")
    program, described = own.with_suffix(""), own.with_suffix(".json")
    try:
        description = json.loads(described.read_text())
        steps, classes = description["images"]["steps"], description["classes"]
        call = load(program, description)
    except Exception as error:  # A damaged file can make a reader raise anything.
        _end(f"{program.name} with {described.name} cannot be read: {_first_line(error)}")
    # Pillow warns of large images, and of damaged metadata.
    warnings.simplefilter("ignore")
    is_complete = True
    for file in sys.argv[1:]:
        line: dict[str, Any] = {"path": file}
        try:
            pixels = prepare(Path(file).read_bytes(), steps)
        except Exception as error:  # So can a damaged image.
            line["error"] = _first_line(error)
            is_complete = False
        else:
            outputs = {name: rows[0] for name, rows in call(pixels[None]).items()}
            line.update(_set(outputs, classes))
        # In ASCII, which every output takes: also a file on Windows, and names that are not UTF-8.
        print(json.dumps(line), flush=True)  # noqa: T201
    sys.exit(0 if is_complete else 1)


def _set(outputs: dict[str, np.ndarray], classes: Sequence[str]) -> dict[str, Any]:
    """The fields of a line with the set of an image."""
    probabilities, chosen = outputs["probabilities"], outputs["chosen"]
    members = [
        {"class": classes[index], "probability": float(probabilities[index])}
        for index in np.argsort(-probabilities, kind="stable")
        if chosen[index]
    ]
    if "none_of_these" in outputs:
        return {"set": members, "none_of_these": bool(outputs["none_of_these"])}
    return {"set": members}


def _first_line(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _end(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)


if __name__ == "__main__":
    main()
