r"""Classes that a classifier has not seen: how many of their examples are "none of these".

    python -m benchmarks.new_classes --repetitions=5 --folder=runs/new_classes \
        --output=benchmarks/results/new_classes-cpu.json

Every fifth class is held out of the digits; each repetition holds out others. A network is trained
without them, and evaluated on the test examples of all classes by every outlier score. Runs and
reports that are in the folder are not made again.
--features=FILE is for features of your own instead, with the arrays features and labels, as for
configs/features.py: every fifth class of them is held out.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import command, markdown
from benchmarks.held_out import FOLDS
from train import data
from train.classifiers import outliers

_COVERAGE = 0.9
_DIGITS, _FEATURES = "digits", "features"

# The columns of the tables: the key of their numbers, and how these are written.
_COLUMNS = {
    "AUROC": ("auroc", ".3f"),
    "OSCR": ("oscr_area", ".3f"),
    "known: label in set": ("known coverage", ".1%"),
    "new: none of these": ("unknown none_of_these", ".1%"),
}


def main() -> None:
    """Measures the data in each fold by each score."""
    made = command.parser(__doc__, repetitions=FOLDS, what="folds, of five", least=2)
    made.add_argument("--folder", type=Path, required=True, help="for the runs")
    made.add_argument("--features", type=Path, help="an .npz file with features and labels")
    made.add_argument("--max_error", type=float, default=0.05, help="of answers of one class")
    given = made.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    folds = [
        _measure(fold, given.folder, given.features, given.max_error)
        for fold in range(given.repetitions)
    ]
    written = {
        "asked": _COVERAGE,
        "max_error": given.max_error,
        "repetitions": given.repetitions,
        "data": {_DIGITS if given.features is None else _FEATURES: _summary(folds)},
    }
    command.write(written, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """A table for each data set, in Markdown; other numbers are in the results only."""
    header = ["score", *_COLUMNS]
    parts = [
        f"Means of {results['repetitions']} networks, each without another fifth of the classes, "
        f"for `coverage={results['asked']:g}`."
    ]
    for name, found in results["data"].items():
        rows = [
            [f"`{score}`", *(format(numbers[key][0], form) for key, form in _COLUMNS.values())]
            for score, numbers in found["scores"].items()
        ]
        errors = (
            format(max(numbers[key][1] for numbers in found["scores"].values()), form)
            for key, form in _COLUMNS.values()
        )
        sure = found["sure"]
        parts.append(
            f"{name}, {found['classes'][0]:.0f} known classes and {found['new examples'][0]:,.0f} "
            f"examples of others (standard errors of the columns: at most {', '.join(errors)}):"
            f"\n\n{markdown.table(header, rows)}\n\n"
            f"With `max_error={results['max_error']:g}`, {sure['answered'][0]:.1%} of the "
            f"examples of known classes are answered, {sure['error_of_answers'][0]:.2%} of these "
            f"answers are wrong, and {sure['answered_of_unknown_classes'][0]:.1%} of the examples "
            "of new classes are answered."
        )
    return "\n\n".join(parts)


def _measure(fold: int, folder: Path, features: Path | None, max_error: float) -> dict[str, Any]:
    """The reports of one fold."""
    workdir = folder / f"{_DIGITS if features is None else _FEATURES}_{fold}"
    recipe, new = _digits(fold, folder) if features is None else _rows(features, workdir, fold)
    if not (workdir / "results.json").exists():
        _run("train.main", f"--workdir={workdir}", *recipe)
    reports = {}
    asked = f"max_error={max_error}"
    for score in outliers.SCORES:
        out = workdir.with_name(f"{workdir.name}_{score}.json")
        if not out.exists():
            texts = (f"--sets={_says_new(score)}", f"--sets={asked}")
            _run("train.evaluate", f"--workdir={workdir}", new, *texts, f"--out={out}")
        reports[score] = json.loads(out.read_text())
    # The same for every score.
    any_report = reports[outliers.DEFAULT]
    sure = any_report["sets"][asked]
    return {
        "scores": {score: _numbers(one, _says_new(score)) for score, one in reports.items()},
        "sure": {
            **{name: sure[name] for name in ("answered", "error_of_answers")},
            # An answer is a set of one class.
            "answered_of_unknown_classes": sure["unknown"]["set_size"],
        },
        "classes": any_report["classes"],
        "new examples": any_report["unknown_classes"]["examples"],
    }


def _says_new(score: str) -> str:
    return f"coverage={_COVERAGE}, new_score={score}"


def _numbers(report: Mapping[str, Any], text: str) -> dict[str, float]:
    row, names = report["sets"][text], ("set_size", "none_of_these")
    return {
        **{name: report["none_of_these"][name] for name in ("auroc", "oscr_area")},
        **{f"known {name}": row[name] for name in ("coverage", *names)},
        **{f"unknown {name}": row["unknown"][name] for name in names},
    }


def _digits(fold: int, folder: Path) -> tuple[list[str], str]:
    """The flags of the run, and that of the test images of all classes."""
    images = folder / "test_digits"
    test = data.read({"name": "digits", "batch_size": 1}).load(None).test
    pixels = test.rows(np.arange(len(test)))[..., 0]
    for index, label in enumerate(test.labels):
        (images / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[index]).save(images / str(label) / f"{index}.png")
    data_set = f"--config.dataset.name=benchmarks.held_out:DIGITS_{fold}"
    return ["--config=configs/digits.py:cross_entropy", data_set], f"--images={images}"


def _rows(source: Path, workdir: Path, fold: int) -> tuple[list[str], str]:
    """The same for features: every fifth class is only in the test."""
    paths = [workdir.with_name(f"{workdir.name}_{part}.npz") for part in ("known", "new")]
    with np.load(source) as arrays:
        features, labels = arrays["features"], arrays["labels"]
    parts = np.random.default_rng(fold).permutation(len(labels)) % 5
    split = np.select([parts == 0, parts == 1], ["test", "val"], "train")
    for path, kept in zip(paths, (labels % FOLDS != fold, split == "test"), strict=True):
        # Texts, because numbers of classes that are left out would be others.
        texts = labels[kept].astype(str)
        np.savez(path, features=features[kept], labels=texts, split=split[kept])
    known, new = paths
    recipe = ["--config=configs/features.py", f"--config.dataset.path={known}"]
    return recipe, f"--features={new}"


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, capture_output=True)


def _summary(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of each number over the folds, and its standard error."""
    first = folds[0]
    return {
        name: _summary([fold[name] for fold in folds])
        if isinstance(value, Mapping)
        else _mean([fold[name] for fold in folds])
        for name, value in first.items()
    }


def _mean(values: Sequence[float]) -> list[float]:
    return [float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))]


if __name__ == "__main__":
    main()
