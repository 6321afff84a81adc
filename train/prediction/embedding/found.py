"""The images that --images or --table names, with their classes and splits if they have some."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from train.configuration.datasets import ImagesFields
from train.data import division, own_images
from train.data.examples import Examples


def find(path: Path, **fields: Any) -> Examples:
    """The images that can be read, divided; without classes if a folder has only files.

    Args:
        path: where the images are.
        fields: those of `config.dataset` that do not have their default.

    Raises:
        UserError: they have another form, there are none, or some cannot be read.
    """
    given = ImagesFields(name="images", batch_size=1, path=str(path), augmentation="none", **fields)
    own_images.check(given)
    path = path.expanduser()
    is_flat = path.is_dir() and not any(one.is_dir() for one in path.iterdir())
    found, _, looks = own_images.looked_at(
        own_images.find(given, labelled=not is_flat),
        given,
        how="--skip_unreadable leaves such images out",
    )
    assert looks is not None
    # Another image may have as many bytes.
    content = hashlib.sha256(looks.copies.tobytes()).hexdigest()
    found = dataclasses.replace(found, content=found.content + content)
    if is_flat:
        return found
    # The file of features has all classes. The run that reads it decides about them.
    divided = division.divide(
        found,
        validation=given.validation_fraction,
        test=given.test_fraction,
        unseen=division.KEEP,
    )
    own_images.warn_of_likely(divided)
    return divided
