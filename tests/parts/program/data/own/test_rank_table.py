"""What is above the classes: from a table, from names, and from nested folders."""

import pytest

from train.data.own import rank_table
from train.foundation import ranks
from train.foundation.errors import UserError
from train.foundation.ranks import Ranks

CLASSES = ("Quercus robur", "Quercus ilex", "Salix alba")
EXPECTED = Ranks(
    ("family", "genus", "class"),
    (("Fagaceae", "Quercus"), ("Fagaceae", "Quercus"), ("Salicaceae", "Salix")),
)
UP = """class,genus,family
Salix alba,Salix,Salicaceae
Quercus robur,Quercus,Fagaceae
Fagus sylvatica,Fagus,Fagaceae
Quercus ilex,Quercus,Fagaceae
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "taxonomy.csv"
    path.write_text(UP)
    return path


def test_a_table_goes_from_the_classes_up_or_from_the_top_down(table):
    assert rank_table.read(str(table), CLASSES) == EXPECTED
    down = [",".join(reversed(line.split(","))) for line in UP.splitlines()]
    table.write_text("\n".join(down))
    assert rank_table.read(str(table), CLASSES) == EXPECTED
    # The word for the classes is that of the table, and other separators are read as they are.
    table.write_text(UP.replace("class", "species").replace(",", ";"))
    assert rank_table.read(str(table), CLASSES).names == ("family", "genus", "species")
    table.write_text(UP.replace("class,genus,family", "Art,Gattung,Familie").replace(",", ";"))
    assert rank_table.read(str(table), CLASSES).names == ("Familie", "Gattung", "Art")


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("Salix,", "Salix ,", None),
        ("class,genus,family", "class,genus,genus", "has two columns of one name"),
        ("Quercus ilex,Q", "Quercus robur,Q", "line 3 and line 5 both have Quercus robur"),
        ("Quercus ilex,Q", "Quercus suber,Q", "it has none for Quercus ilex"),
        (
            "Quercus ilex,Q",
            "quercus Ilex,Q",
            "none for Quercus ilex; it has 'quercus Ilex' in place of 'Quercus ilex'",
        ),
        (
            "ilex,Quercus",
            "ilex,quercus",
            "the column genus has 'Quercus' (line 3) and 'quercus' (line 5), which differ only in",
        ),
        ("ilex,Quercus", "ilex,", "line 5: the column genus is empty"),
        ("Quercus ilex,", ",", "line 5: the column class is empty"),
        ("ilex,Quercus", "ilex,\u0301", "line 5: the column genus is empty"),
        (
            "ilex,Quercus,Fagaceae",
            "ilex,Quercus,Betulaceae",
            "the genus Quercus must be in one family; it is in Fagaceae (Quercus robur) and in "
            "Betulaceae (Quercus ilex)",
        ),
        (
            "Salix,Salicaceae",
            "Fagaceae,Quercus",
            "no two names may be above each other; Fagaceae is above Quercus (Quercus robur) and "
            "below it",
        ),
        (UP, "class\nSalix alba\n", "must have a column of classes and one for each rank"),
    ],
)
def test_a_table_that_is_no_tree_of_the_classes_is_refused(wrong, right, message, table):
    assert wrong in UP
    table.write_text(UP.replace(wrong, right))
    if message is None:
        assert rank_table.read(str(table), CLASSES) == EXPECTED
        return
    with pytest.raises(UserError) as error:
        rank_table.read(str(table), CLASSES)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_that_is_not_there_is_named():
    with pytest.raises(UserError, match=r"config.dataset.taxonomy must be a table of classes"):
        rank_table.read("nowhere.csv", CLASSES)


def test_genera_are_first_words():
    found = rank_table.read(rank_table.FIRST_WORD, (*CLASSES, "× Cuprocyparis leylandii", "Aloe"))
    assert found.names == ("genus", "species")
    assert found.above == (("Quercus",), ("Quercus",), ("Salix",), ("× Cuprocyparis",), ("Aloe",))


def test_folders_above_folders_are_ranks():
    assert ranks.folders(("oak", "willow")) is None
    names = ("Fagaceae/Quercus/robur", "Fagaceae/Quercus/ilex", "Ginkgo", "Salicaceae/Salix alba")
    found = ranks.folders(names)
    assert found.names == ("level-1 folder", "level-2 folder", "class")
    assert found.paths(names) == [
        ("Fagaceae", "Quercus", names[0]),
        ("Fagaceae", "Quercus", names[1]),
        ("Ginkgo",),
        ("Salicaceae", names[3]),
    ]
    # Plants of a genus that nobody knows more of.
    found = ranks.folders(("Quercus", "Quercus/robur"))
    assert found.paths(("Quercus", "Quercus/robur")) == [
        ("Quercus", "Quercus"),
        ("Quercus", "Quercus/robur"),
    ]


def test_ranks_are_written_and_read_back():
    plain = [*EXPECTED.to_plain(CLASSES)]
    assert plain[2] == {"family": "Salicaceae", "genus": "Salix", "class": "Salix alba"}
    assert Ranks.from_plain(plain) == EXPECTED
    with pytest.raises(ValueError, match="must have the same names"):
        Ranks.from_plain([plain[0], {"genus": "Salix", "class": "Salix alba"}])
