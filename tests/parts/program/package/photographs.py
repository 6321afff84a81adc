"""Twenty small photographs as cameras, phones and programs store them."""

import numpy as np
from PIL import ExifTags, Image

from tests.parts.program.data.encoded_images import photograph


def write(folder):
    """Writes them to a folder; their paths in the order of their names."""
    rng = np.random.default_rng(0)

    def picture(width=90, height=60, channels=3):
        return Image.fromarray(photograph(rng, width, height, channels))

    def save(name, image, **options):
        image.save(folder / name, **options)

    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        save(f"turned{orientation}.jpg", picture(), exif=exif)
    ramp = np.linspace(0, 2**16 - 1, 90 * 60).astype(np.uint16).reshape(60, 90)
    transparent = picture(channels=4)
    save("16_bits.png", Image.fromarray(ramp))
    save("four_inks.jpg", Image.fromarray(np.asarray(transparent), "CMYK"))
    save("grey.jpg", picture().convert("L"))
    save("high.png", picture(20, 300))
    save("large.jpg", picture(2400, 1800), progressive=True)
    save("lossless.webp", picture(), lossless=True)
    save("moving.gif", picture(), save_all=True, append_images=[picture()])
    save("palette.png", picture().quantize(16))
    save("phone.heic", picture())
    save("tiny.png", picture(3, 2))
    save("transparent.png", transparent)
    save("wide.webp", picture(400, 12))
    return sorted(folder.iterdir())
