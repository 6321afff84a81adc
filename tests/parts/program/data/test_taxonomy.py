"""What is above the classes: from a table, from names, and from nested folders."""

import numpy as np
import pytest

from topk_jax import sets
from train.data import taxonomy
from train.data.taxonomy import ClassTree
from train.foundation.errors import UserError

CLASSES = ("Quercus robur", "Quercus ilex", "Salix alba")
EXPECTED = ClassTree(
    ("family", "genus", "class"),
    (
        ("Fagaceae", "Quercus", "Quercus robur"),
        ("Fagaceae", "Quercus", "Quercus ilex"),
        ("Salicaceae", "Salix", "Salix alba"),
    ),
)
UP = """class,genus,family
Salix alba,Salix,Salicaceae
Quercus robur,Quercus,Fagaceae
Fagus sylvatica,Fagus,Fagaceae
Quercus ilex,Quercus,Fagaceae
"""


def name_of(chosen, tree):
    """The node with the fewest other classes, for each set."""
    return sets.fewest_names(chosen, tree.taxonomy, names=1)


def genera_of(found):
    """The only name above each class."""
    assert found.ranks == ("genus", "species")
    return [genus for genus, _ in found.paths]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "taxonomy.csv"
    path.write_text(UP)
    return path


def test_a_table_goes_from_the_classes_up_or_from_the_top_down(table):
    assert taxonomy.read(str(table), CLASSES) == EXPECTED
    down = [",".join(reversed(line.split(","))) for line in UP.splitlines()]
    table.write_text("\n".join(down))
    assert taxonomy.read(str(table), CLASSES) == EXPECTED
    # The word for the classes is that of the table, and other separators are read as they are.
    table.write_text(UP.replace("class", "species").replace(",", ";"))
    assert taxonomy.read(str(table), CLASSES).ranks == ("family", "genus", "species")
    table.write_text(UP.replace("class,genus,family", "Art,Gattung,Familie").replace(",", ";"))
    assert taxonomy.read(str(table), CLASSES).ranks == ("Familie", "Gattung", "Art")


@pytest.mark.parametrize(
    ("wrong", "right", "named"),
    [
        ("class,genus,family", "class,genus,genus", "two columns"),
        ("Quercus ilex,Q", "Salix alba,Q", "the class Salix alba must be in one place"),
        ("Quercus ilex,Q", "Quercus suber,Q", "Quercus ilex"),
        ("Quercus ilex,Q", "Quercus ilex,q", "the genus quercus must be in one place, in one case"),
        ("ilex,Quercus,Fagaceae", "ilex,Quercus,", "the genus Quercus must be in one place"),
        ("Salix,Salicaceae", "Fagaceae,Quercus", "Fagaceae is above Quercus, and below it"),
        (UP, "class\nSalix alba\n", "a column of classes"),
    ],
)
def test_a_table_that_is_no_tree_of_the_classes_is_refused(wrong, right, named, table):
    assert wrong in UP
    table.write_text(UP.replace(wrong, right))
    with pytest.raises(UserError, match=r"^config\.dataset\.taxonomy ") as error:
        taxonomy.read(str(table), CLASSES)
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
    assert taxonomy.read(str(table), CLASSES) == EXPECTED


def test_columns_may_be_named_and_a_class_have_rows_that_agree(tmp_path):
    """As GBIF exports names: a row for each synonym, and columns of other things."""
    path = tmp_path / "gbif.csv"
    rows = [
        "key,scientificName,species,genus,family,status",
        "1,Quercus robur L.,Quercus robur,Quercus,Fagaceae,accepted",
        "2,Quercus pedunculata Hoffm.,Quercus robur,Quercus,Fagaceae,synonym",
        "3,Quercus ilex L.,Quercus ilex,Quercus,Fagaceae,accepted",
        "4,Salix alba L.,Salix alba,Salix,Salicaceae,accepted",
        "5,Salix,,Salix,Salicaceae,accepted",
    ]
    path.write_text("\n".join(rows))
    found = taxonomy.read(f"{path}:family,genus,species", CLASSES)
    assert found == ClassTree(("family", "genus", "species"), EXPECTED.paths)
    with pytest.raises(UserError, match=r"has no column 'order', but key, scientificName, species"):
        taxonomy.read(f"{path}:order,species", CLASSES)
    path.write_text(
        "\n".join(rows).replace("Hoffm.,Quercus robur,Quercus", "H,Quercus robur,Salix")
    )
    with pytest.raises(UserError, match="the species Quercus robur must be in one place"):
        taxonomy.read(f"{path}:family,genus,species", CLASSES)


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
    tree = taxonomy.read(str(table), names)
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
    named = [tree.describe(np.flatnonzero(row), names) for row in name_of(chosen, tree)]
    assert [[one["name"] for one in row] for row in named] == [["Aloe vera"], ["Quercus"]]


@pytest.mark.parametrize(("rank", "cell"), [("", ""), (",family", ",")])
def test_a_class_is_not_above_others(rank, cell, tmp_path):
    """Also if the table has a rank that no class has."""
    table = tmp_path / "ranks.csv"
    cells = ("Quercus,", "Quercus robur,Quercus", "Quercus ilex,Quercus")
    table.write_text("\n".join([f"class,genus{rank}", *(f"{one}{cell}" for one in cells)]))
    with pytest.raises(UserError, match="got the class Quercus above others"):
        taxonomy.read(str(table), ("Quercus", "Quercus robur", "Quercus ilex"))


def test_genera_are_first_words():
    found = taxonomy.read(taxonomy.FIRST_WORD, (*CLASSES, "× Cuprocyparis leylandii", "Aloe"))
    assert genera_of(found) == ["Quercus", "Quercus", "Salix", "Cuprocyparis", "Aloe"]


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
    found = taxonomy.read(taxonomy.FIRST_WORD, ("Quercus robur", name, "Salix alba"))
    assert genera_of(found) == ["Quercus", "Quercus", "Salix"]


@pytest.mark.parametrize(
    "name",
    ["Xylia xylocarpa", "Pseudo-nitzschia pungens", "Ōmura x", "genus_07 species_03", "7 3", "X"],
)
def test_the_rest_of_a_first_word_stays(name):
    found = taxonomy.read(taxonomy.FIRST_WORD, (*CLASSES, name))
    assert genera_of(found)[-1] == name.split()[0]


@pytest.mark.parametrize("one_more", [(), ("12",), ("Aloe-vera",), ("橡树",)])
def test_a_taxonomy_in_which_each_class_is_alone_is_refused(one_more, tmp_path):
    names = ("Quercus-robur", "Quercus-ilex", "Salix-alba", *one_more)
    with pytest.raises(UserError, match=r"config.dataset.taxonomy must .*Quercus-robur") as error:
        taxonomy.read(taxonomy.FIRST_WORD, names)
    assert "\n" not in str(error.value)
    table = tmp_path / "ranks.csv"
    for rank in (lambda _: "", lambda name: f"of {name}"):
        rows = [f"{name},{rank(name)}" for name in names]
        # A class of other data would not be alone.
        rows.append(f"Fagus,{rank(names[0])}")
        table.write_text("\n".join(["class,genus", *rows]))
        with pytest.raises(UserError, match=r"config.dataset.taxonomy must "):
            taxonomy.read(str(table), names)


def test_folders_above_folders_are_ranks():
    assert taxonomy.folders(("oak", "willow")) is None
    names = ("Fagaceae/Quercus/robur", "Fagaceae/Quercus/ilex", "Ginkgo", "Salicaceae/Salix alba")
    found = taxonomy.folders(names)
    assert found.ranks == ("level-1 folder", "level-2 folder", "class")
    assert found.paths == (
        ("Fagaceae", "Quercus", names[0]),
        ("Fagaceae", "Quercus", names[1]),
        ("Ginkgo",),
        ("Salicaceae", names[3]),
    )
    # Plants of a genus that nobody knows more of.
    found = taxonomy.folders(("Quercus", "Quercus/robur"))
    assert found.paths == (
        ("Quercus", "Quercus"),
        ("Quercus", "Quercus/robur"),
    )


def test_a_tree_is_written_and_read_back_by_class_and_by_node(table):
    rows = [*EXPECTED.to_rows()]
    assert rows[2] == {"family": "Salicaceae", "genus": "Salix", "class": "Salix alba"}
    assert ClassTree.from_rows(rows, CLASSES) == EXPECTED
    with pytest.raises(ValueError, match="must have the same names"):
        ClassTree.from_rows([rows[0], {"genus": "Salix", "class": "Salix alba"}], CLASSES)
    # Two classes without a family, and one without a genus.
    table.write_text(UP.replace("Quercus,Fagaceae", "Quercus,").replace(",Salix,", ",,"))
    tree = taxonomy.read(str(table), CLASSES)
    assert [*tree.to_rows()][2] == {"family": "Salicaceae", "genus": "", "class": "Salix alba"}
    assert ClassTree.from_rows([*tree.to_rows()], CLASSES) == tree
    for one in (EXPECTED, tree):
        assert ClassTree.from_plain(one.to_plain()) == one
