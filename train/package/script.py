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
from typing import Any

import numpy as np
from PIL import UnidentifiedImageError

from train.data.steps import prepare


def load(path: Path) -> tuple[dict[str, Any], Callable[[np.ndarray], dict[str, np.ndarray]]]:
    """A program, from images [n, height, width, channels] to outputs by name; its description."""
    content = path.read_bytes()
    description = json.loads(path.with_name(f"{path.name}.json").read_text("utf-8"))
    checksum = description.pop("sha256", None)
    if checksum != digest(json.dumps(description, sort_keys=True).encode()):
        raise ValueError("the description was changed or damaged")
    if description["digest"] != digest(content):
        raise ValueError("it is not the file that the description describes")
    if "onnx" in description:
        import onnxruntime  # noqa: PLC0415

        session = onnxruntime.InferenceSession(content)

        def call(images: np.ndarray) -> Sequence[Any]:
            return session.run(None, {"images": images})
    else:
        import jax.export  # noqa: PLC0415

        # Each call without jit would trace the program again.
        call = jax.jit(jax.export.deserialize(bytearray(content)).call)
    names = description["outputs"]
    return description, lambda images: dict(zip(names, map(np.asarray, call(images)), strict=True))


def digest(content: bytes) -> str:
    """The SHA-256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def describe(outputs: dict[str, np.ndarray], classes: Sequence[str]) -> dict[str, Any]:
    """The fields of a line with the set of an image."""
    probabilities, chosen = outputs["probabilities"], outputs["chosen"]
    members = [
        {"class": classes[index], "probability": float(probabilities[index])}
        for index in np.argsort(-probabilities, kind="stable")
        if chosen[index]
    ]
    new = outputs.get("none_of_these")
    return {"set": members} | ({} if new is None else {"none_of_these": bool(new)})


def why(error: Exception) -> str:
    """What is wrong with a file, in one line."""
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def main() -> int:
    """Prints a line of JSON with the set of each image file; returns the exit code."""
    own = Path(__file__)
    if not sys.argv[1:]:
        print(f"error: name image files: python {own.name} photo.jpg", file=sys.stderr)  # noqa: T201
        return 2
    program = own.with_suffix("")
    try:
        description, call = load(program)
        steps, classes = description["images"]["steps"], description["classes"]
    except Exception as error:  # A damaged file can make a reader raise anything.
        both = f"{program.name} with {program.name}.json"
        print(f"error: {both} cannot be read: {why(error)}", file=sys.stderr)  # noqa: T201
        return 2
    # Pillow warns of large images, and of damaged metadata.
    warnings.simplefilter("ignore")
    code = 0
    for file in sys.argv[1:]:
        found: dict[str, Any] = {"path": file}
        try:
            pixels = prepare(Path(file).read_bytes(), steps)
        except Exception as error:  # So can a damaged image.
            found["error"], code = why(error), 1
        else:
            outputs = {name: rows[0] for name, rows in call(pixels[None]).items()}
            found |= describe(outputs, classes)
        # In ASCII, which every output takes: also a file on Windows, and names that are not UTF-8.
        print(json.dumps(found), flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
