"""Which files are images by their names, and which are passed over."""

import re
from pathlib import Path

from train.data import image_formats

_PAGE = Path(__file__).parents[4] / "docs" / "own_data.md"


def test_the_side_files_that_the_page_names_are_passed_over():
    named = _PAGE.read_text().partition("but side files such as")[2].partition(".\n")[0]
    endings = re.findall(r"`(\.[a-z0-9]+)`", named)
    assert len(endings) > 3
    assert all(image_formats.is_side_file(f"a{ending.upper()}") for ending in endings)
