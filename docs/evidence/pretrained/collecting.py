"""The numbers of settings whose runs are complete, as files that are committed."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pretrained import arms, progress, selection
from pretrained.arms import Chosen
from pretrained.design import Arm, Rule, Setting, Study
from pretrained.records import Records, packed
from train.foundation import files

FOLDER = Path(__file__).parent / "results"
# How far the study is, in that folder.
PROGRESS = "progress.json"


def is_complete(study: Study, records: Records, setting: Setting) -> bool:
    """Whether all runs of a setting have finished."""
    return not any(selection.pending(study, records, arm) for arm in study.arms_of(setting))


def write(study: Study, records: Records, labels: Path, folder: Path = FOLDER) -> Iterator[Path]:
    """Writes the file of each setting whose runs are complete, and how far the others are.

    A setting that has a file and no runs here stays as it is: its runs finished elsewhere.

    Args:
        study: the study.
        records: its runs.
        labels: the folder with the labels of the test examples.
        folder: the folder of the files.
    """
    folder.mkdir(exist_ok=True)
    for setting in study.settings:
        if is_complete(study, records, setting):
            path = folder / f"{setting.name}.json"
            of_test = np.load(label_file(labels, setting.data_set))
            content = files.to_json(collected(study, records, setting, of_test), indent=1)
            path.write_bytes(content + b"\n")
            yield path
    path = folder / PROGRESS
    path.write_bytes(files.to_json(_progress(study, records, folder), indent=1) + b"\n")
    yield path


def label_file(folder: Path, data_set: str) -> Path:
    """Where a run leaves the labels of the test examples."""
    return folder / f"test_labels_{data_set}.npy"


def check_labels(study: Study, data_set: str, labels: np.ndarray, folder: Path = FOLDER) -> None:
    """Refuses test examples that are not those of the complete settings of a data set.

    The digest of the design does not cover the features, which every machine makes again.

    Raises:
        ValueError: they are others.
    """
    for setting in study.settings:
        path = folder / f"{setting.name}.json"
        if setting.data_set != data_set or not path.exists():
            continue
        plain = json.loads(path.read_text())
        if plain["design"] == study.digest and not np.array_equal(test_labels(plain), labels):
            raise ValueError(
                f"the features of {data_set} have other test labels than {path.name}: "
                f"{len(labels)} in place of {len(test_labels(plain))} examples, or another order"
            )


def collected(
    study: Study, records: Records, setting: Setting, labels: np.ndarray
) -> dict[str, Any]:
    """The numbers of a setting as plain JSON types."""
    used = [one.used for key, one in records.found.items() if key.setting == setting.name]
    main = arms.metrics(setting)[0]
    return {
        "setting": setting.name,
        "design": study.digest,
        "metric": main,
        "seeds": list(study.seeds),
        "labels": base64.b64encode(labels.astype("<i4").tobytes()).decode(),
        "arms": [_plain(one, main) for one in arms.of_setting(study, records, setting)],
        "searched": [
            _searched(study, records, arm, rule)
            for arm in study.arms_of(setting)
            for rule in setting.rules
        ],
        "runs": len(used),
        "used": {name: sum(one[name] for one in used) for name in used[0]},
    }


def read(plain: dict[str, Any], study: Study) -> list[Chosen]:
    """The selected candidates of a file.

    Raises:
        ValueError: the file is of another design.
    """
    if plain["design"] != study.digest:
        raise ValueError(f"{plain['setting']} is of another design, {plain['design']}")
    shape = len(plain["seeds"]), len(test_labels(plain))
    found = []
    for one in plain["arms"]:
        bits = np.frombuffer(base64.b64decode(one["hits"]), np.uint8)
        hits = np.unpackbits(bits, count=shape[0] * shape[1]).reshape(shape).astype(bool)
        found.append(Chosen(**{**one, "hits": {plain["metric"]: hits}}))
    return found


def test_labels(plain: dict[str, Any]) -> np.ndarray:
    """The labels of the test examples, [n]."""
    return np.frombuffer(base64.b64decode(plain["labels"]), "<i4")


def _progress(study: Study, records: Records, folder: Path) -> dict[str, Any]:
    settings = []
    for setting in study.settings:
        used = [one.used for key, one in records.found.items() if key.setting == setting.name]
        done, to_go = len(used), progress.of_setting(study, records, setting).to_go
        total = {name: sum(one[name] for one in used) for name in ("cpu_seconds", "flops")}
        path = folder / f"{setting.name}.json"
        if not used and path.exists():
            elsewhere = json.loads(path.read_text())
            done, to_go = elsewhere["runs"], 0
            total = {name: elsewhere["used"][name] for name in total}
        settings.append({"setting": setting.name, "done": done, "to_go": to_go, **total})
    return {"design": study.digest, "settings": settings}


def _searched(study: Study, records: Records, arm: Arm, rule: Rule) -> dict[str, Any]:
    """What a search saw: of each run its best validation accuracy."""
    return {
        "loss": arm.loss.name,
        "head": arm.head,
        "search": arm.search.name,
        "rule": rule,
        "candidates": selection.of_candidates(study, records, arm, rule),
        "finalists": {
            str(one): [
                selection.best(records.found[selection.key(arm, one, seed)], rule)
                for seed in arm.search.seeds
            ]
            for one in selection.finalists_of(study, records, arm, rule)
        },
    }


def _plain(one: Chosen, main: str) -> dict[str, Any]:
    return {
        "loss": one.loss,
        "head": one.head,
        "search": one.search,
        "rule": one.rule,
        "candidate": one.candidate,
        "parameters": one.parameters,
        "validation": one.validation,
        "accuracies": one.accuracies,
        "hits": packed(one.hits[main].ravel()),
    }
