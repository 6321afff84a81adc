"""Fewer training images, a long tail of them, and noise in their labels; nothing else changes."""

import dataclasses
import unicodedata

import numpy as np
import pytest

from configs import folder
from tests.parts.program.data.own import pictures
from tests.parts.program.data.specs import dataset_spec
from train.configuration.datasets import TableFields
from train.data import splits
from train.data.own import train_images
from train.data.own.listing import Listing, Role
from train.foundation.errors import UserError

CLASSES = tuple(f"class {index:02}" for index in range(12))


def training(**changes):
    return TableFields(name="table", batch_size=1, path="photos.csv", **changes)


def listing_of(counts, *, reverse=False):
    """Images of as many classes, all for training but one of each."""
    paths = [
        (f"{name}/{index}.png", label, Role.TEST if index == 0 else Role.TRAIN)
        for label, (name, count) in enumerate(zip(CLASSES, counts, strict=False))
        for index in range(count + 1)
    ]
    if reverse:
        paths.reverse()
    texts, labels, roles = zip(*paths, strict=True)
    return Listing(
        paths=texts,
        labels=np.array(labels, np.int32),
        roles=np.array(roles, np.int8),
        class_names=CLASSES[: len(counts)],
    )


def paths_of(images, indices):
    return [images.paths[index] for index in indices]


def chosen(images, **changes):
    return set(paths_of(images, train_images.chosen(training(**changes), images)))


def test_a_class_has_at_most_so_many_images():
    images = listing_of((30, 7, 15))
    train = images.of_role(Role.TRAIN)
    np.testing.assert_array_equal(train_images.chosen(training(), images), train)
    np.testing.assert_array_equal(train_images.chosen(training(train_per_class=30), images), train)
    indices = train_images.chosen(training(train_per_class=10), images)
    assert (np.diff(indices) > 0).all()
    assert set(indices) < set(train)
    assert np.bincount(images.labels[indices]).tolist() == [10, 7, 10]
    smaller = train_images.chosen(training(train_per_class=4), images)
    assert np.bincount(images.labels[smaller]).tolist() == [4] * 3
    assert set(smaller) < set(indices)
    # Not those that come first.
    assert set(smaller[:4]) != set(train[:4])
    # The images of all machines and versions follow from these.
    assert sorted(paths_of(images, smaller[:4])) == [f"class 00/{n}.png" for n in (15, 24, 30, 8)]


def test_images_are_chosen_and_made_noisy_by_their_paths_alone():
    images, mirrored = listing_of((30, 7, 15)), listing_of((30, 7, 15), reverse=True)
    fewer = {"train_per_class": 5, "imbalance_factor": 3}
    assert chosen(images, **fewer) == chosen(mirrored, **fewer)
    labels = []
    for one in (images, mirrored):
        indices = one.of_role(Role.TRAIN)
        noisy = train_images.labels_of(training(label_noise=0.5), one, indices, seed=3)
        labels.append(dict(zip(paths_of(one, indices), noisy.tolist(), strict=True)))
        # Nor do the others matter.
        some = train_images.labels_of(training(label_noise=0.5), one, indices[::7], seed=3)
        np.testing.assert_array_equal(some, noisy[::7])
    assert labels[0] == labels[1]


def test_a_copy_with_names_in_another_form_of_unicode_has_the_same_images_and_labels():
    images = listing_of((30, 7, 15))
    forms = [
        dataclasses.replace(
            images,
            paths=tuple(unicodedata.normalize(form, f"chêne/{path}") for path in images.paths),
        )
        for form in ("NFC", "NFD")
    ]
    one, other = (train_images.chosen(training(train_per_class=5), form) for form in forms)
    np.testing.assert_array_equal(one, other)
    one, other = (
        train_images.labels_of(training(label_noise=0.5), form, one, seed=3) for form in forms
    )
    np.testing.assert_array_equal(one, other)


def test_a_class_keeps_what_it_has_in_a_long_tail():
    counts = np.array([3, 200, 50, 7])
    kept = splits.long_tail_sizes(counts, 4.0)
    tail = splits.long_tail_sizes(np.full(4, 200), 4.0)
    assert sorted(tail.tolist()) == [50, 79, 125, 200]
    np.testing.assert_array_equal(kept, np.minimum(tail, counts))


def test_a_tail_without_images_is_refused():
    images = listing_of((10, 20))
    kept = np.bincount(images.labels[train_images.chosen(training(imbalance_factor=20), images)])
    # The larger class is the first or the second of the ranks.
    assert kept.tolist() in ([10, 1], [1, 20])
    with pytest.raises(UserError, match=r"imbalance_factor must be at most 20, "):
        train_images.chosen(training(imbalance_factor=20.5), images)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("images") / "photos"
    pictures.write_classes(root, CLASSES, 10)
    return root


def load(path, seed=0, **changes):
    fields = folder.get_config().dataset.to_dict() | {"path": str(path), **changes}
    return dataset_spec(fields).load(None, seed=seed)


CHANGES = {"train_per_class": 5, "imbalance_factor": 2, "label_noise": 0.8}


def test_training_images_alone_are_changed(photos):
    plain = load(photos)
    changed = {seed: load(photos, seed, **CHANGES) for seed in (0, 1)}
    assert len(changed[0].train) < 5 * 12 < len(plain.train)
    assert (changed[0].train.labels != changed[1].train.labels).any()
    for dataset in changed.values():
        np.testing.assert_array_equal(dataset.train.images.indices, changed[0].train.images.indices)
        assert set(dataset.train.images.indices) < set(plain.train.images.indices)
        for split in ("validation", "test"):
            one, other = getattr(dataset, split), getattr(plain, split)
            np.testing.assert_array_equal(one.labels, other.labels)
            np.testing.assert_array_equal(one.images.indices, other.images.indices)
        assert dataset.digest == plain.digest
