"""New labelled data: classes by their names, groups, and what is refused in one line."""

import dataclasses
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data import pictures
from train.classifiers import labelled
from train.classifiers.labelled import Expected
from train.configuration.datasets import FeaturesFields, ImagesFields
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.evaluating import training_examples
from train.foundation.errors import UserError

CLASSES = ("chêne", "frêne", "orme")


def expected_of(inputs, shape, class_names=CLASSES):
    reader = ImageReader.plain(shape) if inputs == "images" else None
    classes = Classes.of(class_names)
    return Expected(
        SimpleNamespace(title="it", classes=classes, inputs=inputs, shape=shape, reader=reader)
    )


IMAGES = expected_of("images", (4, 4, 3))
FEATURES = expected_of("features", (3,))


def write(folder, *paths):
    for number, path in enumerate(paths):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(file)
    return folder


def test_classes_are_matched_by_what_their_names_look_like(tmp_path):
    write(tmp_path / "new", f"{CLASSES[0]}/a.png", "orme/b.png", "orme/d/c.png", "zelkova/e.png")
    # As a list of published classes may have them.
    class_names = (unicodedata.normalize("NFD", CLASSES[0]), CLASSES[1], "orme\u200b")
    expected = expected_of("images", (4, 4, 3), class_names)
    found = labelled.find("images", tmp_path / "new", expected)
    assert found.unknown_names == ("zelkova",)
    names = found.examples.names.tolist()
    assert found.examples.labels.tolist() == [0, 2, 2, 3]
    assert [name.rpartition("/")[2] for name in names] == ["a.png", "b.png", "c.png", "e.png"]
    pixels = found.examples.reader.for_evaluation(found.examples.encoded(3), "e.png")
    assert (pixels[..., 0] == 3).all()


def test_a_table_has_groups_and_its_splits_are_not_used(tmp_path):
    write(tmp_path, "a.png", "b.png", "c.png")
    (tmp_path / "t.csv").write_text(
        "path,label,group,split\na.png,orme,p,test\nb.png,frêne,p,val\nc.png,orme,,test\n"
    )
    found = labelled.find("images", tmp_path / "t.csv", IMAGES)
    assert found.examples.labels.tolist() == [2, 1, 2]
    assert found.examples.groups.tolist() == ["p", "p", ""]


def test_features_have_names_and_groups(tmp_path):
    np.savez(
        tmp_path / "f.npz",
        features=np.arange(12, dtype=np.float32).reshape(4, 3),
        labels=np.array(["orme", "x", "chêne", "orme"]),
        names=np.array(["a", "b", "c", "d"]),
        group=np.array(["p", "", "p", "q"]),
    )
    found = labelled.find("features", tmp_path / "f.npz", FEATURES)
    assert found.examples.labels.tolist() == [2, 3, 0, 2]
    assert found.examples.names.tolist() == ["a", "b", "c", "d"]
    assert found.examples.groups.tolist() == ["p", "", "p", "q"]
    np.testing.assert_array_equal(found.examples.array[1], [3, 4, 5])


def test_groups_of_a_folder_are_found_by_a_grammar(tmp_path):
    write(tmp_path / "new", "orme/p1_a.png", "orme/p1_b.png", "chêne/p2_a.png")
    expected = dataclasses.replace(IMAGES, group=r"(p\d)_")
    found = labelled.find("images", tmp_path / "new", expected)
    assert found.examples.groups.tolist() == ["p2", "p1", "p1"]
    for wrong in ("(q)", "(p)"):
        with pytest.raises(UserError, match="--group"):
            labelled.find("images", tmp_path / "new", dataclasses.replace(IMAGES, group=wrong))
    # The new images need not have the names of those of the run.
    of_run = dataclasses.replace(IMAGES, grammar="(q)")
    assert labelled.find("images", tmp_path / "new", of_run).examples.groups is None


def new_examples(folder, names):
    """Examples of the same names as images, in a table, and as features."""
    write(folder / "new", *names)
    labels = [name.partition("/")[0] for name in names]
    rows = [f"new/{name},{label}" for name, label in zip(names, labels, strict=True)]
    (folder / "t.csv").write_text("\n".join(["path,label", *rows]))
    features = np.ones((len(names), 3), np.float32)
    np.savez(folder / "f.npz", features=features, labels=np.array(labels), names=np.array(names))
    return (
        ("images", folder / "new", IMAGES),
        ("images", folder / "t.csv", IMAGES),
        ("features", folder / "f.npz", FEATURES),
    )


def test_what_has_no_groups_has_those_of_the_pattern_of_the_run(tmp_path):
    names = ["orme/p1_a.png", "orme/p1_b.png", "chêne/p2_a.png"]
    for flag, path, expected in new_examples(tmp_path, names):
        of_run = dataclasses.replace(expected, grammar=r"(p\d)_")
        found = labelled.find(flag, path, of_run)
        assert sorted(found.examples.groups) == ["p1", "p1", "p2"]
    with np.load(tmp_path / "f.npz") as arrays:
        np.savez(tmp_path / "g.npz", **arrays, group=np.array(["x", "y", "y"]))
    found = labelled.find("features", tmp_path / "g.npz", of_run)
    assert found.examples.groups.tolist() == ["x", "y", "y"]


def test_likely_groups_in_the_names_of_new_examples_are_told(tmp_path, caplog):
    names = [f"{one}/p{n}_{k}.png" for one in ("orme", "chêne") for n in range(3) for k in range(2)]
    names = [name.replace("chêne/p", "chêne/p1") for name in names]
    advice = {
        "new": r"--group='([^/]*?)[-_. ]+\d{1,9}[.][^./]*$'",
        "t.csv": "a column group",
        "f.npz": "an array group",
    }
    for flag, path, expected in new_examples(tmp_path, names):
        caplog.clear()
        labelled.find(flag, path, expected)
        (told,) = caplog.messages
        assert told.startswith(f"--{flag} {path}: names of files look like those of groups")
        assert (
            ": 6 groups of several examples, each of which counts as independent; "
            f"{advice[path.name]}" in told
        )
        labelled.find(flag, path, dataclasses.replace(expected, grammar=r"(p\d+)_"))
        assert len(caplog.messages) == 1


def test_training_images_among_the_new_ones_are_reported(tmp_path, caplog):
    write(tmp_path / "new", "orme/a.png", "orme/b.png", "chêne/c.png", "chêne/d.png")
    # Of the training images, one has other pixels than the new one of its name.
    write(tmp_path / "run", "orme/a.png", "orme/c.png")
    found, known = (labelled.find("images", tmp_path / name, IMAGES) for name in ("new", "run"))
    run = run_on(ImagesFields(name="images", batch_size=1, path="run"), known.examples)
    training_examples.warn(run, found)
    (told,) = caplog.messages
    assert told.endswith(
        "new: 1 of 4 images are training images of the run: accuracies are too good"
    )


def run_on(fields, train=None):
    """A run, of which only the data set is used."""
    found = SimpleNamespace(
        config=SimpleNamespace(dataset=fields),
        load_dataset=lambda: SimpleNamespace(train=train),
    )
    found.run = found
    return found


def test_unreadable_images_are_named_and_left_out(tmp_path, caplog):
    for number in range(3):
        for name in (f"orme/p{number}_0.png", f"orme/p{number}_1.png"):
            write(tmp_path / "new", name)
            pictures.picture(f"plant {number}").save(tmp_path / "new" / name)
    (tmp_path / "new" / "orme" / "p1_0.png").write_bytes(b"no image")
    for grammar in (r"(p\d+)_", "near_duplicates"):
        caplog.clear()
        found = labelled.find(
            "images", tmp_path / "new", dataclasses.replace(IMAGES, grammar=grammar)
        )
        one, other, alone, *last = found.examples.groups
        assert (one, [*last]) == (other, [last[0]] * 2)
        assert len({one, alone, last[0]}) == 3
        reason = "orme/p1_0.png is not an image"
        assert found.unreadable == {"orme/p1_0.png": reason}
        (told,) = caplog.messages
        assert told.startswith("1 of 6 images of --images ")
        assert told.endswith(f"{reason}; they are left out")


def test_what_is_not_new_labelled_data_is_refused(tmp_path):
    write(tmp_path / "other", "a/1.png", "b/2.png", "c/3.png", "d/4.png")
    write(tmp_path / "splits", "train/orme/1.png", "test/orme/2.png")
    matrix = np.ones((2, 3), np.float32)
    np.savez(tmp_path / "wide.npz", features=np.ones((2, 5), np.float32), labels=[0, 1])
    np.savez(tmp_path / "nan.npz", features=matrix * np.nan, labels=np.array(["orme", "orme"]))
    refused = [
        ("images", "other", IMAGES),
        ("images", "splits", IMAGES),
        ("features", "wide.npz", FEATURES),
        ("features", "nan.npz", FEATURES),
        ("images", "other", FEATURES),
    ]
    for flag, name, expected in refused:
        with pytest.raises(UserError, match=f"--{flag}"):
            labelled.find(flag, tmp_path / name, expected)


def test_the_data_of_the_run_itself_are_warned_of(tmp_path, caplog):
    own = tmp_path / "own.npz"
    np.savez(own, features=np.ones((2, 3), np.float32), labels=np.array(["orme", "orme"]))
    (tmp_path / "link.npz").symlink_to(own)
    found = labelled.find("features", tmp_path / "link.npz", FEATURES)
    training_examples.warn(
        run_on(FeaturesFields(name="features", batch_size=1, path=str(own))), found
    )
    (told,) = caplog.messages
    assert "link.npz has the examples that the run was trained on" in told
    caplog.clear()
    training_examples.warn(run_on(SimpleNamespace()), found)
    assert not caplog.records
