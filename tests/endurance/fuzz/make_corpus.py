"""Writes the files of `corpus/`, which the trials of the doors damage: images and weights.

python -m tests.endurance.fuzz.make_corpus
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image
from safetensors.numpy import save

from tests.parts.program.models import torch_writer as writer

CORPUS = Path(__file__).with_name("corpus")
_SIZE = (13, 9)


def _images() -> dict[str, bytes]:
    pillow_heif.register_heif_opener()
    across, down = np.meshgrid(np.arange(_SIZE[0]), np.arange(_SIZE[1]))
    ramp = Image.fromarray(np.stack([across * 19, down * 28, across * down * 2], -1).astype("u1"))
    sixteen_bits = Image.fromarray((across * 5000).astype(np.uint16))
    real = Image.fromarray((across / 13).astype(np.float32))
    exif = Image.Exif()
    exif[0x112] = 6
    animated = [ramp.convert("P"), ramp.rotate(90).convert("P")]
    written: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "rgb.png": (ramp, {}),
        "palette.png": (ramp.convert("P"), {"transparency": 3}),
        "sixteen_bits.png": (sixteen_bits, {}),
        "alpha.png": (ramp.convert("RGBA"), {}),
        # Resized until its shorter side has 256 pixels, it would have 3.9 thousand million.
        "narrow.png": (Image.new("1", (1, 60_000)), {}),
        "rgb.jpg": (ramp, {"quality": 60, "exif": exif}),
        "grey.jpg": (ramp.convert("L"), {"quality": 30}),
        "inks.jpg": (ramp.convert("CMYK"), {"quality": 30}),
        "progressive.jpg": (ramp, {"quality": 30, "progressive": True}),
        "animated.gif": (animated[0], {"save_all": True, "append_images": animated[1:]}),
        "rgb.bmp": (ramp, {}),
        "deflated.tif": (ramp, {"compression": "tiff_deflate"}),
        "lzw.tif": (ramp.convert("L"), {"compression": "tiff_lzw"}),
        "jpeg.tif": (ramp, {"compression": "jpeg"}),
        "real.tif": (real, {}),
        "rgb.webp": (ramp, {"quality": 20}),
        "lossless.webp": (ramp, {"lossless": True}),
        "grey.pgm": (ramp.convert("L"), {}),
        "rgb.tga": (ramp, {"compression": "tga_rle"}),
        "rgb.pcx": (ramp, {}),
        "rgb.ico": (ramp, {}),
        "rgb.jp2": (ramp, {}),
        "rgb.sgi": (ramp, {}),
        "rgb.heic": (ramp, {"quality": 40}),
    }
    found = {}
    for name, (image, options) in written.items():
        buffer = io.BytesIO()
        image.save(buffer, format=Image.registered_extensions()[Path(name).suffix], **options)
        found[f"images/{name}"] = buffer.getvalue()
    return found


def _weights() -> dict[str, bytes]:
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    state_dict = writer.Build(
        writer.ordered({"module.weight": writer.tensor(kernel)}),
        {"_metadata": writer.ordered({"": {"version": 1}})},
    )
    view = writer.Tensor(np.arange(8, dtype=np.float16), 1, (2, 2), (1, 3))
    saved = {"epoch": 3, "state_dict": state_dict, "optimizer": {"state": {0: view}, "lr": 0.1}}
    # Ask for code: none may run, whatever becomes of the bytes around it.
    calls = {
        "system": writer.Call(writer.Global("posix", "system"), ("touch code-ran",)),
        "open": writer.Call(writer.Global("builtins", "open"), ("code-ran", "w")),
        "exec": writer.Raw(b'(S\'open("code-ran", "w")\'\nibuiltins\nexec\n'),
    }
    found = {}
    for name, to_bytes in writer.FORMATS.items():
        found[f"weights/saved.{name}"] = to_bytes(saved)
        found[f"weights/parameter.{name}"] = to_bytes({"weight": writer.parameter(view)})
        for call, asking in calls.items():
            found[f"weights/{call}.{name}"] = to_bytes({"weight": view, "extra": asking})
    found["weights/kernel.safetensors"] = save({"weight": kernel, "bias": kernel[0].copy()})
    return found


def main() -> None:
    for name, content in (_images() | _weights()).items():
        (CORPUS / name).write_bytes(content)


if __name__ == "__main__":
    main()
