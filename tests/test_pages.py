"""The Markdown pages are shown as they were written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / name for name in ("benchmarks", "docs", "examples")]
PAGES = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in folder.rglob("*.md"))]
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", flags=re.DOTALL | re.MULTILINE)
# After the marks of quotes and lists, which start a paragraph of their own.
BEGINS = re.compile(r"^(?:\s|>|[-*+]\s|\d+[.)]\s)*<!--")
ALONE = re.compile(r"<!-- [^<>]* -->")


def split_paragraphs(text):
    """The lines whose comment ends a paragraph, or is shown as text.

    By CommonMark, a line that starts with a comment is HTML to its end. So what follows the comment
    is not read as Markdown, and the paragraph ends before it. A comment may therefore be on a line
    of its own between empty lines, or behind the first word of a line.
    """
    lines = ["", *FENCED.sub("", text).split("\n"), ""]
    return [
        line
        for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
        if BEGINS.match(line) and (not ALONE.fullmatch(line) or before.strip() or after.strip())
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_prose_begins_with_a_comment(page):
    assert not split_paragraphs(page.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "a gain of\n<!-- gain tail -->+0.1<!-- end --> points",
        "- a gain of\n  <!-- gain tail -->+0.1<!-- end -->",
        "1. <!-- gain tail -->+0.1<!-- end --> points",
        "> <!-- gain tail -->+0.1<!-- end --> points",
        "in a paragraph\n<!-- summary -->\n\n| a |",
        "| a |\n<!-- end -->\nmore",
        "<!-- over\ntwo lines -->",
    ],
)
def test_a_comment_that_splits_a_paragraph_is_found(text):
    assert split_paragraphs(text)


@pytest.mark.parametrize(
    "text",
    [
        "of <!-- gain tail -->+0.1<!-- end --> points",
        "| <!-- gain tail -->+0.1<!-- end --> | a |",
        "before\n\n<!-- summary -->\n\n| a |\n\n<!-- end -->\n\nafter",
        "```html\n<!-- code -->text\n```",
    ],
)
def test_a_comment_that_leaves_paragraphs_whole_is_no_fault(text):
    assert not split_paragraphs(text)
