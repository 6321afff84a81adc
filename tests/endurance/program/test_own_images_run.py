"""Rows of the same name in tests/parts that take long."""

import pytest

from configs import folder
from tests.parts.program.data.own import pictures
from tests.parts.program.data.own.test_own_images_run import CLASSES, small
from train import experiment
from train.foundation.errors import UserError

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_of_which_no_image_can_be_read_is_told(tmp_path, split):
    for part in ("train", "val", "test"):
        pictures.write_classes(tmp_path / "photos" / part, CLASSES, 3)
    for file in (tmp_path / "photos" / split).rglob("*.png"):
        file.write_bytes(file.read_bytes()[:60])
    fields = {"dataset.skip_unreadable": True, "num_epochs": 1}
    config = small(folder, tmp_path / "photos", **fields)
    what = {"val": "validation"}.get(split, split)
    with pytest.raises(UserError, match=rf"none of the 18 {what} images of .*photos can be read"):
        experiment.run(config, tmp_path / "run")
