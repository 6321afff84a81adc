r"""Draws the gallery of sets, `docs/figures/gallery_*.png`, with Chromium.

    python -m train.main --config=configs/digits.py:cross_entropy --config.num_epochs=2 \
        --workdir=runs/digits
    python docs/write_gallery.py runs/digits

Every picture is the page of sets that `train.predict` writes for a rule, without its head. The
digits are test images of the run in whose classes it trusts least and most, and a drawn cross.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
# The program of this checkout comes before an installed one.
sys.path.insert(0, str(ROOT))

FIGURES = ROOT / "docs" / "figures"
# The rule of each picture, by the end of its file's name.
RULES = {
    "top_1": ["--top_k=1"],
    "top_5": ["--top_k=5"],
    "average_2": ["--average_k=2"],
    "lac": ["--coverage=0.95"],
    "class_conditional": ["--sets=class_conditional=0.95"],
    "none_of_these": ["--sets=coverage=0.9, new_score=neighbors"],
}
_STYLE = """<style>
header, nav, #controls, .marking, .folder { display: none !important; }
body { padding: 8px; font-size: 13px; }
main, .cards { margin: 0; padding: 0; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 8px; }
.picture { height: 88px !important; }
.picture img { height: 72px !important; width: 72px !important; }
.words { padding: 8px; }
</style>"""
_WIDTH, _HEIGHT, _SCALE, _COLORS = 742, 900, 1.5, 48


def main() -> None:
    """Draws all pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("digits", type=Path, help="a finished run on digits")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_digits(given.digits, folder / "digits")
        what = [f"--workdir={given.digits}", f"--images={folder / 'digits'}"]
        for name, rule in RULES.items():
            page = folder / f"{name}.html"
            predict([*what, *rule, f"--html={page}", f"--out={folder / name}.jsonl"])
            (FIGURES / f"gallery_{name}.png").write_bytes(picture(page, folder))


def write_digits(workdir: Path, folder: Path) -> None:
    """Writes the images: the clearest test digit, two in doubt, and a cross."""
    from train.classifiers import trained  # noqa: PLC0415 (it takes long to import)

    classifier = trained.load(workdir)
    test = classifier.load_dataset().test
    images = test.rows(np.arange(len(test)))
    scores = classifier.split("test").values.astype(np.float64)
    entropy = -(scores * np.log(np.maximum(scores, 1e-12))).sum(axis=1)
    order = np.argsort(entropy)
    folder.mkdir()
    chosen = {"clear": order[0], "doubtful 1": order[-1], "doubtful 2": order[-4]}
    cross = np.where(np.eye(8, dtype=bool) | np.eye(8, dtype=bool)[::-1], 255, 0)
    pixels = {name: images[place, ..., 0] for name, place in chosen.items()} | {"no digit": cross}
    for name, one in pixels.items():
        Image.fromarray(one.astype(np.uint8)).save(folder / f"{name}.png")


def predict(flags: Sequence[str]) -> None:
    """Runs `train.predict` of this checkout."""
    command = [sys.executable, "-m", "train.predict", *flags]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def picture(page: Path, folder: Path) -> bytes:
    """The cards of a page as a PNG file of few colours."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("the pictures need Chromium: Debian's package is chromium")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</head>", f"{_STYLE}</head>", 1), encoding="utf-8")
    shot = folder / "shot.png"
    subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={folder / 'profile'}", f"--screenshot={shot}"),
            *(f"--window-size={_WIDTH},{_HEIGHT}", f"--force-device-scale-factor={_SCALE}"),
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
    )
    with Image.open(shot) as found:
        image = found.convert("RGB")
    pixels = np.asarray(image)
    used = np.flatnonzero((pixels != pixels[-1, 0]).any(axis=(1, 2)))
    image = image.crop((0, 0, image.width, min(image.height, int(used[-1]) + 12)))
    file = io.BytesIO()
    image.quantize(_COLORS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main()
