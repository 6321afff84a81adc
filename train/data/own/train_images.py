"""Which of the user's own training images are used, and with which labels."""

import hashlib
from collections.abc import Iterable

import numpy as np

from train.configuration.datasets import OwnImageFields
from train.data import label_noise, splits
from train.data.label_noise import GROUPINGS, LabelNoise
from train.data.own.listing import Listing, Role
from train.foundation import names

# Constants of the data: with another text, other images would be chosen and other labels drawn.
_CHOICE_SALT = "topk_jax train_per_class 1"
_NOISE_SALT = "topk_jax label_noise 1"


def chosen(fields: OwnImageFields, images: Listing) -> np.ndarray:
    """The indices of the images that are used. They depend only on the paths and classes.

    A smaller number, or a larger imbalance, chooses a part of what a larger number chooses.

    Raises:
        UserError: a class would have none.
    """
    train = images.of_role(Role.TRAIN)
    labels = images.labels[train]
    counts = np.bincount(labels, minlength=len(images.class_names))
    per_class = fields.train_per_class
    most = counts if per_class is None else np.minimum(counts, per_class)
    sizes = splits.long_tail_sizes(most, fields.imbalance_factor)
    if (sizes == counts).all():
        return train
    draws = _draws(_CHOICE_SALT, (images.paths[index] for index in train.tolist()))
    return train[splits.position_in_class(labels, draws[:, 0]) < sizes[labels]]


def labels_of(
    fields: OwnImageFields, images: Listing, indices: np.ndarray, *, seed: int
) -> np.ndarray:
    """The labels [n] of some images, with noise.

    Each is a function of the seed, the path and the class of the image. The labels that a lower
    probability replaces are among the labels that a higher one replaces.
    """
    labels = images.labels[indices]
    if fields.label_noise == 0:
        return labels
    groups = GROUPINGS[fields.label_noise_kind](len(images.class_names))
    paths = (images.paths[index] for index in indices.tolist())
    draws = _draws(f"{_NOISE_SALT}\0{seed}", paths)
    return label_noise.apply_draws(LabelNoise(fields.label_noise, groups), labels, draws)


def _draws(salt: str, paths: Iterable[str]) -> np.ndarray:
    """Two numbers in [0, 1) for each path, [n, 2], which depend only on the salt and the path."""
    # A copy on another file system may have its names in another form of Unicode.
    same = map(names.same_form, paths)
    texts = (f"{salt}\0{path}".encode(errors="surrogateescape") for path in same)
    digests = b"".join(hashlib.sha256(text).digest()[:16] for text in texts)
    # 53 bits, which a float64 holds exactly.
    return (np.frombuffer(digests, ">u8").reshape(-1, 2) >> np.uint64(11)) / 2.0**53
