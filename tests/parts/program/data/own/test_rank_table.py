"""What is above the classes: from a table, from names, and from nested folders."""

import numpy as np
import pytest

from train.data.own import rank_table
from train.evaluation.class_tree import ClassTree
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
    ("wrong", "right", "named"),
    [
        ("class,genus,family", "class,genus,genus", "two columns"),
        ("Quercus ilex,Q", "Quercus robur,Q", "line 3 and line 5"),
        ("Quercus ilex,Q", "Quercus suber,Q", "Quercus ilex"),
        ("Quercus ilex,Q", "quercus Ilex,Q", "'quercus Ilex'"),
        ("ilex,Quercus,Fagaceae", "ilex,Quercus,", "the genus Quercus must be in one place"),
        ("Salix,Salicaceae", "Fagaceae,Quercus", "Fagaceae is above Quercus"),
        (UP, "class\nSalix alba\n", "a column of classes"),
    ],
)
def test_a_table_that_is_no_tree_of_the_classes_is_refused(wrong, right, named, table):
    assert wrong in UP
    table.write_text(UP.replace(wrong, right))
    with pytest.raises(UserError, match=r"^config\.dataset\.taxonomy ") as error:
        rank_table.read(str(table), CLASSES)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "other",
    [
        ",Fagus,Fagaceae",
        "Fagus sylvatica,quercus,FAGACEAE",
        "Fagus sylvatica,Fagus,Betulaceae\nFagus sylvatica,Fagus,Fagaceae",
    ],
)
def test_only_the_rows_of_the_classes_count(other, table):
    table.write_text(UP.replace("Fagus sylvatica,Fagus,Fagaceae", other))
    assert rank_table.read(str(table), CLASSES) == EXPECTED


# What follows the class in the table, and the ranks above it.
@pytest.mark.parametrize(
    ("cells", "above"),
    [
        ("Aloe,Asphodelaceae,", ["Asphodelaceae", "Aloe"]),
        ("Aloe,,Asparagales", ["Asparagales", "Aloe"]),
        (",Asphodelaceae,Asparagales", ["Asparagales", "Asphodelaceae"]),
        (",,", []),
    ],
)
def test_an_empty_cell_is_a_rank_that_the_class_does_not_have(cells, above, tmp_path):
    table = tmp_path / "ranks.csv"
    rows = [
        "class,genus,family,order",
        *(f"{name},{name.split()[0]},Fagaceae,Fagales" for name in CLASSES[:2]),
        f"Aloe vera,{cells}",
        # Something that is called as a genus is not the same.
        "Zamia furfuracea,Zamia,Aloe,Cycadales",
    ]
    table.write_text("\n".join(rows))
    names = (*CLASSES[:2], "Aloe vera", "Zamia furfuracea")
    tree = ClassTree.of(rank_table.read(str(table), names), names)
    assert tree.ranks == ("order", "family", "genus", "class")
    way = [*dict.fromkeys(tree.taxonomy.ancestors[2].tolist())][1:-1]
    described = {one["name"]: one for one in tree.describe(way, names)}
    ranks = {"Asparagales": "order", "Asphodelaceae": "family", "Aloe": "genus"}
    assert [name for name in described if name in ranks] == above
    for name in above:
        assert described[name] == {"name": name, "rank": ranks[name], "classes": 1}
    # Each rank has nodes for all classes, and the others are where they were.
    assert tree.taxonomy.depth == 4
    both = tree.taxonomy.ancestors[:2, :-1]
    assert (both[0] == both[1]).all()
    assert [tree.rank_of_node[node] for node in both[0]] == ["all", "order", "family", "genus"]
    # A set with one name.
    chosen = np.array([[False, False, True, False], [True, True, False, False]])
    named = [tree.describe(np.flatnonzero(row), names) for row in tree.name(chosen, 1)]
    assert [[one["name"] for one in row] for row in named] == [["Aloe vera"], ["Quercus"]]


def test_two_classes_that_lack_a_rank_above_a_shared_one_have_the_name_of_that(table):
    table.write_text(UP.replace("Quercus,Fagaceae", "Quercus,"))
    tree = ClassTree.of(rank_table.read(str(table), CLASSES), CLASSES)
    (node,) = np.flatnonzero(tree.name(np.array([[True, True, False]]), 1)[0])
    assert tree.describe([node], CLASSES) == [{"name": "Quercus", "rank": "genus", "classes": 2}]


def test_a_class_is_not_above_others(tmp_path):
    table = tmp_path / "ranks.csv"
    table.write_text("class,genus\nQuercus,\nQuercus robur,Quercus\nQuercus ilex,Quercus\n")
    with pytest.raises(UserError, match="the class Quercus must be in a genus"):
        rank_table.read(str(table), ("Quercus", "Quercus robur", "Quercus ilex"))


def test_genera_are_first_words():
    found = rank_table.read(rank_table.FIRST_WORD, (*CLASSES, "× Cuprocyparis leylandii", "Aloe"))
    assert found.names == ("genus", "species")
    assert found.above == (("Quercus",), ("Quercus",), ("Salix",), ("Cuprocyparis",), ("Aloe",))


@pytest.mark.parametrize(
    "name",
    [
        "Quercus_ilex",
        "Quercus\u00a0ilex",
        "Que\u200brcus ilex",
        "QUERCUS ILEX",
        "× Quercus ilex",
        "xQuercus ilex",
        "+ Quercus ilex",
        "12 Quercus ilex",
        "0012_Quercus_ilex",
        "“Quercus” ilex",
        "Quercus, ilex",
    ],
)
def test_spaces_case_numbers_and_marks_are_no_part_of_a_genus(name):
    found = rank_table.read(rank_table.FIRST_WORD, ("Quercus robur", name, "Salix alba"))
    assert found.above == (("Quercus",), ("Quercus",), ("Salix",))


@pytest.mark.parametrize(
    "name",
    ["Xylia xylocarpa", "Pseudo-nitzschia pungens", "Ōmura x", "genus_07 species_03", "7 3", "X"],
)
def test_the_rest_of_a_first_word_stays(name):
    found = rank_table.read(rank_table.FIRST_WORD, (*CLASSES, name))
    assert found.above[-1] == (name.split()[0],)


@pytest.mark.parametrize("one_more", [(), ("12",), ("Aloe-vera",), ("橡树",)])
def test_a_taxonomy_in_which_each_class_is_alone_is_refused(one_more, tmp_path):
    names = ("Quercus-robur", "Quercus-ilex", "Salix-alba", *one_more)
    with pytest.raises(UserError, match=r"config.dataset.taxonomy must .*Quercus-robur") as error:
        rank_table.read(rank_table.FIRST_WORD, names)
    assert "\n" not in str(error.value)
    table = tmp_path / "ranks.csv"
    for rank in (lambda _: "", lambda name: f"of {name}"):
        rows = [f"{name},{rank(name)}" for name in names]
        # A class of other data would not be alone.
        rows.append(f"Fagus,{rank(names[0])}")
        table.write_text("\n".join(["class,genus", *rows]))
        with pytest.raises(UserError, match=r"config.dataset.taxonomy must "):
            rank_table.read(str(table), names)


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
