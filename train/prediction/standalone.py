"""Sets for image files, by the program beside this file: `python PROGRAM.py photo.jpg`.

`train.export` copies this file beside each program for images. It needs numpy and Pillow, jax and
flatbuffers or for an ONNX file onnxruntime, and nothing of topk_jax. It reads PROGRAM.json, which
describes the program.

It prints a line of JSON for each image. A file that cannot be read has {"path", "error"}, and the
exit code is then 1. If the program cannot be run, the exit code is 2, after one line.
"""

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from PIL import Image, ImageOps

Step = dict[str, Any]


def prepare(file: str | Path, steps: list[Step]) -> np.ndarray:
    """The pixels of an image file by the steps of a description: uint8, [height, width, channels].

    Raises:
        OSError: the file is not an image, or not all of one.
        ValueError: the image has more than eight bits a channel.
    """
    with Image.open(file) as opened:
        image: Image.Image = opened
        for step in steps:
            image = _STEPS[step["step"]](image, step)
        pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _decode(image: Image.Image, step: Step) -> Image.Image:
    del step
    # A TIFF file is rotated when it is loaded.
    _forget_xmp(image)
    image.load()
    if image.mode[0] in "IF":
        raise ValueError(f"an image of mode {image.mode} must be saved with 8 bits a channel first")
    if image.mode == "P":
        image = image.convert("RGBA")
    return image.convert("RGB")


def _orient(image: Image.Image, step: Step) -> Image.Image:
    del step
    _forget_xmp(image)
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # Pillow can raise anything for damaged EXIF; the pixels are fine.
        return image


def _forget_xmp(image: Image.Image) -> None:
    """Has Pillow look for the orientation only in EXIF, as browsers do."""
    for name in ("xmp", "XML:com.adobe.xmp"):
        image.info.pop(name, None)


def _grey(image: Image.Image, step: Step) -> Image.Image:
    del step
    return image.convert("L")


def _resize(image: Image.Image, step: Step) -> Image.Image:
    width, height = image.size
    box = (0.0, 0.0, float(width), float(height))
    if step["to"] == "shorter_side":
        side = step["side"]
        longer = int(side * max(width, height) / min(width, height))
        size = (side, longer) if width <= height else (longer, side)
    else:
        size = tuple(step["size"])
        scale = step.get("margin", 1.0) * max(size[0] / width, size[1] / height)
        if step["to"] == "cover":
            size = max(size[0], round(width * scale)), max(size[1], round(height * scale))
        elif size != image.size:
            across, down = size[0] / scale, size[1] / scale
            left, top = (width - across) / 2, (height - down) / 2
            box = (left, top, left + across, top + down)
    # Above twice its limit Pillow takes an image for an attack on the memory.
    if size[0] * size[1] > 2 * (Image.MAX_IMAGE_PIXELS or 2**30):
        raise ValueError(f"an image of {width} x {height} pixels is too long and narrow")
    return image.resize(size, Image.Resampling.BILINEAR, box=box)


def _crop(image: Image.Image, step: Step) -> Image.Image:
    width, height = step["size"]
    room = image.width - width, image.height - height
    left, top = (one // 2 if step["halves"] == "down" else round(one / 2) for one in room)
    return image.crop((left, top, left + width, top + height))


_STEPS = {"decode": _decode, "orient": _orient, "grey": _grey, "resize": _resize, "crop": _crop}


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
    except (OSError, ValueError, KeyError) as error:
        _end(f"{described.name}, the description, cannot be read: {_first_line(error)}")
    try:
        call = load(program, description)
    except Exception as error:  # A damaged file can make a reader raise anything.
        _end(f"{program.name} cannot be read: {_first_line(error)}")
    # Pillow warns of large images, and of damaged metadata.
    warnings.simplefilter("ignore")
    is_complete = True
    for file in sys.argv[1:]:
        line: dict[str, Any] = {"path": file}
        try:
            pixels = prepare(file, steps)
        except Exception as error:  # So can a damaged image.
            line["error"] = _first_line(error)
            is_complete = False
        else:
            try:
                outputs = {name: rows[0] for name, rows in call(pixels[None]).items()}
            except Exception as error:
                _end(f"{program.name} cannot be run: {_first_line(error)}")
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
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _end(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)


if __name__ == "__main__":
    main()
