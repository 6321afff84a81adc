"""The steps in a description make the pixels that a run makes, for photographs of many kinds."""

import ast
import importlib.util
import io
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets
from PIL import ExifTags, Image

from tests.reference import _preparation as reference
from train.data import images, preparation, steps
from train.data.crops import NO_CHANGE, ImageReader
from train.package import program

READERS = {
    "own": ImageReader.own((224, 224, 3), NO_CHANGE),
    "own, wide": ImageReader.own((20, 33, 3), NO_CHANGE),
    "own, grey": ImageReader.own((16, 16, 1), NO_CHANGE),
    "published": ImageReader.published(224, 256),
    "in memory": ImageReader.plain((32, 31, 3)),
    "in memory, grey": ImageReader.plain((8, 8, 1)),
}
SAMPLES = Path(sklearn.datasets.__file__).parent / "images"


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(image, orientation, kind="JPEG"):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return saved(image, kind, exif=exif)


def exported(folder):
    """The script that stands beside the program `p` in a folder, as a module."""
    path = folder / "p.py"
    path.write_bytes(program.script_of(SimpleNamespace(inputs="images")))
    found = importlib.util.spec_from_file_location("p", path)
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    return script


def photographs():
    small = Image.open(SAMPLES / "flower.jpg").resize((150, 101))
    for orientation in range(1, 9):
        yield f"exif{orientation}.jpg", turned(small, orientation)
    ramp = Image.fromarray(np.linspace(0, 65535, 150 * 101).astype(np.uint16).reshape(101, 150))
    yield "exif5.16 bits.png", turned(ramp, 5, "PNG")
    yield "exif8.palette.png", turned(small.quantize(40), 8, "PNG")
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    yield "xmp.jpg", saved(small, "JPEG", xmp=xmp)
    yield "xmp.tif", saved(small, "TIFF", tiffinfo={700: xmp})
    yield "damaged_exif.jpg", saved(small, "JPEG", exif=b"Exif\0\0no tags")
    alpha = Image.linear_gradient("L").resize(small.size)
    transparent = small.copy()
    transparent.putalpha(alpha)
    yield "rgba.png", saved(transparent, "PNG")
    yield "la.png", saved(transparent.convert("LA"), "PNG")
    yield "palette.png", saved(small.quantize(40), "PNG", transparency=bytes(range(0, 200, 5)))
    yield "grey.jpg", saved(small.convert("L"), "JPEG")
    yield "black_and_white.png", saved(small.convert("1"), "PNG")
    yield "inks.jpg", saved(small.convert("CMYK"), "JPEG")
    # As large as, a little larger and smaller than what a network gets.
    for size in ((224, 224), (225, 224), (224, 301), (256, 256), (33, 20), (8, 8), (3, 2), (1, 1)):
        yield f"{size[0]}x{size[1]}.png", saved(small.resize(size), "PNG")
    # A half of a pixel beside the crop, whose even neighbour is above.
    yield "46x31.png", saved(small.resize((46, 31)), "PNG")


def large_photographs():
    for name in ("china.jpg", "flower.jpg"):
        yield name, (SAMPLES / name).read_bytes()
    china = Image.open(SAMPLES / "china.jpg")
    # A panorama, a tower, and what a camera gives.
    for size in ((4000, 300), (260, 4000), (4000, 2667)):
        yield f"{size[0]}x{size[1]}.jpg", saved(china.resize(size), "JPEG")


def check_same_pixels(reader, files, folder):
    script = exported(folder)
    # As another program reads them.
    steps = json.loads(json.dumps(preparation.to_plain(reader)))
    described = preparation.from_plain(steps, reader.shape)
    for name, encoded in files:
        expected = reader.for_evaluation(encoded, name)
        np.testing.assert_array_equal(described.for_evaluation(encoded, name), expected, name)
        np.testing.assert_array_equal(script.prepare(encoded, steps), expected, name)
        pixels = np.asarray(images.decode(encoded, name, [images.DECODE]))
        orientation = int(name[4]) if name.startswith("exif") else 1
        found = reference.prepare(pixels, steps, orientation)
        np.testing.assert_array_equal(found, expected, name)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_the_steps_give_the_same_pixels(reader, tmp_path):
    check_same_pixels(reader, photographs(), tmp_path)


IN_WORDS = {
    "own, wide": "turned upright, resized to just cover 1.143 times 20 x 33 and cut to its middle, "
    "unless it is 20 x 33;",
    "published": "decoded to RGB, resized to a shorter side of 256 pixels, cut to the middle 224 x "
    "224 pixels;",
    "in memory, grey": "turned upright, made grey, resized to just cover 8 x 8 pixels,",
    "in memory": "resized to just cover 32 x 31 pixels, cut to the middle 32 x 31 pixels;",
}


@pytest.mark.parametrize("kind", IN_WORDS)
def test_the_steps_are_told_in_plain_words(kind):
    assert IN_WORDS[kind] in preparation.in_words(READERS[kind])


def test_the_order_of_the_axes_is_that_of_pillow():
    numbers, random = (
        preparation.to_plain(READERS["own"])[-1]["resampling"],
        np.random.default_rng(0),
    )
    for _ in range(100):
        (w, h), size = random.integers(2, 60, 2).tolist(), random.integers(2, 40, 2).tolist()
        pixels = random.integers(0, 256, (h, w, 3), np.uint8)
        left, top = random.uniform(0, [w / 2, h / 2]).tolist()
        box = (left, top, *random.uniform([left + 1, top + 1], [w, h]).tolist())
        for part in (box, (0, 0, w, h)):
            expected = Image.fromarray(pixels).resize(size, steps.FILTER, box=part)
            found = reference.resample(pixels, tuple(size), part, numbers)
            np.testing.assert_array_equal(found, np.asarray(expected), f"{part} to {size}")


@pytest.mark.parametrize(
    "change",
    [
        {2: {"step": "rotate"}},
        {2: {"step": "resize", "to": "cover"}},
        {3: {"step": "crop", "size": [8, 9], "halves": "down"}},
        {3: {"step": "grey"}},
    ],
)
def test_steps_to_other_pixels_are_refused(change):
    right = dict(enumerate(preparation.to_plain(ImageReader.plain((8, 8, 3)))))
    steps = list((right | change).values())
    with pytest.raises((KeyError, ValueError)):
        preparation.from_plain(steps, (8, 8, 3))


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Runs the script beside a program that answers the same for all images."""
    outputs = {"probabilities": [[0.5, 0.5]], "chosen": [[True, False]], "none_of_these": [True]}
    described = {"images": {"steps": preparation.to_plain(READERS["in memory"])}, "classes": "ab"}
    arrays = {name: np.array(rows) for name, rows in outputs.items()}
    monkeypatch.chdir(tmp_path)
    module = exported(tmp_path)
    module.load = lambda _: (described, lambda _images: arrays)

    def run(*files):
        monkeypatch.setattr(sys, "argv", ["p.py", *files])
        with warnings.catch_warnings():
            code = module.main()
        printed = capsys.readouterr()
        return code, [json.loads(one) for one in printed.out.splitlines()], printed.err

    return run


def test_the_script_names_the_images_that_it_cannot_read(script):
    Image.new("RGB", (40, 31)).save("a.png")
    Path("cut.png").write_bytes(Path("a.png").read_bytes()[:60])
    Path("text.png").write_text("no image")
    # A name that is not UTF-8, as Python has it.
    code, lines, errors = script("gone\udce9.png", "a.png", "cut.png", "text.png")
    assert (code, errors) == (1, "")
    assert lines[0] == {"path": "gone\udce9.png", "error": "No such file or directory"}
    assert lines[1]["set"]
    assert "truncated" in lines[2]["error"]
    assert lines[3]["error"] == "it is not an image"


def test_the_script_needs_nothing_of_ours(tmp_path):
    tree = ast.parse(Path(exported(tmp_path).__file__).read_text())
    names = [
        one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names
    ]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    needed = {"PIL", "jax", "numpy", "onnxruntime", "pillow_heif"}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == needed
