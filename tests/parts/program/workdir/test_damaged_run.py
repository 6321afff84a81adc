"""Every JSON file of a run, damaged in every way: a value that can be used, or one line."""

import json
import random

import pytest

from train.data.classes import Classes
from train.foundation.errors import UserError
from train.workdir import run_files
from train.workdir.runs import Run

CONFIG = {
    "seed": 1,
    "num_epochs": 2,
    "select_by": "loss",
    "dataset": {"name": "digits", "batch_size": 64},
    "model": {"name": "mlp"},
    "loss": {"name": "focal", "k": 1, "gamma": 2.0},
    "optimizer": {"learning_rate": 0.1, "decay_epochs": [15]},
    "eval": {"ks": [1, 3]},
}
METRICS = {"loss": 0.5, "top_1_accuracy": 0.75, "few_top_1_accuracy": None}
CONTENTS = {
    "config.json": CONFIG,
    "results.json": {
        "config": CONFIG,
        "best_epoch": 1,
        "num_classes": 2,
        "epoch_seconds": [1.5, 0.5],
        "temperature": 1.5,
        "test": METRICS,
        "validation": METRICS,
    },
    "classes.json": [{"name": "é", "training_images": 3}, {"name": "b", "training_images": 0}],
    "data.json": {"image_shape": [8, 8, 1], "digest": "ab", "mean": [0.5], "std": [0.25]},
}


def of_classes(workdir):
    return run_files.read_facts(workdir, Classes(("a", "b"), (1, 1)), None)


READERS = {
    "config.json": run_files.read_config,
    "results.json": lambda workdir: (
        run_files.read_results(workdir) or refuse(run_files.why_no_results(workdir))
    ),
    "classes.json": run_files.read_classes,
    "data.json": of_classes,
}
WRONG: tuple[object, ...] = (
    None,
    "text",
    "3",
    [],
    {},
    [1],
    True,
    -1,
    1e308,
    10**400,
    {"a": {"b": 1}},
)


def refuse(message):
    raise UserError(message)


def places(value):
    """Every (object, name) and (list, index) in a JSON value."""
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield value, name
            yield from places(value[name])


def damages(value, draw):
    text = json.dumps(value).encode()
    yield from (b"", b"null", b"[1]", b'"text"', b"12", b"{}", b"[{}]", text[: len(text) // 2])
    yield from (b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900, draw.randbytes(300))
    for index, wrong in enumerate(WRONG * 10):
        copy = json.loads(text)
        of, name = draw.choice(list(places(copy)))
        if index % 5 == 0 and isinstance(of, dict):
            del of[name]
        else:
            of[name] = wrong
        yield json.dumps(copy).encode()
    for _ in range(60):
        changed = bytearray(text)
        changed[draw.randrange(len(text))] = draw.randrange(256)
        yield bytes(changed)


@pytest.mark.parametrize("name", CONTENTS)
def test_a_damaged_file_is_one_line_or_of_the_same_shape(tmp_path, name):
    path, draw = tmp_path / name, random.Random(name)
    path.write_text(json.dumps(CONTENTS[name]))
    whole = repr(READERS[name](tmp_path))
    told = []
    for content in damages(CONTENTS[name], draw):
        path.write_bytes(content)
        try:
            found = READERS[name](tmp_path)
        except UserError as error:
            told.append(str(error))
        else:
            if name in ("config.json", "results.json"):
                run = Run.read(tmp_path)
                assert isinstance(run.key, str)
                assert hash((run.fields.get("seed"), run.fields.get("loss.name"))) is not None
            repr(found).encode()
    assert len(told) > 20
    for message in told:
        assert message.startswith(f"{path} is not ")
        assert message.isprintable()
    path.write_text(json.dumps(CONTENTS[name]))
    assert repr(READERS[name](tmp_path)) == whole


def test_results_of_another_configuration_are_told(tmp_path):
    for name in ("config.json", "results.json"):
        (tmp_path / name).write_text(json.dumps(CONTENTS[name]))
    assert Run.read(tmp_path).is_finished
    # The folder of the data does not belong to the identity of a run.
    moved = {**CONFIG, "dataset": {**CONFIG["dataset"], "data_dir": "elsewhere"}}
    (tmp_path / "config.json").write_text(json.dumps(moved))
    assert Run.read(tmp_path).is_finished
    other = {**CONFIG, "loss": {**CONFIG["loss"], "gamma": 3.0}}
    (tmp_path / "config.json").write_text(json.dumps(other))
    message = (
        r"not of one run, because they differ in loss\.gamma: 3\.0 -> 2\.0: one of them was ch"
    )
    with pytest.raises(UserError, match=message):
        _ = Run.read(tmp_path).is_finished
