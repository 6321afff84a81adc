"""Which files are images by their names, and which are passed over."""

import re
from pathlib import Path

from train.data import image_formats

_PAGE = Path(__file__).parents[3] / "docs" / "own_data.md"


def test_the_page_lists_the_endings_of_side_files():
    listed = _PAGE.read_text().partition("these endings, in any case:\n")[2].partition("\n\n")[0]
    endings = re.findall(r"`(\.[a-z0-9]+)`", listed)
    assert endings == sorted(image_formats._SIDE_FILES)
    assert all(image_formats.is_side_file(f"a{ending.upper()}") for ending in endings)
