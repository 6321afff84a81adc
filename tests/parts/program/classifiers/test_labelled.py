"""New labelled data: classes by their names, groups, and what is refused in one line."""

import unicodedata
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from tests.parts.program.data import pictures
from train.classifiers import labelled
from train.classifiers.trained import TrainedClassifier
from train.configuration.datasets import FeaturesFields, ImagesFields
from train.data.classes import Classes
from train.data.crops import ImageReader
from train.evaluating import training_examples
from train.foundation.errors import UserError

CLASSES = ("chêne", "frêne", "orme")


def classifier_of(inputs, shape, class_names=CLASSES, grammar=None):
    """A program; or with a grammar of groups, a run."""
    given = {
        "title": "it",
        "inputs": inputs,
        "shape": shape,
        "classes": Classes.of(class_names),
        "reader": ImageReader.plain(shape) if inputs == "images" else None,
    }
    if grammar is None:
        return SimpleNamespace(**given)
    run = Mock(spec=TrainedClassifier, **given)
    fields, of_images = {"name": inputs, "batch_size": 1, "path": "run"}, inputs == "images"
    made = ImagesFields(**fields, group=grammar) if of_images else FeaturesFields(**fields)
    run.config = SimpleNamespace(dataset=made)
    facts = SimpleNamespace(embedded_by={"group": grammar})
    run.parts = SimpleNamespace(data=SimpleNamespace(facts=facts))
    return run


IMAGES = ("images", (4, 4, 3))
FEATURES = ("features", (3,))


def find(path, how, grammar=None, group=None):
    """The labelled examples at a path, for a classifier of images or features."""
    return labelled.find(how[0], path, classifier_of(*how, grammar=grammar), group)[0]


def write(folder, *paths):
    for number, path in enumerate(paths):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(file)
    return folder


def test_classes_are_matched_by_what_their_names_look_like(tmp_path):
    write(tmp_path / "new", f"{CLASSES[0]}/a.png", "orme/b.png", "orme/d/c.png", "zelkova/e.png")
    # As a list of published classes may have them.
    class_names = (unicodedata.normalize("NFD", CLASSES[0]), CLASSES[1], "orme\u00a0")
    found = find(tmp_path / "new", (*IMAGES, class_names))
    assert found.class_names == (*class_names, "zelkova")
    names = found.names.tolist()
    assert found.labels.tolist() == [0, 2, 2, 3]
    assert [name.rpartition("/")[2] for name in names] == ["a.png", "b.png", "c.png", "e.png"]
    pixels = found.reader.for_evaluation(found.encoded(3), "e.png")
    assert (pixels[..., 0] == 3).all()


def test_a_table_has_groups_and_its_splits_are_not_used(tmp_path):
    write(tmp_path, "a.png", "b.png", "c.png")
    (tmp_path / "t.csv").write_text(
        "path,label,group,split\na.png,orme,p,test\nb.png,frêne,p,val\nc.png,orme,,test\n"
    )
    found = find(tmp_path / "t.csv", IMAGES)
    assert found.labels.tolist() == [2, 1, 2]
    assert found.groups.tolist() == ["p", "p", ""]


def test_groups_of_a_folder_are_found_by_a_grammar(tmp_path):
    write(tmp_path / "new", "orme/p1_a.png", "orme/p1_b.png", "chêne/p2_a.png")
    found = find(tmp_path / "new", IMAGES, group=r"(p\d)_")
    assert found.groups.tolist() == ["p2", "p1", "p1"]
    with pytest.raises(UserError, match="--group"):
        find(tmp_path / "new", IMAGES, group="(q)")
    # The new images need not have the names of those of the run.
    assert find(tmp_path / "new", IMAGES, grammar="(q)").groups is None


def new_examples(folder, names):
    """Examples of the same names as images, in a table, and as features."""
    write(folder / "new", *names)
    labels = [name.partition("/")[0] for name in names]
    rows = [f"new/{name},{label}" for name, label in zip(names, labels, strict=True)]
    (folder / "t.csv").write_text("\n".join(["path,label", *rows]))
    features = np.ones((len(names), 3), np.float32)
    np.savez(folder / "f.npz", features=features, labels=np.array(labels), names=np.array(names))
    return (folder / "new", IMAGES), (folder / "t.csv", IMAGES), (folder / "f.npz", FEATURES)


def test_what_has_no_groups_has_those_of_the_pattern_of_the_run(tmp_path):
    names = ["orme/p1_a.png", "orme/p1_b.png", "chêne/p2_a.png"]
    for path, how in new_examples(tmp_path, names):
        assert sorted(find(path, how, r"(p\d)_").groups) == ["p1", "p1", "p2"]
    with np.load(tmp_path / "f.npz") as arrays:
        np.savez(tmp_path / "g.npz", **arrays, group=np.array(["x", "y", "y"]))
    assert find(tmp_path / "g.npz", FEATURES, r"(p\d)_").groups.tolist() == ["x", "y", "y"]


def test_likely_groups_in_the_names_of_new_examples_are_told(tmp_path, caplog):
    names = [f"{one}/p{n}_{k}.png" for one in ("orme", "chêne") for n in range(3) for k in range(2)]
    names = [name.replace("chêne/p", "chêne/p1") for name in names]
    for path, how in new_examples(tmp_path, names):
        caplog.clear()
        find(path, how)
        (told,) = caplog.messages
        assert f"--{how[0]} {path}: " in told
        assert ": 6 groups of several examples" in told
        find(path, how, r"(p\d+)_")
        assert len(caplog.messages) == 1


def test_training_images_among_the_new_ones_are_reported(tmp_path, caplog):
    write(tmp_path / "new", "orme/a.png", "orme/b.png", "chêne/c.png", "chêne/d.png")
    # Of the training images, one has other pixels than the new one of its name.
    write(tmp_path / "run", "orme/a.png", "orme/c.png")
    found, known = (find(tmp_path / name, IMAGES) for name in ("new", "run"))
    run = run_on(ImagesFields(name="images", batch_size=1, path="run"), known)
    training_examples.warn(run, found, tmp_path / "new")
    (told,) = caplog.messages
    assert "new: 1 of 4 images are training images" in told


def run_on(fields, train=None):
    """A run, of which only the data set is used."""
    dataset, config = SimpleNamespace(train=train), SimpleNamespace(dataset=fields)
    found = SimpleNamespace(config=config, load_dataset=lambda: dataset)
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
        run = classifier_of(*IMAGES, grammar=grammar)
        found, unreadable = labelled.find("images", tmp_path / "new", run)
        one, other, alone, *last = found.groups
        assert (one, [*last]) == (other, [last[0]] * 2)
        assert len({one, alone, last[0]}) == 3
        assert [*unreadable] == ["orme/p1_0.png"]
        assert "1 of 6 images" in caplog.text


def test_what_is_not_new_labelled_data_is_refused(tmp_path):
    write(tmp_path / "other", "a/1.png", "b/2.png", "c/3.png", "d/4.png")
    write(tmp_path / "splits", "train/orme/1.png", "test/orme/2.png")
    matrix = np.ones((2, 3), np.float32)
    np.savez(tmp_path / "wide.npz", features=np.ones((2, 5), np.float32), labels=[0, 1])
    np.savez(tmp_path / "nan.npz", features=matrix * np.nan, labels=np.array(["orme", "orme"]))
    refused = {"other": IMAGES, "splits": IMAGES, "wide.npz": FEATURES, "nan.npz": FEATURES}
    for name, how in refused.items():
        with pytest.raises(UserError, match=f"--{how[0]}"):
            find(tmp_path / name, how)
    with pytest.raises(UserError, match="--images"):
        labelled.find("images", tmp_path / "other", classifier_of(*FEATURES))


def test_the_data_of_the_run_itself_are_warned_of(tmp_path, caplog):
    own = tmp_path / "own.npz"
    np.savez(own, features=np.ones((2, 3), np.float32), labels=np.array(["orme", "orme"]))
    (tmp_path / "link.npz").symlink_to(own)
    found = find(tmp_path / "link.npz", FEATURES)
    run = run_on(FeaturesFields(name="features", batch_size=1, path=str(own)))
    training_examples.warn(run, found, tmp_path / "link.npz")
    (told,) = caplog.messages
    assert "link.npz has the examples that the run was trained on" in told
    caplog.clear()
    training_examples.warn(run_on(SimpleNamespace()), found, tmp_path / "link.npz")
    assert not caplog.records
