"""The same small pictures as one's own data of five kinds, and short runs on such data."""

import csv
import dataclasses
import io
import json
import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image

from tests.promises import commands
from train import data
from train.data import splits

CLASSES = ("ash", "hêtre", "oak")
SPLITS = ("train", "validation", "test")
# What a folder, and a table or features, may call them.
OF_FOLDERS = {"train": "Training", "validation": "val_set", "test": "test"}
OF_ROWS = {"train": "train", "validation": "Dev", "test": "HOLDOUT", "": ""}


@dataclasses.dataclass(frozen=True)
class Examples:
    """Pictures in the order of their splits, and in each of their classes and names.

    Attributes:
        labels: their classes [n].
        pixels: uint8 [n, 8, 8, 3].
        names: the name of each, without an ending.
        splits: one of `SPLITS` for each, or an empty text if it is not given.
        groups: what each belongs to; an empty text for one that is alone.
    """

    labels: np.ndarray
    pixels: np.ndarray
    names: list[str]
    splits: list[str]
    groups: list[str]

    def of(self, split):
        """The indices of a split's examples."""
        return [index for index, one in enumerate(self.splits) if one == split]

    def path(self, index, form="NFC"):
        """The path of a picture in the folder."""
        folder = OF_FOLDERS[self.splits[index]] + "/" if self.splits[index] else ""
        name = unicodedata.normalize(form, CLASSES[self.labels[index]])
        return f"{folder}{name}/{self.names[index]}.png"

    def png(self, index):
        """The file of a picture."""
        file = io.BytesIO()
        Image.fromarray(self.pixels[index]).save(file, "PNG")
        return file.getvalue()


def draw(labels, names, splits, groups=None):
    """Pictures that are a little more of their class's colour than noise."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 200, (len(labels), 8, 8, 3))
    pixels[np.arange(len(labels)), :, :, labels] += 28
    groups = [""] * len(labels) if groups is None else groups
    return Examples(np.array(labels), pixels.astype(np.uint8), names, splits, groups)


def given():
    """Examples of given splits: 16, 8 and 8 of each class, of which two are the same picture."""
    each = {"train": 16, "validation": 8, "test": 8}
    rows = [
        (label, f"{number:02}", split)
        for split in SPLITS
        for label in range(len(CLASSES))
        for number in range(each[split])
    ]
    examples = draw(*map(list, zip(*rows, strict=True)))
    first, _, second, *_ = examples.of("test")[::4]
    # Their scores tie, and one of them has the other's label.
    examples.pixels[second] = examples.pixels[first]
    assert examples.labels[first] != examples.labels[second]
    return examples


def grouped():
    """20 examples of each class without splits: plants of one to four pictures, and single ones.

    Plant 0 has pictures of two classes.
    """
    rows = []
    for label in range(len(CLASSES)):
        plants = np.repeat(np.arange(8), (1, 2, 3, 4, 1, 2, 3, 4))
        for number, plant in enumerate(plants):
            is_alone = plant == 4
            shared = label < 2 and plant == 0
            group = "" if is_alone else f"plant{0 if shared else 1 + 8 * label + plant:02}"
            name = f"{group or 'alone'}_{number:02}"
            rows.append((label, name, "", group))
    return draw(*map(list, zip(*sorted(rows), strict=True)))


def in_folder(root, examples):
    """A folder of folders of classes, whose names are decomposed in the test split."""
    for index, split in enumerate(examples.splits):
        path = root / "photos" / examples.path(index, "NFD" if split == "test" else "NFC")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(examples.png(index))
    return {"name": "images", "path": root / "photos"}


def in_table(root, examples, column="group"):
    """A table of pictures elsewhere, some of them with absolute paths and spaced labels."""
    fields = in_folder(root / "elsewhere", examples)
    with (root / "photos.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("label", "path", "split", column, "mark"))
        # As a page of sets writes it of an image without a class.
        rows.writerow(("", "elsewhere/new.png", "", "", "cannot tell"))
        for index, (label, split, group) in enumerate(
            zip(examples.labels, examples.splits, examples.groups, strict=True)
        ):
            form = "NFD" if split == "test" else "NFC"
            folder = fields["path"] if index % 5 == 0 else "elsewhere/photos"
            name = CLASSES[label] + " " * (index % 2)
            path = f"{folder}/{examples.path(index, form)}"
            rows.writerow((name, path, OF_ROWS[split], group, ""))
    return {"name": "images", "path": root / "photos.csv"}


def features(examples):
    """The arrays of features, of which the labels are texts."""
    return {
        "features": (examples.pixels.reshape(len(examples.labels), -1) / 255).astype(np.float16),
        "labels": np.array(CLASSES)[examples.labels],
        "split": np.array([OF_ROWS[split] for split in examples.splits]),
        "group": np.array(examples.groups),
        "names": np.array([examples.path(index) for index in range(len(examples.labels))]),
    }


def in_features(root, examples):
    """An .npz file of features."""
    np.savez(root / "features.npz", **features(examples))
    return {"name": "features", "path": root / "features.npz"}


def in_prepared_files(root, examples):
    """Files of tensorflow-datasets, of a builder that it does not know afterwards."""
    import tensorflow_datasets as tfds  # noqa: PLC0415 (takes seconds)

    tfds.disable_progress_bar()
    kinds = {
        "image": tfds.features.Image(shape=(8, 8, 3), encoding_format="png"),
        "label": tfds.features.ClassLabel(names=list(CLASSES)),
    }

    def generate(split):
        for number, index in enumerate(examples.of(split)):
            file = io.BytesIO(examples.png(index))
            yield number, {"image": file, "label": int(examples.labels[index])}

    splits = {split or "train": split for split in dict.fromkeys(examples.splits)}
    members = {
        "VERSION": tfds.core.Version("1.0.0"),
        "_info": lambda self: tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(kinds), disable_shuffling=True
        ),
        "_split_generators": lambda _self, _manager: {
            name: generate(split) for name, split in splits.items()
        },
        "_generate_examples": None,
        "pkg_dir_path": None,
        "__module__": __name__,
    }
    with tfds.core.registered.skip_registration():
        builder = type("trees", (tfds.core.GeneratorBasedBuilder,), members)
        builder(data_dir=str(root), file_format="array_record").download_and_prepare()
    return {"name": "images", "path": "tfds:trees", "data_dir": root}


def in_parquet(root, examples):
    """Parquet files, one for each split that is given."""
    import datasets  # noqa: PLC0415 (takes seconds)

    datasets.disable_progress_bars()
    kinds = {
        "picture": datasets.Image(),
        "species": datasets.ClassLabel(names=list(CLASSES)),
        "group": datasets.Value("string"),
    }
    (root / "trees").mkdir()
    for split in dict.fromkeys(examples.splits):
        chosen = examples.of(split)
        columns = {
            "picture": [{"bytes": examples.png(index), "path": None} for index in chosen],
            "species": [int(examples.labels[index]) for index in chosen],
            "group": [examples.groups[index] for index in chosen],
        }
        made = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
        made.to_parquet(root / "trees" / f"{split or 'train'}.parquet")
    return {"name": "images", "path": f"hf:{root}/trees", "data_dir": root / "cache"}


OF_IMAGES = {
    "folder": in_folder,
    "table": in_table,
    "prepared files": in_prepared_files,
    "Parquet files": in_parquet,
}
KINDS = {**OF_IMAGES, "features": in_features}


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run, and what is evaluated of its test.

    Attributes:
        workdir: the run.
        results: what it wrote at its end.
        report: of `train.evaluate`.
        scores: the arrays that it wrote beside the report.
    """

    workdir: Path
    results: dict
    report: dict
    scores: dict


def line(where, workdir, *, loss="cross_entropy", **changes):
    """The command of a short run on the data of some fields of `config.dataset`."""
    fields = {
        **{f"dataset.{name}": value for name, value in where.items() if name != "name"},
        **({} if where["name"] == "features" else {"dataset.augmentation": "none"}),
        **{"dataset.batch_size": 16, "model.name": "linear", "num_epochs": 2},
        **{"optimizer.learning_rate": 0.05, "optimizer.warmup_epochs": 0},
        **{"eval.ks": (1, 2), "select_by": "top_1_accuracy"},
        **changes,
    }
    config = f"configs/{where['name']}.py:{loss}"
    return commands.line("main", config=config, workdir=workdir, fields=fields)


def train(where, workdir, **changes):
    """Trains a run, and evaluates it."""
    commands.ok(line(where, workdir, **changes))
    scores = evaluated(workdir, "test")
    report, results = (
        json.loads((workdir / f"{name}.json").read_text())
        for name in ("evaluation_test", "results")
    )
    return Run(workdir, results, report, scores)


def evaluated(workdir, split):
    """The scores of a split that `train.evaluate` writes beside its report."""
    out = workdir / f"{split}.npz"
    rules = {"top_k": [1, 2], "average_k": [1, 2], "coverage": [0.75, 0.9]}
    commands.ok(commands.line("evaluate", workdir=workdir, split=split, out=out, **rules))
    with np.load(out) as arrays:
        return dict(arrays)


def load(where, *, seed=0, **changes):
    """The opened data set of fields of `config.dataset`."""
    fields = {"batch_size": 1, **where, **changes}
    plain = {name: str(one) if isinstance(one, Path) else one for name, one in fields.items()}
    spec = data.read(plain)
    return splits.load(spec, spec.fields, seed=seed)


def counts(dataset):
    """The number of examples of each class in each split."""
    return [
        np.bincount(dataset.splits[split].labels, minlength=dataset.num_classes).tolist()
        for split in SPLITS
    ]
