"""Sets for image files, by the program beside this file: `python PROGRAM.py photo.jpg`.

`train.export` copies this file beside each program for images. It needs jax, flatbuffers, numpy and
Pillow, and nothing of topk_jax. It reads PROGRAM.json, which describes the program.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile, ImageOps

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
    ImageFile.LOAD_TRUNCATED_IMAGES = step["read_truncated"]
    image.load()
    if image.mode[0] in "IF":
        raise ValueError(f"an image of mode {image.mode} must be saved with 8 bits a channel first")
    on_white = step["transparency"] == "white" and image.has_transparency_data
    if on_white or image.mode == "P":
        image = image.convert("RGBA")
    if on_white:
        info = image.info
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        # The EXIF orientation is among it.
        image.info = info
    return image.convert("RGB")


def _orient(image: Image.Image, step: Step) -> Image.Image:
    del step
    return ImageOps.exif_transpose(image)


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
    return image.resize(size, Image.Resampling.BILINEAR, box=box)


def _crop(image: Image.Image, step: Step) -> Image.Image:
    width, height = step["size"]
    room = image.width - width, image.height - height
    left, top = (one // 2 if step["halves"] == "down" else round(one / 2) for one in room)
    return image.crop((left, top, left + width, top + height))


_STEPS = {"decode": _decode, "orient": _orient, "grey": _grey, "resize": _resize, "crop": _crop}


def main() -> None:
    """Prints a line of JSON with the set of each image file that the command line names."""
    import jax.export  # noqa: PLC0415 (the preparation does not need it)

    own = Path(__file__)
    if not sys.argv[1:]:
        sys.exit(f"name image files: python {own.name} photo.jpg")
    description = json.loads(own.with_suffix(".json").read_text())
    program = jax.export.deserialize(bytearray(own.with_suffix("").read_bytes()))
    steps, classes = description["images"]["steps"], description["classes"]
    for file in sys.argv[1:]:
        outputs = program.call(prepare(file, steps)[None])
        probabilities, chosen = (np.asarray(output)[0] for output in outputs[:2])
        members = [
            {"class": classes[index], "probability": float(probabilities[index])}
            for index in np.argsort(-probabilities, kind="stable")
            if chosen[index]
        ]
        print(json.dumps({"path": file, "set": members}, ensure_ascii=False))  # noqa: T201


if __name__ == "__main__":
    main()
