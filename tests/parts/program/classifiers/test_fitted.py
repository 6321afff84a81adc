"""A run keeps the rules that are fitted for it, and a file of rules has the same form."""

import dataclasses
import shutil

import numpy as np
import pytest

from train.classifiers import fitted, trained
from train.foundation import files
from train.foundation.errors import UserError
from train.reports import rules

TEXTS = ("coverage=0.9", "average_k=2.5", "coverage=0.8, rule=class_conditional")


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def fit(run, text, **given):
    return fitted.find(trained.load(run, **given), rules.parse(text))


def test_what_was_fitted_needs_no_data_and_no_second_fit(run, monkeypatch):
    made = {text: fit(run, text).to_json() for text in TEXTS}
    monkeypatch.setattr(trained.TrainedClassifier, "load_dataset", lambda _: pytest.fail("read"))
    assert {text: fit(run, text).to_json() for text in TEXTS} == made


def test_with_another_taxonomy_it_is_fitted_again(run, tmp_path):
    made_for = []
    for half in (3, 7):
        table = tmp_path / f"{half}.csv"
        lines = [f"{digit},{'low' if digit < half else 'high'}" for digit in range(10)]
        table.write_text("\n".join(["label,half", *lines]))
        for _ in range(2):
            found = fit(run, "coverage=0.9, rule=taxonomic", taxonomy=str(table))
            made_for.append(found.to_json()["made_for"])
    assert made_for[0] == made_for[1] != made_for[2] == made_for[3]
    with pytest.raises(UserError, match="taxonomy"):
        fit(run, "coverage=0.9, rule=taxonomic")


def test_a_file_of_rules_is_read_for_the_same_classifier_only(run, tmp_path):
    classifier = trained.load(run)
    path = tmp_path / "rules.json"
    made = {text: fitted.find(classifier, rules.parse(text)) for text in TEXTS}
    fitted.write(path, classifier, made)
    found = fitted.read(path, trained.load(run))
    values = classifier.split("test").values
    assert [*found] == [*made]
    for rule, other in zip(found.values(), made.values(), strict=True):
        assert rule.to_json() == other.to_json()
        np.testing.assert_array_equal(rule.answer(values).members, other.answer(values).members)
    # The rules of the workdir are in such a file, too.
    assert str(fitted.find(classifier, rules.parse(TEXTS[0]), run / "sets.json")) == TEXTS[0]
    with pytest.raises(UserError, match=r"--calibration .* has no coverage=0.7; it has coverage"):
        fitted.find(classifier, rules.parse("coverage=0.7"), path)
    other = dataclasses.replace(classifier, shown=tuple("abcdefghij"))
    assert len(fitted.read(path, other)) == len(TEXTS)
    for name in ("parameters", "classes"):
        content = files.read_checked(path, "a file")
        content[name] = "another"
        (tmp_path / "other.json").write_bytes(files.to_json(files.with_checksum(content)))
        with pytest.raises(UserError, match=r"--calibration: .* is for another classifier"):
            fitted.read(tmp_path / "other.json", classifier)
    with pytest.raises(UserError, match=r"--calibration .* cannot be read: No such file"):
        fitted.read(tmp_path / "none.json", classifier)
