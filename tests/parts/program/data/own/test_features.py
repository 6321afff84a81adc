"""Files of features: how they are read, split and summarized, and what is refused."""

import io
import json
import os
import zipfile
import zlib

import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging

from configs import features as recipe
from tests.parts.program.data.own import matrices, refused
from tests.parts.program.data.specs import dataset_spec
from train.data import augmentation
from train.data.own import feature_columns, feature_files, held_out
from train.data.own.listing import Role
from train.foundation import stored_rows
from train.foundation.errors import UserError
from train.foundation.stored_rows import StoredRows


def load(path, *, validation=0.2, test=0.2):
    fractions = {
        "validation_fraction": validation,
        "test_fraction": test,
        "unseen_classes": "refuse",
    }
    return dataset_spec({"name": "features", "path": str(path), **fractions}).load(None)


def read(path):
    return feature_files.read_features(feature_files.find(path, "--features"))


def splits(dataset):
    return [dataset.train, dataset.validation, dataset.test]


def counts(dataset):
    return [
        np.bincount(split.labels, minlength=dataset.num_classes).tolist()
        for split in splits(dataset)
    ]


# What is read


def test_splits_are_held_out_of_each_class(tmp_path):
    content = matrices.arrays(20)
    dataset = load(matrices.write(tmp_path / "a.npz", **content))
    assert dataset.class_names == matrices.CLASSES
    assert dataset.image_shape == (4,)
    assert counts(dataset) == [[12] * 3, [4] * 3, [4] * 3]
    found = np.sort(np.concatenate([split.images.indices for split in splits(dataset)]))
    np.testing.assert_array_equal(found, np.arange(60))
    for split in splits(dataset):
        np.testing.assert_array_equal(
            split.images.to_array(), content["features"][split.images.indices]
        )
        names = np.array(matrices.CLASSES)[split.labels]
        np.testing.assert_array_equal(names, content["labels"][split.images.indices])


def test_many_features_stay_in_their_file_if_they_are_not_compressed(tmp_path, monkeypatch):
    content = matrices.arrays(dtype=np.float32)
    np.savez_compressed(tmp_path / "b.npz", **content)
    for path, stays in (
        (matrices.write(tmp_path / "a.npz", **content), True),
        (matrices.write(tmp_path / "folder", **content), True),
        (tmp_path / "folder" / "features.npy", True),
        (tmp_path / "b.npz", False),
    ):
        monkeypatch.undo()
        in_memory = read(path)
        monkeypatch.setattr(stored_rows, "MOST_IN_MEMORY", content["features"].nbytes - 1)
        features = read(path)
        assert isinstance(in_memory, np.ndarray)
        assert isinstance(features, StoredRows) == stays
        for rows in (slice(None), slice(3, 17), np.arange(4, 9), np.array([5, 0, 59, 5])):
            np.testing.assert_array_equal(features[rows], content["features"][rows])
            np.testing.assert_array_equal(in_memory[rows], content["features"][rows])


@pytest.mark.parametrize("dtype", ["<f8", ">f4", ">f2"])
def test_other_types_are_converted(tmp_path, dtype, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: warnings.append(text % values))
    content = matrices.arrays(dtype=dtype)
    features = read(matrices.write(tmp_path / "a.npz", **content))
    assert features.dtype == {"<f8": np.float32, ">f4": np.float32, ">f2": np.float16}[dtype]
    np.testing.assert_array_equal(features, content["features"].astype(features.dtype))
    assert ["float64, and are converted to float32" in text for text in warnings] == (
        [True] if dtype == "<f8" else []
    )


def test_columns_side_by_side_are_turned(tmp_path):
    content = matrices.arrays()
    turned = np.asfortranarray(content["features"])
    features = read(matrices.write(tmp_path / "a.npz", features=turned))
    assert features.flags.c_contiguous
    np.testing.assert_array_equal(features, content["features"])


@pytest.mark.parametrize("form", ["texts", "indices into a list"])
def test_a_class_in_two_forms_is_one(tmp_path, caplog, form):
    content = matrices.arrays(20)
    names = np.array(["h\u00eatre", "he\u0302tre", "ash"])
    numbers = np.arange(60) % 3
    labels = numbers if form == "indices into a list" else names[numbers]
    more = {} if form == "texts" else {"class_names": names}
    path = matrices.write(tmp_path / "a.npz", features=content["features"], labels=labels, **more)
    dataset = load(path)
    # Texts alone are sorted.
    expected = ("h\u00eatre", "ash") if more else ("ash", "h\u00eatre")
    assert dataset.class_names == expected
    beech = expected.index("h\u00eatre")
    assert (dataset.train.labels == beech).sum() == 2 * (dataset.train.labels != beech).sum()
    assert "names that look the same are one class" in caplog.text


def test_integers_are_names_in_their_order_or_indices_of_class_names(tmp_path):
    content = matrices.arrays()
    numbers = np.tile([10, 2, 7], 20)
    dataset = load(matrices.write(tmp_path / "a.npz", features=content["features"], labels=numbers))
    assert dataset.class_names == ("2", "7", "10")
    rows = dataset.train.images.indices
    found = np.array(dataset.class_names)[dataset.train.labels]
    np.testing.assert_array_equal(found.astype(int), numbers[rows])
    given = np.array(["cedar", "ash", "birch"])
    indices = np.tile(np.array([2, 0, 1], np.uint8), 20)
    for number, labels in enumerate((indices, given[indices])):
        content |= {"labels": labels, "class_names": given}
        dataset = load(matrices.write(tmp_path / f"{number}.npz", **content))
        assert dataset.class_names == tuple(given)
        np.testing.assert_array_equal(dataset.train.labels, indices[dataset.train.images.indices])


def test_the_digest_tells_any_change(tmp_path):
    content = matrices.arrays() | {"class_names": np.array(matrices.CLASSES)}
    content["split"] = np.tile(["train", "val", "test", "train"], 15)
    digests = {load(matrices.write(tmp_path / "a.npz", **content)).digest}
    for number, (name, row, value) in enumerate(
        [
            ("features", (59, 3), 0.25),
            ("labels", 1, "ash"),
            ("split", 0, "test"),
            ("class_names", None, ["birch", "ash", "cedar"]),
        ]
    ):
        changed = content[name].copy()
        changed[... if row is None else row] = value
        path = matrices.write(tmp_path / f"{number}.npz", **(content | {name: changed}))
        digests.add(load(path).digest)
    assert len(digests) == 5
    # The machine rounds the mean, and may round it otherwise; the digest is of the numbers.
    assert None not in digests


# Splits and summaries


def test_held_out_rows_are_the_fractions_and_leave_one_of_each_class():
    labels = np.repeat(np.arange(4), [1, 2, 10, 100])
    roles = held_out.by_numbers(labels, validation=0.3, test=0.25)
    found = [np.bincount(labels[roles == role], minlength=4).tolist() for role in Role]
    # Halves are rounded up: 2.5 of ten rows are 3.
    assert found == [[1, 1, 4, 45], [0, 0, 3, 30], [0, 1, 3, 25]]
    np.testing.assert_array_equal(roles, held_out.by_numbers(labels, validation=0.3, test=0.25))


def test_rows_that_are_added_move_few_others():
    labels = np.random.default_rng(0).integers(0, 5, 1100)
    before = held_out.by_numbers(labels[:1000], validation=0.15, test=0.15)
    after = held_out.by_numbers(labels, validation=0.15, test=0.15)[:1000]
    # Splits drawn anew would differ in half of the rows.
    assert (before != after).mean() < 0.05


@pytest.mark.parametrize(("dtype", "threads"), [(np.float16, 1), (np.float32, 3)])
def test_means_and_deviations_are_those_of_the_training_rows(dtype, threads, monkeypatch):
    rng = np.random.default_rng(0)
    # Far from 0 by their deviation, as some columns of embeddings are.
    features = (rng.normal(size=(501, 6)) * [1, 2, 0.1, 1, 1, 5] + [0, 50, 9, 1, -3, 900]).astype(
        dtype
    )
    features[:, 3] = 0.1
    is_training = rng.random(501) < 0.6
    is_training[:200] = False
    monkeypatch.setattr(feature_columns, "_CHUNK", 6 * 16)
    monkeypatch.setattr(os, "cpu_count", lambda: threads)
    found = feature_columns.summarize(features, is_training, "a")
    rows = features[is_training].astype(np.float64)
    # Sums of 300 numbers in 32 bits, or in 64.
    rtol = 1e-5 if dtype == np.float16 else 1e-12
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=rtol)
    expected = rows.std(axis=0)
    # The same in all rows: it becomes 0, and not a rounding error of any size.
    assert found.std[3] == 1
    np.testing.assert_allclose(np.delete(found.std, 3), np.delete(expected, 3), rtol=rtol)
    assert found.checksums[0] == zlib.crc32(features[:16].tobytes())
    assert len(found.checksums) == 32


def test_a_feature_that_is_always_the_same_has_no_deviation_of_rounding():
    # So many that their sum in 32 bits is rounded.
    features = np.full((50_000, 2), 0.1, np.float16)
    features[::2, 1] = 0.3
    found = feature_columns.summarize(features, np.arange(50_000) > 7, "a")
    assert found.mean[0] == features[0, 0]
    assert found.std[0] == 1
    np.testing.assert_allclose(found.std[1], np.float64(0.1), rtol=1e-3)


def test_a_deviation_that_processors_take_for_0_makes_no_nan():
    # As the probabilities of an improbable class.
    features = np.array([[1e-40, 1e-30], [3e-40, 3e-30]], np.float32)
    found = feature_columns.summarize(features, np.ones(2, bool), "a")
    mean, std = tuple(found.mean.tolist()), tuple(found.std.tolist())
    normalized = augmentation.normalize(jnp.asarray(features), mean, std)
    # Four roundings of 6e-8.
    np.testing.assert_allclose(normalized, [[0, -1], [0, 1]], rtol=1e-6, atol=1e-38)


def test_the_mean_does_not_depend_on_the_first_row_being_far_from_it():
    features = np.random.default_rng(0).normal(1, 0.5, (100_000, 3)).astype(np.float16)
    features[0] = 20_000
    found = feature_columns.summarize(features, np.ones(100_000, bool), "a")
    rows = features.astype(np.float64)
    # A difference to 20,000 is rounded by 1e-3 at most; the mean of 1e5 such errors by 1e-5.
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=1e-5)
    # Squares are summed in 32 bits: 1e5 roundings of 6e-8 at most, most of which cancel.
    np.testing.assert_allclose(found.std, rows.std(axis=0), rtol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "value", "row"),
    [(np.float16, np.nan, 0), (np.float32, np.inf, 16), (np.float16, -np.inf, 40)],
)
def test_the_first_number_that_is_not_finite_is_named(dtype, value, row, monkeypatch):
    monkeypatch.setattr(feature_columns, "_CHUNK", 3 * 16)
    features = np.full((41, 3), np.finfo(dtype).max, dtype)
    is_training = np.arange(41) != row
    features[:, 0] = 0
    feature_columns.check_finite(features, "a.npz")
    features[row:, 2] = value
    message = rf"^a\.npz: features must be finite; row {row}, counted from 0, has {value}$"
    with pytest.raises(UserError, match=message):
        feature_columns.check_finite(features, "a.npz")
    with pytest.raises(UserError, match=message):
        feature_columns.summarize(features, is_training, "a.npz")


# What is refused


def flipped(path, place):
    """Changes the lowest bit of a byte of the features, counted from their end."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read("features.npy")
    whole = bytearray(path.read_bytes())
    whole[whole.index(content) + len(content) - place] ^= 1
    path.write_bytes(whole)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("place", [1, 60 * 4 * 4])
def test_a_changed_bit_is_found_when_the_features_are_opened(
    tmp_path, in_memory, place, monkeypatch
):
    monkeypatch.setattr(stored_rows, "MOST_IN_MEMORY", 10**9 if in_memory else 0)
    # Several chunks, the last of which is smaller.
    monkeypatch.setattr(feature_columns, "_CHUNK", 4 * 16)
    path = matrices.write(tmp_path / "a.npz", **matrices.arrays(dtype=np.float32))
    assert isinstance(load(path).train.images.matrix, StoredRows) == (not in_memory)
    feature_columns.check_finite(read(path), "a")
    flipped(path, place)
    # What is read with the header is compared at once.
    message = "features (cannot be read: Bad CRC-32 for|is damaged: it has another checksum$)"
    with pytest.raises(UserError, match=message):
        load(path)
    with pytest.raises(UserError, match=message):
        feature_columns.check_finite(read(path), str(path))


def changed(**content):
    """A good file with some arrays replaced, or left out where they are None."""
    whole = matrices.arrays() | content
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in whole.items() if array is not None})
    return file.getvalue()


NAMES = np.array(matrices.CLASSES)


# The content of the file, and what the line names of it.
REFUSED = {
    "no npz": (b"path,label\n", ".npz"),
    "cut off": (changed()[:-200], "not a complete .npz file"),
    "no features": (changed(features=None), "an array features"),
    "one axis": (changed(features=np.zeros(60)), "[60]"),
    "numbers": (changed(features=np.zeros((60, 4), int)), "got int64"),
    "too large": (changed(features=np.where(np.eye(60, 4), 1e39, 0.0)), "row 0, "),
    "few labels": (changed(labels=NAMES), "labels must have an entry for each of the 60 rows"),
    "fractions": (changed(labels=np.zeros(60)), "labels must be "),
    "a missing label": (changed(labels=np.array([*NAMES[[0, 1] * 29], "ash", ""])), "entry 59, "),
    # Its code does not run.
    "objects": (changed(labels=matrices.arrays()["labels"].astype(object)), "the array labels"),
    "one class": (changed(labels=np.full(60, "ash")), "(ash)"),
    "the same name": (changed(class_names=NAMES[[0, 1, 2, 0]]), "must be different"),
    "a class without rows": (changed(class_names=np.array([*NAMES, "elm"])), "training row of elm"),
    "a short split": (changed(split=np.full(59, "train")), "split must have an entry for each"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_features_is_refused(what, tmp_path):
    content, message = REFUSED[what]
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_network_for_images_is_refused(tmp_path, capfd):
    config = recipe.get_config("cross_entropy")
    config.dataset.path = str(matrices.write(tmp_path / "a.npz", **matrices.arrays()))
    config.model.name = "resnet18"
    line = refused.line_of(json.loads(config.to_json()), tmp_path, capfd)
    assert line.startswith("config.model.name ")
