"""A mistake ends a command in one line that names the flag or the field, with exit code 2.

There is a row for each guard, on one of the commands that it stands before.
"""

import json
import shlex
import sys

import numpy as np
import pytest

from tests.promises import commands
from train.__main__ import COMMANDS
from train.foundation.flags import read_configuration

# Lines without `train.`, and what the message names.
ROWS = {
    # The command line.
    "audit --out=audit.csv": "--config",
    "evaluate --workdir=run --spilt=test": "'spilt'",
    "compare runs": "'runs'",
    "export --workdir=run --out=p --top_k=five": "top_k",
    "predict --workdir=run --images=gs://bucket/a.png --top_k=1": "--images",
    "plan --config=digits --device=v5e --largest=maybe": "--largest must be True or False",
    "main --config=digits --num_epochs=3": "fields are --config.FIELD=VALUE",
    "main --config=digits --config.model=linear": "there are model.depth",
    "prepare --dataset=plantnet300k --data_dir=text.npz": "--data_dir must be a folder",
    "predict --workdir=run --images=a.png --coverage=1.2": "--coverage must be a number above 0",
    "evaluate --scores=scores.npz --sets=coverage=0.9,new_score=energy": "--workdir or",
    "serve --program=model --port=70000": "--port",
    "export --workdir=run --top_k=1 --out=p --format=tflite": "--format",
    "audit --config=features --config.dataset.path=a.npz --out=a.csv --folds=1": "--folds",
    # A flag that is needed, alone, with another or instead of it.
    "monitor --workdir=run --outcomes=a.jsonl": "--state",
    "embed --images=photos --out=a.npz": "--weights",
    "predict --workdir=run --images=a.png --top_k=1 --coverage=0.9": "--sets",
    "export --workdir=run --out=program": "--sets",
    "prepare --data_dir=prepared": "--dataset",
    "evaluate --workdir=run --scores=scores.npz": "--scores",
    "evaluate --workdir=run --calibration=scores.npy": "--calibration",
    "evaluate --scores=scores.npz --images=photos": "--images",
    "evaluate --workdir=run --group=plant": "--group",
    "evaluate --scores=scores.npz --calibration_out=a.json": "--calibration_out",
    "predict --workdir=run --images=a.png --sets=top_k=1 --calibration=a.json --data=": "--data",
    "compare --runs=runs --jobs=2": "--jobs",
    "compare --table=4.4 --split=test": "--split",
    "main --config=digits --cluster --num_processes=2": "--num_processes",
    "main --config=digits --num_processes=2 --process_index=0": "needs --coordinator",
    "predict --workdir=run --images=a.png --top_k=1 --out=sets.jsonl --shard=3/4": "--out",
    "embed --weights=w --images=photos --out=a.npz --shard=0/4": "--shard",
    # Values.
    "evaluate --workdir=run --split=tset": "--split",
    "export --workdir=run --out=p --coverage=1": "--coverage must",
    "export --workdir=run --out=p --sets=coverage=0.9,rule=asp": "asp",
    "export --workdir=run --out=p --sets=top_k=1,combine=mean": "combine",
    "export --workdir=run --out=p --sets=top_k=1,new_score=energy": "new_score",
    "evaluate --scores=scores.npz --sets=best=1": "--sets=best=1",
    "evaluate --scores=scores.npz --sets=utility=u70": "utility",
    "evaluate --scores=scores.npz --sets=utility=1,1,1,1,1": "utility=1,1,1,1,1",
    "evaluate --scores=scores.npz --sets=top_k=9": "top_k=9",
    "evaluate --scores=scores.npz --coverage=0.999": "coverage=0.999",
    "evaluate --scores=scores.npz --sets=risk=0.001,costs=missed": "999 examples",
    "evaluate --scores=scores.npz --sets=risk=0.1,costs=text.npz": "costs=text.npz",
    "evaluate --scores=scores.npz --sets=pas=0.9": "rule=pas",
    "evaluate --scores=scores.npz --sets=coverage=0.9,max_names=1": "--taxonomy",
    "evaluate --scores=scores.npz --sets=coverage=0.9,combine=maximum": "groups",
    "monitor --workdir=run --outcomes=a.jsonl --state=s.json --delta=0": "--delta",
    "plan --config=digits --device=v9:2x2": "--device",
    "prepare --dataset=cifar": "--dataset",
    "prepare --dataset=images": "--dataset",
    "compare --runs=runs --metrics=top": "top",
    "compare --table=9.9": "--table",
    "compare --table=4.4 --seeds=0,x": "--seeds",
    "compare --figure=circles --out=a.png": "--figure",
    "compare --figure=level_sets --out=a.gif": "--out",
    "embed --weights=w --images=photos --out=a.npz --group=plant": "--group",
    # Files.
    "evaluate --scores=gone.npz": "gone.npz",
    "evaluate --scores=text.npz": "text.npz",
    "evaluate --scores=other.npz": "labels, and one of logits, probabilities and scores",
    "evaluate --scores=logits.npy": "an .npz file of scores; logits.npy",
    "evaluate --scores=nan.npz": "nan.npz",
    "evaluate --scores=labels.npz": "labels must be from 0 to 3",
    "evaluate --scores=named.npz --calibration=reordered.npz": "--calibration",
    "evaluate --scores=scores.npz --calibration=doubled.npz": "classes 0 and 3",
    "evaluate --scores=scores.npz --calibration=raw.npz": "must both be probabilities",
    "evaluate --scores=scores.npz --calibration=haf": "--calibration",
    "evaluate --scores=scores.npz --out=scores.npz": "--out",
    "evaluate --scores=scores.npz --out=a.gif": "--out",
    "evaluate --scores=scores.npz --out=a.json --out=a.json": "--out",
    "evaluate --scores=scores.npz --out=/proc/self/a.json": "--out",
    "evaluate --scores=scores.npz --out=photos": "--out",
    "evaluate --scores=scores.npz --out=nowhere/a.json": "--out",
    "predict --workdir=run --images=photos --top_k=1": "--images",
    "evaluate --workdir=gone": "--workdir",
    "export --workdir=unfinished --top_k=1 --out=program": "--workdir",
    "serve --program=text.npz": "--program",
    "compare --study=gone.toml": "--study",
    "compare --study=text.npz": "text.npz",
    "compare --runs=gone": "--runs",
    # The configuration.
    "main --config=gone.py": "gone.py",
    "main --config=text.npz": "--config",
    "main --config=digts": "--config must be the name of a recipe, digits (did",
    "main --config=digits:adaboost": "adaboost",
    "main --config=digits --config.los.name=focal": "config.loss.name",
    "main --config=digits --config.num_epochs=many": "config.num_epochs",
    "main --config=digits --config.model.name=mpl": "config.model.name",
    "main --config=digits --config.seed=-1": "config.seed",
    "main --config=digits:noised_top_k_hinge --config.loss.k=10": "config.loss.k",
    "main --config=digits --config.dataset.batch_size=63": "config.dataset.batch_size",
    "main --config=digits --config.select_by=top_2_accuracy": "config.select_by",
    "main --config=images": "config.dataset.path must be a folder of images, a table",
    "main --config=digits --config.model.start_from=gone": "config.model.start_from",
    "main --config=digits --workdir=text.npz": "--workdir",
    "main --config=digits --workdir=/dev/null/run": "--workdir",
    f"main --config=digits --config.seed={'9' * 5000}": "config.seed",
    "main --config=digits --config.model.freeze=True "
    "--config.optimizer.head_learning_rate=0.1": "config.optimizer.head_learning_rate",
    "audit --config=digits --out=audit.csv": "train.audit",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(30, 4)), rng.integers(0, 4, size=30)
    np.savez(folder / "scores.npz", logits=logits, labels=labels)
    # Names that are numbers, as those of classes without names.
    for name, classes in {"named": "0123", "reordered": "0132", "doubled": "0120"}.items():
        named = {"class_names": np.array([*classes])}
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels, **named)
    np.savez(folder / "raw.npz", scores=logits, labels=labels)
    np.savez(folder / "labels.npz", logits=logits, labels=labels + 1)
    np.savez(folder / "nan.npz", logits=np.where(logits > 2, np.nan, logits), labels=labels)
    np.savez(folder / "other.npz", other=logits, labels=labels)
    np.save(folder / "logits.npy", logits)
    (folder / "text.npz").write_text("text")
    (folder / "photos").mkdir()
    # What is looked at before it is opened.
    (folder / "run").mkdir()
    (folder / "w").touch()
    (folder / "unfinished").mkdir()
    begun = json.dumps(read_configuration("digits"))
    (folder / "unfinished" / "config.json").write_text(begun)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[:80])
def test_a_mistake_is_one_line_that_names_it(folder, monkeypatch, row):
    monkeypatch.chdir(folder)
    # A config is Python's to import, and so to compile.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sorted(folder.rglob("*"))
    ended = commands.run(f"train.{shlex.join(row.split())}")
    assert ended.code == 2, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert ROWS[row] in ended.err
    assert ended.out == ""
    assert sorted(folder.rglob("*")) == before


def test_there_is_a_row_for_every_command():
    assert {row.split()[0] for row in ROWS} == set(COMMANDS)
