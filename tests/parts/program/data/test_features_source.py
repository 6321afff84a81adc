"""Features in files: what is read, joined, refused and summarized."""

import io
import json
import re

import numpy as np
import pytest

from tests.parts.program.data import matrices
from tests.parts.program.data.specs import dataset_spec
from train.data.examples import Split
from train.data.sources import features
from train.data.truths import SEVERAL, VOTES
from train.foundation.errors import UserError

NAMES = np.array(["cedar", "ash", "birch"])
# The places of the labels in these.
PLACES = np.tile(np.array([2, 0, 1], np.uint8), 20)
SORTED, GIVEN = ("ash", "birch", "cedar"), tuple(NAMES.tolist())
PLANTS, HAT, SPACED = ["birch", "cedar", "ash"], "e\u0302", np.char.add(NAMES, "\u00a0")
# The arrays beside the features, and the names of the classes and of the first three labels.
LABELS = {
    "integers": ({"labels": np.tile([10, 2, 7], 20)}, ("2", "7", "10"), ["10", "2", "7"]),
    "places": ({"labels": PLACES, "class_names": NAMES}, GIVEN, PLANTS),
    "names": ({"labels": NAMES[PLACES], "class_names": SPACED}, GIVEN, PLANTS),
    "forms": ({"labels": np.tile(["\xea", HAT, "a"], 20)}, ("a", "\xea"), ["\xea", "\xea", "a"]),
    # Other types of features, and another order of their numbers.
    **{dtype: (matrices.arrays(dtype=dtype), SORTED, [*SORTED]) for dtype in ("<f8", ">f4", ">f2")},
    "turned": ({"features": np.ones((4, 60), np.float16).T}, SORTED, [*SORTED]),
}


def join(path, content):
    """Writes the rows to three files, with one that a file system adds."""
    path.mkdir()
    (path / "._1.npz").write_bytes(b"x")
    for name, rows in (("c", slice(50, 60)), ("b", slice(20, 50)), ("a", slice(20))):
        parts = {key: one[rows] if len(one) == 60 else one for key, one in content.items()}
        np.savez(path / f"{name}.npz", **parts)


@pytest.mark.parametrize("form", ["a.npz", "arrays", "joined"])
@pytest.mark.parametrize("labels", LABELS)
def test_labels_in_every_kind_of_file(tmp_path, form, labels):
    content, class_names, first = LABELS[labels]
    content, path = matrices.arrays() | content, tmp_path / form
    join(path, content) if form == "joined" else matrices.write(path, **content)
    found = features.find(path)
    assert found.class_names == class_names
    assert [found.class_names[label] for label in found.labels[:3]] == first
    assert found.labels.tolist() == np.tile(found.labels[:3], 20).tolist()
    given, matrix = content["features"], found.inputs
    assert matrix.dtype == (np.float16 if given.dtype.itemsize == 2 else np.float32)
    np.testing.assert_array_equal(found.rows(np.arange(60)), given.astype(matrix.dtype))
    assert matrix.flags.c_contiguous
    stays = form == "arrays" and given.dtype == matrix.dtype and given.flags.c_contiguous
    assert isinstance(matrix.base, np.memmap) == stays
    assert (found.names, found.groups, found.grammar, found.truths) == (None,) * 4
    assert (found.splits == Split.NONE).all()


def test_groups_and_the_network(tmp_path):
    network = {"network": "resnet18", "parameters_digest": "ab", "group": "([^_]*)_"}
    content = {"plot": np.array([7, 8, 8]), "embedded_by": np.array([json.dumps(network)])}
    path = matrices.write(tmp_path / "a.npz", **matrices.arrays(1), **content)
    found = features.find(path, group="plot")
    assert (found.grammar, found.groups.tolist()) == ("([^_]*)_", ["7", "8", "8"])
    assert features.embedded_by(features.arrays(path)) == network
    with pytest.raises(UserError, match=r"^config\.dataset\.group must be .* plot, .* 'plant'$"):
        features.find(path, group="plant")


def npz(**content):
    """A good file with some arrays replaced, or left out where they are None."""
    whole, file = matrices.arrays() | content, io.BytesIO()
    np.savez(file, **{name: array for name, array in whole.items() if array is not None})
    return file.getvalue()


def columns(labels):
    return npz(labels=labels, class_names=NAMES)


FLIPPED = bytearray(npz())
FLIPPED[FLIPPED.index(matrices.arrays()["features"].tobytes())] ^= 1
VOTED, HOLDS, WEIGHTED = {"kind": VOTES}, {"kind": SEVERAL}, {"kind": VOTES, "rule": "weighted"}
# The content of the file, how it is read, and what the line tells.
REFUSED = [
    (b"path,label\n", {}, "a.npz cannot be read: File is not a zip"),
    (npz()[:-200], {}, "a.npz cannot be read: "),
    (FLIPPED, {}, "the array features cannot be read: Bad CRC-32"),
    (npz(labels=NAMES[PLACES].astype(object)), {}, "the array labels cannot be read"),
    (npz(features=None), {}, "an array features; it has labels"),
    (npz(labels=np.array(["ash", "\u00a0"] * 30)), {}, "row 1, counted from 0, has '"),
    (npz(class_names=NAMES[:2]), {}, "labels must be among class_names, "),
    (npz(class_names=NAMES[[0, 1, 0]]), {}, "class_names must be different texts"),
    (npz(names=np.array([b"a"] * 60)), {}, "names must be texts or integers [60]; got |S1 [60]"),
    (npz(embedded_by=np.array(["{}"])), {}, "embedded_by must be what train.embed writes; "),
    (columns(np.eye(60, 2)), VOTED, "labels must be numbers [60, 3]"),
    (columns(np.eye(60, 3)), VOTED, "not 0 in a whole row; row 3, counted from 0, has 0.0"),
    (columns(np.full((60, 3), np.inf)), VOTED, "has inf"),
    (columns(np.full((60, 3), 0.1)), HOLDS, "labels must be 0 or 1, and"),
    (columns(np.eye(60, 3)), WEIGHTED, "config.dataset.votes must be shares or majority"),
]


@pytest.mark.parametrize(("content", "how", "message"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_is_no_features_is_refused(content, how, message, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UserError, match=f"^.*{re.escape(message)}.*$"):
        features.find(tmp_path / "a.npz", **how)


# What is in a folder beside a good file a.npz, and what the line tells.
FOLDERS = {
    "b.npz": (npz(), "some of its files have an array class_names, and others not"),
    "c.npz": (npz(class_names=NAMES[::-1]), "class_names cannot be read: it must be the same"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_files_that_cannot_be_joined(tmp_path, name):
    content, message = FOLDERS[name]
    (tmp_path / "a.npz").write_bytes(columns(PLACES))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=re.escape(message)):
        features.find(tmp_path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_summary_is_of_the_training_rows(dtype, monkeypatch):
    monkeypatch.setattr(features, "_BLOCK", 6 * 16)
    rng = np.random.default_rng(0)
    # Far from 0 by their deviation, as some columns of embeddings are; one is always the same, and
    # one has deviations that processors take for 0.
    matrix = rng.normal(size=(501, 6)) * [1, 2, 0.1, 5, 0, 0] + [0, 50, 9, 900, 0.1, 1e-40]
    matrix[::2, 5] *= 2
    matrix = matrix.astype(dtype)
    is_training = rng.random(501) < 0.6
    is_training[:200] = False
    mean, std, content = features.summarize(matrix, is_training, "a")
    rows = matrix[is_training].astype(np.float64)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(std, [*rows.std(axis=0)[:4], 1, 1], rtol=1e-12)
    features.check_finite(matrix, "a.npz")
    matrix[500, 3] += 1
    assert features.summarize(matrix, is_training, "a")[2] != content
    matrix[17:, 2] = np.inf
    message = r"^a\.npz: features must be finite; row 17, counted from 0, has inf$"
    with pytest.raises(UserError, match=message):
        features.summarize(matrix, is_training, "a.npz")
    with pytest.raises(UserError, match=message):
        features.check_finite(matrix, "a.npz")


def test_features_are_standardized_by_training_rows_alone_and_the_digest_tells_changes(tmp_path):
    content = matrices.arrays(dtype=np.float32)
    content["split"] = np.tile(["train", "val", "test", "train"], 15)

    def load(name, **changed):
        path = matrices.write(tmp_path / f"{name}.npz", **content | changed)
        return dataset_spec({"name": "features", "path": str(path)}).load(None)

    found = load("a")
    rows = content["features"][content["split"] == "train"].astype(np.float64)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.std, rows.std(axis=0), rtol=1e-12)
    changes = {"features": 1 + content["features"], "labels": np.tile(NAMES, 20)}
    changes["split"] = np.roll(content["split"], 1)
    digests = {load(name, **{name: one}).digest for name, one in changes.items()}
    assert len(digests | {found.digest, load("b").digest}) == 4
