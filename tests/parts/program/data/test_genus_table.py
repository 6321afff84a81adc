"""A sample of genera, as Pl@ntNet-300K is one: what is drawn, divided, kept and refused."""

import csv
import math
import re
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.parts.program.data.own import divided, pictures
from tests.parts.program.forked import start
from train import prepare
from train.data.own import genus_sample, tables
from train.data.own.listing import Role
from train.foundation.errors import UserError

# Of the species of each genus, the numbers of images. A species has 4, and one has 5.
GENERA = {
    "Quercus": {"robur": 23, "ilex": 5, "alba": 4},
    "Salix": {"alba": 10, "nigra": 11},
    "Rosa": {"canina": 2},
    "Acer": {"rubrum": 30, "nigrum": 7},
}
SPECIES = {
    f"{genus} {name}": number
    for genus, of_genus in GENERA.items()
    for name, number in of_genus.items()
}


def draw(share, seed, species=None, order=None):
    """The sample by species: the numbers of images of each split; and the genera."""
    species = SPECIES if species is None else species
    names = sorted(species)
    paths = [f"{name}-{image}.png" for name in names for image in range(species[name])]
    labels = np.repeat(np.arange(len(names)), [species[name] for name in names])
    rows = np.arange(len(paths)) if order is None else order
    sample = genus_sample.draw(
        [paths[row] for row in rows],
        labels[rows],
        [name.split()[0] for name in names],
        share=share,
        seed=seed,
    )
    found, placed = defaultdict(Counter), {}
    for image, role in zip(sample.images, sample.roles, strict=True):
        found[names[labels[rows[image]]]][Role(role)] += 1
    placed = {
        paths[rows[image]]: role for image, role in zip(sample.images, sample.roles, strict=True)
    }
    return sample, dict(found), placed


# What is drawn.


def test_each_species_with_more_than_four_images_has_a_tenth_of_them_rounded_up_in_each_split():
    sample, found, _ = draw(1.0, 0)
    assert found.keys() == {name for name, number in SPECIES.items() if number > 4}
    for name, of_splits in found.items():
        held_out = math.ceil(SPECIES[name] / 10)
        assert of_splits == {
            Role.VALIDATION: held_out,
            Role.TEST: held_out,
            Role.TRAIN: SPECIES[name] - 2 * held_out,
        }
    # Two of Quercus and Rosa.
    assert (sample.num_few, sample.num_left_out) == (2, 6)
    assert sample.genera == tuple(sorted(GENERA))
    assert found["Quercus ilex"] == {Role.VALIDATION: 1, Role.TEST: 1, Role.TRAIN: 3}
    # 0.1 * 30 is more than 3 in floating point.
    assert found["Acer rubrum"][Role.TEST] == 3


def test_all_species_of_a_drawn_genus_are_kept_and_none_of_others():
    drawn = Counter()
    for seed in range(40):
        sample, found, _ = draw(0.5, seed)
        assert len(sample.genera) == 2
        of_drawn = {name for name in SPECIES if name.split()[0] in sample.genera}
        assert found.keys() == {name for name in of_drawn if SPECIES[name] > 4}
        drawn.update(sample.genera)
    # Rosa has no species with enough images, so that the draws with it leave one genus; each of the
    # four is in half of the draws, and of 40 draws in fewer than 6 with a probability below 1e-5.
    assert min(drawn.values()) >= 6
    assert drawn.keys() == GENERA.keys()


def test_the_sample_is_a_function_of_the_images_and_the_seed():
    order = np.random.default_rng(0).permutation(sum(SPECIES.values()))
    sample, _, placed = draw(0.5, 3)
    same, _, others = draw(0.5, 3, order=order)
    assert same.genera == sample.genera
    assert others == placed
    assert any(draw(0.5, seed)[2] != placed for seed in range(4, 8))
    # A species is not divided by its order.
    roles = [role for path, role in sorted(placed.items())]
    assert roles != sorted(roles)


def test_a_tenth_of_a_few_genera_is_one_of_them():
    sample, _, _ = draw(0.1, 1, species={"Acer rubrum": 9, "Acer nigrum": 9, "Rosa canina": 1})
    assert len(sample.genera) == 1


@pytest.mark.parametrize(
    ("species", "message"),
    [
        ({"Rosa canina": 4, "Acer nigrum": 2}, "no class has more than 4 images.*largest has 4"),
        (
            {"Rosa canina": 40, "Acer nigrum": 2},
            r"two classes with more than 4 images; the 2 drawn of 2 genera have 1: draw a larger",
        ),
    ],
)
def test_images_that_make_no_sample_are_refused(species, message):
    with pytest.raises(UserError, match=message):
        draw(1.0, 0, species=species)


# The table.

HEADER = ("path", "label", "genus", "author", "license", "longitude")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A table of all images in a folder, with their authors and licences."""
    root = tmp_path_factory.mktemp("photos")
    rows = [
        (
            f"images/{name}-{image}.png",
            name,
            name.split()[0],
            f"=author {image}",
            "by-sa",
            f"-{image}.50",
        )
        for name, number in SPECIES.items()
        for image in range(number)
    ]
    pictures.write(root, [row[0] for row in rows])
    write(root / "all.csv", rows)
    return root


def write(table, rows, header=HEADER):
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return table


def read(table):
    with table.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def sample(table, out, *, share=1.0, seed=0, name="table", **options):
    given = {"taxonomy": None, "nested": False, "group": None, "most_bytes": 2**30, **options}
    prepare.write_sample(name, table, out, share=share, seed=seed, **given)
    return out


def test_the_table_has_all_columns_and_is_one_that_runs_read(photos, tmp_path, capsys):
    out = sample(photos / "all.csv", tmp_path / "sample.csv")
    rows = read(out)
    assert [*rows[0]] == ["path", "label", "split", "genus", "author", "license", "longitude"]
    # Authors and licences belong to their images.
    number = re.compile(r"-(\d+)\.png")
    assert all(row["author"] == f"'=author {number.search(row['path'])[1]}" for row in rows)
    assert {row["license"] for row in rows} == {"by-sa"}
    # A negative number is not a formula.
    assert all(row["longitude"] == f"-{number.search(row['path'])[1]}.50" for row in rows)
    kept = {name: number for name, number in SPECIES.items() if number > 4}
    assert Counter(row["label"] for row in rows) == kept
    assert all(row["genus"] == row["label"].split()[0] for row in rows)
    # The paths lead from the new table to the images.
    found = tables.find(out)
    assert all((tmp_path / path).is_file() for path in found.listing.paths)
    run = found.divided(divided.fields(0.2, 0.2)).listing
    assert len(run) == len(rows)
    splits = Counter(row["split"] for row in rows)
    assert {Role(role): number for role, number in enumerate(np.bincount(run.roles))} == {
        Role.TRAIN: splits["train"],
        Role.VALIDATION: splits["val"],
        Role.TEST: splits["test"],
    }
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{photos}: 4 genera, 8 classes, 92 images",
        "drawn: 4 genera",
        "left out, with 4 images or fewer: 2 classes, 6 images",
        "kept: 3 genera, 6 classes, 86 images",
        "images: 64 train, 11 val, 11 test",
        f"wrote {out}",
    ]


def test_the_same_command_leaves_the_table_and_another_is_refused(photos, tmp_path, capsys):
    out = sample(photos / "all.csv", tmp_path / "sample.csv")
    before = out.stat()
    capsys.readouterr()
    sample(photos / "all.csv", out)
    assert capsys.readouterr().out == f"the sample is written already, in {out}\n"
    assert (out.stat().st_ino, out.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with pytest.raises(UserError, match="has something else; delete it, or give another"):
        sample(photos / "all.csv", out, seed=1)
    assert [path.name for path in tmp_path.iterdir()] == ["sample.csv"]


def test_a_table_beside_the_images_has_their_paths(photos):
    out = sample(photos / "all.csv", photos / "beside.csv")
    assert {row["path"] for row in read(out)} < {row["path"] for row in read(photos / "all.csv")}
    out.unlink()


def test_genera_come_from_a_taxonomy_or_from_folders(photos, tmp_path):
    pairs = [(row["path"], row["label"]) for row in read(photos / "all.csv")]
    table = write(photos / "pairs.csv", pairs, ("path", "label"))
    usual = read(sample(photos / "all.csv", tmp_path / "usual.csv", share=0.5))
    found = read(sample(table, tmp_path / "a.csv", share=0.5, taxonomy="first_word"))
    both = ("path", "label", "split", "genus")
    assert found == [{name: row[name] for name in both} for row in usual]
    # Of folders, the genera are at the top.
    for name in SPECIES:
        pictures.write_classes(tmp_path / "nested" / name.split()[0], [name.split()[1]], 5)
    out = sample(tmp_path / "nested", tmp_path / "b.csv", name="folder", nested=True)
    genera = {row["label"]: row["genus"] for row in read(out)}
    assert genera == {name.replace(" ", "/"): name.split()[0] for name in SPECIES}
    assert {row["path"] for row in read(out)} == {
        f"nested/{name.replace(' ', '/')}/{image}.png" for name in SPECIES for image in range(5)
    }
    with pytest.raises(UserError, match=r"must have folders of genera.* --taxonomy=first_word"):
        sample(tmp_path / "nested" / "Salix", tmp_path / "c.csv", name="folder")
    pictures.write_classes(tmp_path / "split" / "train", ["Salix alba", "Salix nigra"], 5)
    pictures.write_classes(tmp_path / "split" / "test", ["Salix alba", "Salix nigra"], 5)
    with pytest.raises(UserError, match="must have images without a split"):
        sample(tmp_path / "split", tmp_path / "c.csv", name="folder", taxonomy="first_word")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.update(genus=""), r"line 3: the column genus is empty"),
        (
            lambda row: row.update(genus="Rosa"),
            r"line 2 and line 3 have the class 'Quercus robur' in two genera, Quercus and Rosa",
        ),
        (
            lambda row: row.update(genus="quercus"),
            r"the column genus has 'Quercus' and 'quercus', which differ only in case",
        ),
        (lambda row: row.update(path="gone.png"), r"1 of 92 are missing, the first of them gone"),
        (lambda row: row.update(split="train"), "must have images without a split"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_table_of_no_sample_is_refused(photos, tmp_path, change, message):
    rows = [{"split": "", **row} for row in read(photos / "all.csv")]
    change(rows[1])
    table = write(photos / "bad.csv", [row.values() for row in rows], [*rows[0]])
    with pytest.raises(UserError, match=message):
        sample(table, tmp_path / "sample.csv")
    assert not [*tmp_path.iterdir()]


def test_a_table_without_genera_and_odd_outputs_are_refused(photos, tmp_path):
    table = write(photos / "short.csv", [("images/Rosa canina-0.png", "a")], ("path", "label"))
    with pytest.raises(UserError, match=r"must have a column genus.*'path', 'label'\. --taxonomy"):
        sample(table, tmp_path / "sample.csv")
    with pytest.raises(UserError, match=r"--out must be a \.csv file with --genera; got .*records"):
        sample(photos / "all.csv", tmp_path / "records")
    with pytest.raises(UserError, match="--out must not be the given table"):
        sample(photos / "all.csv", photos / "all.csv")


def test_groups_that_are_in_several_splits_are_told(photos, tmp_path, caplog):
    rows = [{**row, "group": row["label"]} for row in read(photos / "all.csv")]
    table = write(photos / "grouped.csv", [row.values() for row in rows], [*rows[0]])
    out = sample(table, tmp_path / "sample.csv")
    assert read(out)[0]["group"] == "Quercus robur"
    # Each species is a group here, and has images in all splits.
    assert "6 of 6 groups have images in several of the given splits" in caplog.text


def test_the_command_writes_a_sample(photos, tmp_path):
    flags = (f"--path={photos / 'all.csv'}", f"--out={tmp_path / 'sample.csv'}", "--genera=0.5")
    done = start("train.prepare", "--dataset=table", *flags, "--seed=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"wrote {tmp_path / 'sample.csv'}\n")
    done = start("train.prepare", "--dataset=table", *flags[:2], "--genera=1.5")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: --genera must be a finite number greater than 0 and at most 1"
    )
