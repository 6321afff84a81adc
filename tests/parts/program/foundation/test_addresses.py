"""Addresses are no paths; the sign of data sets of Hugging Face may be before a path."""

import pytest

from train.foundation import addresses
from train.foundation.errors import UserError


@pytest.mark.parametrize("path", ["C:/photos", "hf:/mnt/photos", "hf:user/name", "tfds:digits:1.0"])
def test_paths_are_no_addresses(path):
    addresses.refuse("--config.dataset.path", path)


@pytest.mark.parametrize("address", ["gs://bucket/a", "a.png,s3:/b", "hf://datasets/user/name"])
def test_addresses_are_refused(address):
    with pytest.raises(UserError, match="must be a path in a file system"):
        addresses.refuse("--config.dataset.path", address)
