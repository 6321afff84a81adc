"""Names in Unicode: which are the same, and files whose names look like a name."""

import pytest

from train.foundation import names

CHENE_NFC, CHENE_NFD = "Ch\u00eane", "Che\u0302ne"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CHENE_NFC, CHENE_NFD),
        ("oak", "oak\u200b"),
        ("red oak", "red\u00a0oak"),
        # An accent whose letter is before a character without a width.
        (CHENE_NFC, "Che\u200d\u0302ne"),
    ],
)
def test_names_that_look_the_same_are_the_same(first, second):
    assert names.same_form(first) == names.same_form(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(("oak", "Oak"), ("H2O", "H\u2082O"), ("oak tree", "oak  tree"), ("a\udcff", "a\udcfe")),
        # The flags of England and Scotland.
        (
            "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
            "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        ),
    ],
)
def test_names_that_look_different_are_different(first, second):
    assert names.same_form(first) != names.same_form(second)


@pytest.mark.parametrize(
    "text",
    ["e\u0301", "三", "🏳️", "\udcff", " .\u200b"],
)
def test_a_name_with_a_character_that_can_be_seen(text):
    assert names.is_visible(text)


@pytest.mark.parametrize(
    "text",
    ["", " \u3000", "\u200b\u200d", "\u202e", "\x01\t", "\u0301\u0308", "\u2800"],
)
def test_a_name_without_one(text):
    assert not names.is_visible(text)


def write(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def test_a_file_is_found_by_a_name_that_looks_like_its_own(tmp_path):
    write(tmp_path, f"{CHENE_NFD}/1\u200b.png", f"{CHENE_NFD}/2.png", "a\\b.png")
    similar = names.SimilarFiles(tmp_path)
    assert similar.find(f"{CHENE_NFC}/1.png") == f"{CHENE_NFD}/1\u200b.png"
    assert similar.find(f"{CHENE_NFC}\\2.png") == f"{CHENE_NFD}/2.png"
    assert similar.find(f"./{CHENE_NFC}/../{CHENE_NFD}/2.png").endswith(f"{CHENE_NFD}/2.png")
    assert similar.find("a\\b.png") == "a\\b.png"
    assert similar.find(f"{CHENE_NFC}/3.png") is None
    assert names.existing(tmp_path / CHENE_NFC / "2.png") == tmp_path / CHENE_NFD / "2.png"
    assert names.existing(tmp_path / "gone") == tmp_path / "gone"


def test_of_several_that_look_like_a_name_none_is_found(tmp_path):
    write(tmp_path, "a\u200b.png", "a\u200c.png")
    similar = names.SimilarFiles(tmp_path)
    assert similar.find("a.png") is None
    assert similar.find("a\u200c.png") == "a\u200c.png"
