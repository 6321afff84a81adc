"""Names in Unicode: which are the same, and files whose names have another form."""

import pytest

from train.foundation import names

CHENE_NFC, CHENE_NFD = "Ch\u00eane", "Che\u0302ne"


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        (CHENE_NFC, CHENE_NFD, True),
        ("red oak", " red\u00a0oak\t", True),
        *((one, other, False) for one, other in [("oak", "Oak"), ("H2O", "H\u2082O")]),
        ("oak tree", "oak  tree", False),
        ("a\udcff", "a\udcfe", False),
    ],
)
def test_names_of_one_form_are_the_same(first, second, are_same):
    assert (names.same_form(first) == names.same_form(second)) == are_same


@pytest.mark.parametrize("stored", [CHENE_NFC, CHENE_NFD])
def test_a_file_is_found_in_either_form(tmp_path, stored):
    path = tmp_path / stored / "1.png"
    path.parent.mkdir()
    path.touch()
    for given in (CHENE_NFC, CHENE_NFD):
        assert names.existing(tmp_path / given / "1.png") == path
    assert names.existing(tmp_path / "gone") == tmp_path / "gone"
