r"""Draws docs/figures/page.png, the first cards of a page of sets, with Chromium.

make demo
python docs/draw_page.py runs/digits/sets.html
"""

import argparse
import io
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

FIGURE = Path(__file__).parent / "figures" / "page.png"
# Only cards, without what marks and filters them.
_STYLE = """<style>
header, nav, #controls, .marking, .folder, .card:nth-child(n + 9) { display: none !important; }
body { padding: 8px; font-size: 13px; }
main, .cards { margin: 0; padding: 0; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: 8px; }
.picture { height: 88px !important; }
.picture img { height: 72px !important; width: 72px !important; }
.words { padding: 8px; }
</style>"""
_WIDTH, _HEIGHT, _SCALE, _COLORS = 742, 900, 1.5, 48


def main() -> None:
    """Draws the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="a page that train.predict --html has written")
    page = parser.parse_args().page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        cards, shot = Path(folder, "page.html"), Path(folder, "shot.png")
        cards.write_text(page.replace("</head>", f"{_STYLE}</head>", 1), encoding="utf-8")
        subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--user-data-dir={folder}/profile", f"--screenshot={shot}"),
                *(f"--window-size={_WIDTH},{_HEIGHT}", f"--force-device-scale-factor={_SCALE}"),
                cards.as_uri(),
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
    FIGURE.write_bytes(file.getvalue())


if __name__ == "__main__":
    main()
