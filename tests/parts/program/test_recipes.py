"""Every recipe runs two epochs by the real commands, on archives in the published layouts."""

import json
import math

import pytest

from tests.parts.program.data import archives, prepared_pictures
from tests.parts.program.forked import start
from tests.rows import rows


def pictures(name, num_classes, **sizes):
    """Makes a data set as prepared by tfds: its own archives take TensorFlow (tests/peers)."""
    return lambda data: prepared_pictures.published(data, name, num_classes, sizes)


def plantnet(data):
    """Prepares the data set by the command, from an archive that is made for it."""
    archives.plantnet_zip(data.parent / "manual")
    folders = f"--manual_dir={data.parent / 'manual'}", f"--data_dir={data}"
    printed = command("train.prepare", "--dataset=plantnet300k", *folders)
    assert "1,081 classes; images: 1,081 train, 1,081 validation, 1,081 test" in printed


def command(module, *arguments):
    """Runs a command, on one device, and returns what it printed."""
    done = start(module, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


SPECIES = "num_classes=20 num_genera=4 num_train=2000 num_validation=500 num_test=1000"
CIFAR = pictures("cifar100", 100, train=300, test=100)
IMAGENET = pictures("imagenet2012", 1000, train=3000, validation=300)
STREAMED = "num_workers=0 batch_size"
# The fields of the data set that make a recipe affordable; what makes its archive; and what is then
# found: the classes, the loss, the K of its sets, the steps of an epoch.
RECIPES = {
    "cifar100": (
        ("batch_size=50 validation_size=100", CIFAR),
        (100, "noised_top_k_hinge", [1, 5], 4),
    ),
    "imagenet": (
        (f"{STREAMED}=500 validation_size=1000 train_per_class=1", IMAGENET),
        (1000, "noised_top_k_hinge", [1, 5], 2),
    ),
    "imagenet_lt": (
        (f"{STREAMED}=500", lambda data: archives.imagenet_lt(data / "imagenet_lt")),
        (1000, "imbalanced_noised_top_k_hinge", [1, 3, 5], 4),
    ),
    "plantnet300k": (
        (f"{STREAMED}=540", plantnet),
        (1081, "imbalanced_noised_top_k_hinge", [1, 3, 5, 10], 2),
    ),
    "plantnet300k_average_k": (
        (f"{STREAMED}=540", plantnet),
        (1081, "average_k", [2, 3, 5, 10], 2),
    ),
    "synthetic_species": (
        (f"batch_size=50 {SPECIES}", None),
        (20, "cross_entropy", [1, 3, 5], 40),
    ),
    "million_classes": (
        ("num_classes=1000 num_train=640", None),
        (1000, "cross_entropy", [1, 5, 20], 10),
    ),
}


@pytest.mark.parametrize(
    "recipe", rows(("cifar100",), [name for name in RECIPES if name != "cifar100"])
)
def test_a_recipe_runs_end_to_end(tmp_path, recipe, run_seed):
    (_, make), (*_, steps) = RECIPES[recipe]
    if make is not None:
        make(tmp_path / "data")
    train(recipe, tmp_path / "data", tmp_path / "run", run_seed, steps)


def train(recipe, data, workdir, seed, steps):
    """Two epochs of some steps, and a look at what every run leaves; returns its results."""
    (fields, _), (num_classes, loss, ks, _) = RECIPES[recipe]
    printed = command(
        "tests.parts.program.small_photographs",
        f"--config={recipe}",
        f"--workdir={workdir}",
        f"--config.dataset.data_dir={data}",
        f"--config.seed={seed}",
        "--config.num_epochs=2",
        "--config.model.name=mlp",
        *(f"--config.dataset.{field}" for field in fields.split()),
    )
    assert "epoch 2/2" in printed
    results = json.loads((workdir / "results.json").read_text())
    config = results["config"]
    assert (config["loss"]["name"], config["eval"]["ks"]) == (loss, ks)
    assert results["num_classes"] == num_classes
    for split in ("validation", "test"):
        found = results[split]
        assert math.isfinite(found["loss"])
        assert all(
            0 <= found[f"{rule}_{k}_accuracy"] <= 1 for rule in ("top", "average") for k in ks
        )
    # Calibrated on these examples: some threshold gives K classes a set on average, but for ties.
    for k in ks:
        assert results["validation"][f"average_{k}_set_size"] == pytest.approx(k, rel=0.05)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in lines if one["split"] == "validation"] == [steps, 2 * steps]
    assert all(math.isfinite(one["loss"]) for one in lines if one["split"] == "train")
    # The best classifier of a known law is not worse: four deviations of 1,000 examples.
    for name, best in results.get("bayes", {}).items():
        assert not name.startswith("top_") or results["test"][name] <= best + 4 * 0.04
    return results
