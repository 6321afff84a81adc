"""A classifier has one report, wherever its scores come from."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import sklearn.datasets
from PIL import Image

from tests.parts.program.data import pictures
from tests.parts.program.forked import start_each
from tests.parts.program.prediction import small_network

DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
SMALL = "tests.parts.program.prediction.small_published"
EACH = 40
SETS = (
    *("--sets=coverage=0.8", "--sets=coverage=0.8, rule=aps", "--sets=risk=0.3, costs=missed"),
    *("--top_k=1", "--average_k=1.5", "--sets=utility=u65", "--calibration=half"),
)


def run(command, *starts):
    environment = {**DEVICES, "COMMAND": f"train.{command}"}
    for one in start_each(SMALL, starts, environment):
        assert one.returncode == 0, one


@pytest.fixture(scope="module")
def folder(finished_run, tmp_path_factory):
    """A run on digits; weights; a run on features of these weights; and images for all."""
    folder = tmp_path_factory.mktemp("one_report")
    shutil.copytree(finished_run, folder / "digits")
    digits = sklearn.datasets.load_digits()
    for index in range(4 * EACH):
        file = folder / "numbers" / str(digits.target[index]) / f"{index:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[index] * 15).astype(np.uint8)).save(file)
    pictures.write_classes(folder / "photographs", ("china", "flower"), EACH, size=(48, 48))
    (folder / "names.txt").write_text("flower\nchina\n")
    safetensors.numpy.save_file(small_network.weights(2)[1], folder / "weights.safetensors")
    weights = f"--weights={folder}/weights.safetensors"
    photographs = f"--images={folder}/photographs"
    run("embed", [weights, "--image_size=32", photographs, f"--out={folder}/rows.npz"])
    run(
        "main",
        [
            *("--config=configs/features.py", "--config.num_epochs=2", "--config.eval.ks=(1,)"),
            *(f"--config.dataset.path={folder}/rows.npz", f"--workdir={folder}/head"),
            *("--config.dataset.batch_size=24", "--config.select_by=top_1_accuracy"),
        ],
    )
    return folder


def test_of_whatever_the_scores_come_from(folder):
    weights = f"--weights={folder}/weights.safetensors"
    numbers, photographs = (f"--images={folder}/{name}" for name in ("numbers", "photographs"))
    classifiers = {
        "run": ([f"--workdir={folder}/digits"], numbers),
        "weights": ([weights, f"--classes={folder}/names.txt", "--image_size=32"], photographs),
        "joined": ([f"--workdir={folder}/head", weights], photographs),
    }
    run(
        "export",
        *(
            [*given, "--top_k=1", f"--out={folder}/{name}.program"]
            for name, (given, _) in classifiers.items()
        ),
    )
    sources = {(name, "itself"): [*given, images] for name, (given, images) in classifiers.items()}
    sources |= {
        (name, "program"): [f"--weights={folder}/{name}.program", images]
        for name, (_, images) in classifiers.items()
    }
    sources["joined", "rows"] = [f"--workdir={folder}/head", f"--features={folder}/rows.npz"]
    sources |= {(name, "scores"): [f"--scores={folder}/{name}.npz"] for name in classifiers}
    run(
        "evaluate",
        *(
            [*given, images, "--top_k=1", f"--out={folder}/all.json", f"--out={folder}/{name}.npz"]
            for name, (given, images) in classifiers.items()
        ),
    )
    outs = {pair: folder / "-".join([*pair, "report.json"]) for pair in sources}
    run("evaluate", *([*given, *SETS, f"--out={outs[one]}"] for one, given in sources.items()))
    for name, source in sources:
        first, other = (json.loads((outs[name, one]).read_text()) for one in ("itself", source))
        assert len(first["sets"]) == 6
        assert first["examples"] == first["calibrated_on"]["examples"]
        if source != "program":
            # A program does not know the loss that it was trained with.
            assert other["loss"] == pytest.approx(first["loss"], rel=1e-4)
        assert_same(first, other)


def assert_same(first, other):
    # Programs of other compilations: one example may be on the other side of a limit.
    one = 1.5 / first["examples"]
    assert (other["examples"], other["classes"]) == (first["examples"], first["classes"])
    assert other["sets"].keys() == first["sets"].keys()
    for text, row in first["sets"].items():
        found = other["sets"][text]
        for name in ("coverage", "set_size"):
            assert found[name] == pytest.approx(row[name], abs=one), text
        assert found.get("promised") == row.get("promised")
        assert found.get("limit", 1) == pytest.approx(row.get("limit", 1), rel=1e-3), text
