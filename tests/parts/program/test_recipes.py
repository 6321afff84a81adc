"""Every recipe runs two epochs by the real commands, on archives in the published layouts."""

import functools
import json
import math
from dataclasses import dataclass

import pytest

from tests.parts.program.data import archives, prepared_pictures
from tests.parts.program.forked import start
from tests.rows import rows


@dataclass(frozen=True)
class Affordable:
    """What makes a recipe affordable on two cores, and what is then to be found in its results."""

    overrides: tuple[str, ...]
    num_classes: int
    loss: str
    ks: tuple[int, ...]
    steps_per_epoch: int


# What the archives of the tests have: an image or a few of each class.
RECIPES = {
    "cifar100": Affordable(
        # 300 images; 200 are left for training.
        ("dataset.batch_size=50", "dataset.validation_size=100"),
        num_classes=100,
        loss="noised_balanced",
        ks=(1, 5),
        steps_per_epoch=4,
    ),
    "imagenet": Affordable(
        (
            "dataset.batch_size=500",
            "dataset.validation_size=1000",
            "dataset.train_per_class=1",
            "dataset.num_workers=0",
        ),
        num_classes=1000,
        loss="noised_balanced",
        ks=(1, 5),
        steps_per_epoch=2,
    ),
    "imagenet_lt": Affordable(
        ("dataset.batch_size=500", "dataset.num_workers=0"),
        num_classes=1000,
        loss="noised_imbalanced",
        ks=(1, 3, 5),
        steps_per_epoch=4,
    ),
    "plantnet300k": Affordable(
        ("dataset.batch_size=540", "dataset.num_workers=0"),
        num_classes=1081,
        loss="noised_imbalanced",
        ks=(1, 3, 5, 10),
        steps_per_epoch=2,
    ),
    "plantnet300k_average_k": Affordable(
        ("dataset.batch_size=540", "dataset.num_workers=0"),
        num_classes=1081,
        loss="average_k",
        ks=(2, 3, 5, 10),
        steps_per_epoch=2,
    ),
}
# One of images in memory, and one of photographs with the losses of a long tail.
QUICK = ("cifar100",)
NUM_TEST_SPECIES = 1000
SYNTHETIC_SPECIES = Affordable(
    (
        "dataset.batch_size=50",
        "dataset.num_classes=20",
        "dataset.num_genera=4",
        "dataset.num_train=2000",
        "dataset.num_validation=500",
        f"dataset.num_test={NUM_TEST_SPECIES}",
    ),
    num_classes=20,
    loss="cross_entropy",
    ks=(1, 3, 5),
    steps_per_epoch=40,
)

MILLION_CLASSES = Affordable(
    ("dataset.num_classes=1000", "dataset.num_train=640"),
    num_classes=1000,
    loss="cross_entropy",
    ks=(1, 5, 20),
    steps_per_epoch=10,
)


def command(module, *arguments):
    """Runs a command, on one device, and returns what it printed."""
    done = start(module, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(recipe, affordable, data_dir, workdir, seed):
    """Two epochs of a recipe with its default loss, and the check of what every run leaves."""
    printed = command(
        "tests.parts.program.small_photographs",
        f"--config=configs/{recipe}.py",
        f"--workdir={workdir}",
        f"--config.dataset.data_dir={data_dir}",
        f"--config.seed={seed}",
        "--config.num_epochs=2",
        "--config.model.name=mlp",
        *(f"--config.{override}" for override in affordable.overrides),
    )
    assert "epoch 2/2" in printed
    results = json.loads((workdir / "results.json").read_text())
    config = results["config"]
    assert config["loss"]["name"] == affordable.loss
    assert tuple(config["eval"]["ks"]) == affordable.ks
    assert results["num_classes"] == affordable.num_classes
    assert results["best_epoch"] in (1, 2)
    assert len(results["epoch_seconds"]) == 2
    assert all(seconds > 0 for seconds in results["epoch_seconds"])
    for split in ("validation", "test"):
        metrics = results[split]
        assert math.isfinite(metrics["loss"])
        for k in affordable.ks:
            for rule in (f"top_{k}", f"average_{k}"):
                for average in ("", "macro_"):
                    assert 0 <= metrics[f"{average}{rule}_accuracy"] <= 1
    # Calibrated on these examples: some threshold gives K classes a set on average, but for ties.
    for k in affordable.ks:
        assert results["validation"][f"average_{k}_set_size"] == pytest.approx(k, rel=0.05)
    assert math.isfinite(results["validation"][config["select_by"]])
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["step"] for line in lines if line["split"] == "validation"]
    assert evaluated == [affordable.steps_per_epoch, 2 * affordable.steps_per_epoch]
    losses = [line["loss"] for line in lines if line["split"] == "train"]
    assert losses
    assert all(map(math.isfinite, losses))
    return results


def check_few_shot(results, ks):
    """No class has 20 training images, so that all classes are the few-shot ones."""
    for k in ks:
        for rule in (f"top_{k}_accuracy", f"average_{k}_accuracy"):
            # The same float32 values, added in another order.
            assert results["test"][f"few_{rule}"] == pytest.approx(results["test"][rule], rel=1e-6)
            assert results["test"][f"medium_{rule}"] is None
            assert results["test"][f"many_{rule}"] is None


def prepare(dataset, make_archive, folder, summary):
    """Prepares a data set by the command, from an archive that is made for it."""
    make_archive(folder / "manual")
    printed = command(
        "train.prepare",
        f"--dataset={dataset}",
        f"--manual_dir={folder / 'manual'}",
        f"--data_dir={folder / 'data'}",
    )
    assert f"{dataset}: {summary}" in printed


@pytest.fixture(scope="module")
def data_dir_of(tmp_path_factory):
    """The folder of the prepared data set by recipe; recipes share data sets."""

    @functools.cache
    def prepared(dataset):
        folder = tmp_path_factory.mktemp(dataset)
        match dataset:
            case "plantnet300k":
                summary = "1,081 classes; images: 1,081 train, 1,081 validation, 1,081 test"
                prepare(dataset, archives.plantnet_zip, folder, summary)
            case "imagenet_lt":
                archives.imagenet_lt(folder / "data" / "imagenet_lt")
            # To prepare these two from their archives takes TensorFlow: tests/peers/tensorflow.
            case "cifar100":
                sizes = {"train": 300, "test": 100}
                prepared_pictures.published(folder / "data", "cifar100", 100, sizes)
            case "imagenet":
                sizes = {"train": 3000, "validation": 300}
                prepared_pictures.published(folder / "data", "imagenet2012", 1000, sizes)
        return folder / "data"

    return lambda recipe: prepared(recipe.removesuffix("_average_k"))


@pytest.mark.parametrize(
    "recipe",
    rows(QUICK, [name for name in RECIPES if name not in QUICK]),
)
def test_a_recipe_runs_end_to_end(tmp_path, recipe, data_dir_of, run_seed):
    affordable = RECIPES[recipe]
    results = train(recipe, affordable, data_dir_of(recipe), tmp_path / "run", run_seed)
    check_few_shot(results, affordable.ks)
    assert "bayes" not in results


def test_a_million_classes_run_end_to_end(tmp_path, run_seed):
    """With fewer classes, on one device; `tests/endurance/test_mesh.py` has eight."""
    folders = tmp_path / "data", tmp_path / "run"
    results = train("million_classes", MILLION_CLASSES, *folders, run_seed)
    assert (results["config"]["parallel"], results["devices"]) == ("mesh", 1)
    # 20 of the classes are 14 % of the examples. The network has learnt more than which.
    assert results["test"]["top_20_accuracy"] > 0.3
    assert results["bayes"]["top_20_accuracy"] > 0.5


def test_synthetic_species_are_compared_with_the_best_classifier(tmp_path, run_seed):
    folders = tmp_path / "data", tmp_path / "run"
    results = train("synthetic_species", SYNTHETIC_SPECIES, *folders, run_seed)
    test, bayes = results["test"], results["bayes"]
    assert bayes.keys() == test.keys()
    for k in SYNTHETIC_SPECIES.ks:
        trained, best = (metrics[f"top_{k}_accuracy"] for metrics in (test, bayes))
        # The hits of the two differ only if one of them misses, which bounds the variance of
        # their difference; its mean is at most zero, and four deviations are one case in 30,000.
        deviation = math.sqrt(((1 - trained) + (1 - best)) / NUM_TEST_SPECIES)
        assert trained <= best + 4 * deviation
        # Uniform guessing hits one time in 20 / K; the network has learnt something.
        assert trained > k / SYNTHETIC_SPECIES.num_classes
