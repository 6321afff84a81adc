"""The flags of a classifier: what is missing or does not go together is told in one line."""

import dataclasses
import shutil

import pytest

from train.classifiers import loading
from train.classifiers.flags import ChosenClassifier
from train.foundation.errors import UserError

RUN, FILE = {"workdir": "run"}, {"weights": "file"}
MISTAKES = [
    ({}, "one of --workdir and --weights is needed"),
    ({"workdir": ""}, "--workdir must be"),
    (FILE, "--weights needs --dataset, --classes or --workdir"),
    ({**RUN, "dataset": "digits"}, "cannot be given with --workdir"),
    (
        {**FILE, "dataset": "digits", "classes": "names.txt"},
        "cannot be given with --classes",
    ),
    ({**RUN, "model": "resnet50"}, "--model needs --weights"),
    ({**RUN, "normalization": "clip"}, "--normalization needs --weights"),
    ({**RUN, "image_size": 8}, "--image_size needs --weights"),
    ({**FILE, "dataset": "digits", "image_size": 8}, "a data set has its own size of images"),
    ({**FILE, "classes": "names.txt", "data": "here"}, "--data needs --workdir or --dataset"),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_flags_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(UserError, match=message) as raised:
        ChosenClassifier(**given).check()
    assert "\n" not in str(raised.value)


def test_a_file_with_the_description_of_a_program_is_a_program(tmp_path):
    (tmp_path / "p.json").touch()
    given = ChosenClassifier(weights=str(tmp_path / "p"))
    given.check(calibration=None)
    assert given.is_program
    for flag in ("workdir", "classes", "model", "dataset", "normalization"):
        with pytest.raises(UserError, match=f"--{flag} must be left out: .* is a program"):
            dataclasses.replace(given, **{flag: "x"}).check()
    with pytest.raises(UserError, match="--calibration must be left out"):
        given.check(calibration="limits.json")


def test_a_run_shows_other_names(finished_run, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\r\n".join("abcdefghij"))
    run = shutil.copytree(finished_run, tmp_path / "run")
    found = loading.load(ChosenClassifier(workdir=str(run), classes=str(names)))
    assert found.classes.names == tuple("abcdefghij")
    assert found.split("test").classes == found.classes
    names.write_text("a\nb")
    with pytest.raises(UserError, match=r"a line for each of the 10 classes; .* has 2"):
        loading.load(ChosenClassifier(workdir=str(run), classes=str(names)))
    with pytest.raises(UserError, match="--weights goes with the --workdir of a run on features"):
        loading.load(ChosenClassifier(workdir=str(run), weights="file"))
