"""The page of many examples: several files, links between them, and files of earlier runs."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.parts.program.prediction.test_predict_page import FACTS, Outline, image_set
from train.foundation.errors import UserError
from train.prediction import html_page
from train.prediction.class_sets import Unreadable
from train.prediction.html_page import page_files

CARDS = 3
# As it is escaped.
NAME = re.escape(r"a\r\n\u2028é\n")


@pytest.fixture(autouse=True)
def few_cards(monkeypatch):
    monkeypatch.setattr(page_files, "CARDS", CARDS)


def write(path, number, *, unreadable=0):
    """Writes pages of a number of images, and returns the reported number of pages."""
    with html_page.writing(path, FACTS) as page:
        for index in range(unreadable):
            page.add(Unreadable(Path(f"bad {index}"), f"bad {index} is not an image"))
        for index in range(number):
            # A name of a file may have any character but one.
            page.add(image_set(f"a\r\n\u2028é\n{index} end", {0: 0.5, 2: 0.25}))
    return page.number


def numbers(page):
    return [int(found) for found in re.findall(rf"<h2>[^<]*<[^>]*></span>{NAME}(\d+) end", page)]


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def read(path):
    # Without newline="" a carriage return would be lost.
    return path.read_bytes().decode()


@pytest.mark.parametrize(
    ("images", "pages"), [(0, 1), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (9, 3), (10, 4)]
)
def test_pages_have_all_cards_in_order(tmp_path, images, pages):
    path = tmp_path / "sets.html"
    assert write(path, images, unreadable=2) == pages
    expected = ["sets.html", *(f"sets.{page}.html" for page in range(2, pages + 1))]
    assert names(tmp_path) == sorted(expected)
    found = []
    for page, name in enumerate(expected, start=1):
        text = read(tmp_path / name)
        outline = Outline(text)
        cards = [one for one in outline.all("li") if one.get("class") == "card"]
        here = numbers(text)
        assert len(here) == len(cards) == min(CARDS, images - CARDS * (page - 1))
        found += here
        # All pages have the counts of all examples.
        assert f"<h1>Sets of classes for {images} image" in text
        assert ("Mean size here" in text) == (images > 0)
        assert "2 files could not be read" in text
        # Those files are named once.
        assert ("bad 1 is not an image" in text) == (page == 1)
        assert ("on this page" in re.sub(r"<script>.*</script>", "", text, flags=re.DOTALL)) == (
            pages > 1
        )
    assert found == list(range(images))


def targets(path):
    """Where the links of a page lead, by their texts; those above and below lead to the same."""
    (above, below) = re.findall(r'<nav aria-label="Pages.*?</nav>', read(path), re.DOTALL)
    pattern = r'<a href="([^"]*)"[^>]*>([^<]*)</a>'
    links = {text: unquote(address) for address, text in re.findall(pattern, above)}
    assert links == {text: unquote(address) for address, text in re.findall(pattern, below)}
    ranges = {re.search(r"<span>(.*)</span>", part)[1] for part in (above, below)}
    assert len(ranges) == 1
    return links, ranges.pop()


def test_pages_are_linked(tmp_path):
    # A name whose address would be another one as it is.
    path = tmp_path / 'a: "#?%20<é>.b.html'
    write(path, 10, unreadable=1)
    first = path.name
    second, third, fourth = (f"{path.stem}.{page}.html" for page in (2, 3, 4))
    forward = {"Next": second, "Last page": fourth}
    assert targets(path) == (forward, "images 1 to 3 of 10")
    assert targets(tmp_path / third) == (
        {"First page": first, "Previous": second, "Next": fourth, "Last page": fourth},
        "images 7 to 9 of 10",
    )
    back = {"First page": first, "Previous": third}
    assert targets(tmp_path / fourth) == (back, "images 10 to 10 of 10")
    (address,) = re.findall(r'class="warning"><a href="([^"]*)"', read(tmp_path / fourth))
    assert unquote(address.removesuffix("#unreadable")) == first
    assert 'class="warning"><a href="#unreadable"' in read(path)


def test_each_page_knows_on_which_pages_classes_are(tmp_path):
    path = tmp_path / "sets.html"
    with html_page.writing(path, FACTS) as page:
        for index in range(10):
            # An empty set has its likeliest class.
            classes = {} if index == 9 else {1: 0.5} if index in (0, 3) else {0: 0.5}
            page.add(image_set(f"{index}", classes, likeliest=1))
    pattern = r'<option value="(cat|dog)" data-sets="(\d+)" data-pages="([\d ]+)">'
    found = [re.findall(pattern, read(page_files.path(path, page))) for page in range(1, 5)]
    assert [{name: pages for name, _, pages in of_page} for of_page in found] == [
        {"cat": "1 0 2 3", "dog": "1 0 2 4"},
        {"cat": "1 1 3 3", "dog": "1 1 4 4"},
        {"cat": "1 2 0 3", "dog": "1 2 4 4"},
        {"cat": "1 3 0 3", "dog": "1 2 0 4"},
    ]
    assert {(name, sets) for of_page in found for name, sets, _ in of_page} == {
        ("cat", "7"),
        ("dog", "3"),
    }
    # A class of no set is there to be marked.
    assert '<option value="class 3">' in read(path)


def test_pages_of_an_earlier_run_are_removed_and_no_others(tmp_path):
    path = tmp_path / "sets.html"
    write(path, 12)
    (tmp_path / "sets.4.html").rename(tmp_path / "kept")
    write(tmp_path / "sets.3.html", 4)
    others = {"sets.3.2.html", "sets.3.html", "kept", "setsx2.html", "sets.02.html", "sets.6.html"}
    (tmp_path / "setsx2.html").write_bytes((tmp_path / "sets.2.html").read_bytes())
    (tmp_path / "sets.02.html").write_bytes((tmp_path / "sets.2.html").read_bytes())
    # A page that another program wrote, and one with the number of another page.
    (tmp_path / "sets.6.html").write_text("mine")
    (tmp_path / "sets.7.html").mkdir()
    (tmp_path / "sets.8.html").write_bytes((tmp_path / "sets.2.html").read_bytes())
    (tmp_path / "sets.9.html").symlink_to("nothing")
    before = {name: (tmp_path / name).read_bytes() for name in others}
    assert write(path, 2) == 1
    kept = {"sets.html", "sets.7.html", "sets.8.html", "sets.9.html"}
    assert set(names(tmp_path)) == others | kept
    assert {name: (tmp_path / name).read_bytes() for name in others} == before
    assert "<nav" not in read(path)


def test_other_files_in_the_place_of_a_page_are_refused(tmp_path):
    path = tmp_path / "sets.html"
    second = tmp_path / "sets.2.html"
    page_files.check(path, 12, [tmp_path / "sets.jsonl"])
    with pytest.raises(UserError, match=r"page 2 to .*sets\.2\.html, which is another file"):
        page_files.check(path, 4, [second])
    page_files.check(path, 3, [second])
    write(path, 12)
    page_files.check(path, 12, [])
    second.write_text("mine")
    page_files.check(path, 3, [])
    with pytest.raises(UserError, match="another file"):
        page_files.check(path, 4, [])
    second.unlink()
    second.symlink_to("nothing")
    with pytest.raises(UserError, match="another file"):
        page_files.check(path, 4, [])
