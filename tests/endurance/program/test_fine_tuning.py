"""The commands of docs/fine_tuning.md run in their order."""

import re
import shlex

import numpy as np
import pytest
import safetensors.numpy

from tests.parts.program.data import pictures
from tests.parts.program.forked import ROOT, start
from tests.parts.program.models.tiny import SMALL_RESNET, in_float32, random_variables
from train.classifiers import trained
from train.models import HEADS, MODELS
from train.models.classifier import Classifier
from train.models.weights.names import arrays_of

pytestmark = pytest.mark.usefixtures("standard_promotion")
PAGE = re.sub(
    "^## Many heads.*?(?=^## )",
    "",
    (ROOT / "docs" / "fine_tuning.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)
COMMANDS = [
    shlex.split(command.replace("\\\n", ""))
    for command in re.findall(
        r"^    (python -m train\.main (?:.*\\\n)*.*)$", PAGE, flags=re.MULTILINE
    )
]
SMALL = (
    "--config.num_epochs=1",
    "--config.optimizer.warmup_epochs=0.5",
    "--config.dataset.batch_size=8",
    "--config.dataset.image_size=16",
)


def test_the_commands_of_the_page_run_in_their_order(rng, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS, "resnet50", SMALL_RESNET)
    classes = ("ash", "birch", "cedar", "dogwood", "elm", "fir")
    pictures.write_classes(tmp_path / "photos", classes, 5, size=(16, 16))
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    model = Classifier(SMALL_RESNET.build(axis_name=None), HEADS["linear"](1000))
    variables = in_float32(random_variables(rng, model))
    arrays = arrays_of(variables["params"], variables["batch_stats"], SMALL_RESNET.names)
    safetensors.numpy.save_file(arrays, tmp_path / "resnet50.pth")
    printed = []
    for python, option, module, *arguments in COMMANDS:
        assert (python, option, module) == ("python", "-m", "train.main")
        done = start("tests.parts.program.small_resnets", *arguments, *SMALL, folder=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        printed.append(done.stdout)
    assert len(printed) == PAGE.count("python -m train.main") == 5
    for text in printed[:3]:
        assert "its head starts from random weights: the file's is for 1000 classes, not 6" in text
    assert "the weights of the run in runs/frozen, its head too\n" in printed[3]
    assert (
        "runs/both, but its head starts from random weights: config.model.new_head asks for it"
        in printed[4]
    )
    found = {name: trained.load(tmp_path / "runs" / name).params for name in ("frozen", "both")}
    kernel = variables["params"]["features"]["layer1_0"]["conv1"]["kernel"]
    kept, moved = (found[name]["features"]["layer1_0"]["conv1"]["kernel"] for name in found)
    np.testing.assert_array_equal(kept, kernel)
    assert not np.array_equal(moved, kernel)
