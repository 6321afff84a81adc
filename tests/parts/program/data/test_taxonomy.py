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
OTHER = "Fagus sylvatica,Fagus,Fagaceae"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "taxonomy.csv"
    path.write_text(UP)
    return path


# Tables that say the same. Only the rows of the classes count.
TABLES = {
    "from the classes up": UP,
    "from the top down": "\n".join(",".join(line.split(",")[::-1]) for line in UP.splitlines()),
    "a row without a class": UP.replace(OTHER, ",Fagus,Fagaceae"),
    "another class in other case": UP.replace(OTHER, "Fagus sylvatica,quercus,FAGACEAE"),
    "another class in two places": f"{UP}Fagus sylvatica,Fagus,Betulaceae\n",
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_goes_from_the_classes_up_or_from_the_top_down(case, table):
    table.write_text(TABLES[case])
    assert taxonomy.read(str(table), CLASSES) == EXPECTED
    # The words for the ranks are those of the table, and other separators are read as they are.
    words = TABLES[case].replace("class", "Art").replace("genus", "Gattung").replace(",", ";")
    table.write_text(words)
    assert taxonomy.read(str(table), CLASSES).ranks == ("family", "Gattung", "Art")


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
    with pytest.raises(UserError, match=rf"^config\.dataset\.taxonomy .*{named}"):
        taxonomy.read(str(table), CLASSES)


def test_columns_may_be_named_and_a_class_have_rows_that_agree(table):
    """As GBIF exports names: a row for each synonym, and columns of other things."""
    text = """key,scientificName,species,genus,family
1,Quercus robur L.,Quercus robur,Quercus,Fagaceae
2,Quercus pedunculata Hoffm.,Quercus robur,Quercus,Fagaceae
3,Quercus ilex L.,Quercus ilex,Quercus,Fagaceae
4,Salix alba L.,Salix alba,Salix,Salicaceae
5,Salix,,Salix,Salicaceae
"""
    table.write_text(text)
    found = taxonomy.read(f"{table}:family,genus,species", CLASSES)
    assert found == ClassTree(("family", "genus", "species"), EXPECTED.paths)
    with pytest.raises(UserError, match=r"has no column 'order', but key, scientificName, species"):
        taxonomy.read(f"{table}:order,species", CLASSES)
    table.write_text(text.replace("Hoffm.,Quercus robur,Quercus", "H,Quercus robur,Salix"))
    with pytest.raises(UserError, match="the species Quercus robur must be in one place"):
        taxonomy.read(f"{table}:family,genus,species", CLASSES)


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
def test_an_empty_cell_is_a_rank_that_the_class_does_not_have(cells, above, table):
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
    ranks = {"Asparagales": "order", "Asphodelaceae": "family", "Aloe": "genus"}
    described = [one for one in tree.describe(way, names) if one["name"] in ranks]
    assert described == [{"name": name, "rank": ranks[name], "classes": 1} for name in above]
    # Each rank has nodes for all classes, and the others are where they were.
    assert tree.taxonomy.depth == 4
    both = tree.taxonomy.ancestors[:2, :-1]
    assert (both[0] == both[1]).all()
    assert [tree.rank_of_node[node] for node in both[0]] == ["all", "order", "family", "genus"]
    # A set with one name.
    chosen = np.array([[False, False, True, False], [True, True, False, False]])
    nodes = sets.fewest_names(chosen, tree.taxonomy, names=1)
    named = [one["name"] for row in nodes for one in tree.describe(np.flatnonzero(row), names)]
    assert named == ["Aloe vera", "Quercus"]
    # As a run and a program keep it.
    assert ClassTree.from_rows([*tree.to_rows()], names) == tree
    assert ClassTree.from_plain(tree.to_plain()) == tree


def test_a_class_is_not_above_others(table):
    """Also if the table has a rank that no class has."""
    table.write_text("class,genus,family\nQuercus,,\nQuercus robur,Quercus,\nSalix alba,,\n")
    with pytest.raises(UserError, match="none above another, got 'Quercus'"):
        taxonomy.read(str(table), ("Quercus", "Quercus robur", "Salix alba"))


# Separators, case, numbers and marks are no part of a genus; the rest of a first word stays.
@pytest.mark.parametrize(
    "name",
    [
        *("Quercus_ilex", "Quercus\u00a0ilex", "QUERCUS ILEX"),
        *("× Quercus ilex", "xQuercus ilex", "+ Quercus ilex"),
        *("12 Quercus ilex", "0012_Quercus_ilex", "“Quercus” ilex", "Quercus, ilex"),
        *("Xylia xylocarpa", "Pseudo-nitzschia pungens", "Ōmura x", "genus_07 species_03"),
        *("7 3", "X"),
    ],
)
def test_genera_are_first_words_without_case_numbers_and_marks(name):
    is_oak = "quercus" in name.casefold()
    found = taxonomy.read(taxonomy.FIRST_WORD, (*CLASSES, name))
    assert found.ranks == ("genus", "species")
    genera = [genus for genus, _ in found.paths]
    assert genera == ["Quercus", "Quercus", "Salix", "Quercus" if is_oak else name.split()[0]]


@pytest.mark.parametrize("one_more", [(), ("12",), ("橡树",)])
def test_a_taxonomy_in_which_each_class_is_alone_is_refused(one_more, table):
    names = ("Quercus-robur", "Quercus-ilex", "Salix-alba", *one_more)
    with pytest.raises(UserError, match=r"config.dataset.taxonomy must .*Quercus-robur"):
        taxonomy.read(taxonomy.FIRST_WORD, names)
    for rank in (lambda _: "", lambda name: f"of {name}"):
        # A class of other data would not be alone.
        rows = [*(f"{name},{rank(name)}" for name in names), f"Fagus,{rank(names[0])}"]
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
    assert found.paths == (("Quercus", "Quercus"), ("Quercus", "Quercus/robur"))
