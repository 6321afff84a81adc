"""A run keeps the rules that are fitted for it, and a file of rules has the same form."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests import reference
from tests.parts.program.sealed import unsealed
from train.classifiers import fitted, trained
from train.foundation.errors import UserError
from train.reports import rules

TEXTS = ("coverage=0.9", "average_k=2.5", "coverage=0.8, rule=class_conditional")


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


def fit(run, text, **given):
    return fitted.fitted(trained.load(run, **given), rules.parse(text))


def test_limits_are_those_of_the_validation_examples(run):
    classifier = trained.load(run)
    validation = classifier.split("validation")
    expected = {
        "coverage=0.9": reference.conformal_threshold(
            validation.values, validation.labels, error=0.1
        ),
        "average_k=2.5": reference.average_k_threshold(validation.values, k=2.5),
    }
    for text, limit in expected.items():
        found = fitted.fitted(classifier, rules.parse(text))
        assert float(found.rule.limits) == pytest.approx(limit, rel=1e-6)
        assert found.calibrated_on.examples == len(validation)
    assert fit(run, "top_k=3").is_fitted
    with pytest.raises(UserError, match="top_k=11: top_k must be from 1 to 10"):
        fit(run, "top_k=11")


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


def test_commands_at_once_do_not_lose_what_others_keep(run):
    classifier = trained.load(run)
    classifier.split("validation")
    texts = [f"average_k={k}" for k in range(2, 8)]
    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(lambda text: fitted.fitted(classifier, rules.parse(text)), texts))
    assert unsealed(run / "sets.json")["rules"].keys() == {*texts}


def test_a_damaged_file_and_one_of_another_run_are_told(run, tmp_path):
    fit(run, "coverage=0.9")
    path = run / "sets.json"
    kept = unsealed(path)
    for text in (path.read_text().replace("0.9", "0.8"), "{", json.dumps({**kept, "classes": "x"})):
        path.write_text(text)
        with pytest.raises(UserError, match=r"sets.json is damaged \(.*\): delete it"):
            fit(run, "coverage=0.9")
    path.unlink()
    assert fit(run, "coverage=0.9").is_fitted


def test_a_file_of_rules_is_read_for_the_same_classifier_only(run, tmp_path):
    classifier = trained.load(run)
    path = tmp_path / "rules.json"
    made = {text: fitted.fitted(classifier, rules.parse(text)) for text in TEXTS}
    fitted.write(path, classifier, made)
    found = fitted.read(path, trained.load(run))
    assert {text: rule.to_json() for text, rule in found.items()} == {
        text: rule.to_json() for text, rule in made.items()
    }
    values = classifier.split("test").values
    for text, rule in found.items():
        answers = (one.answer(values).members for one in (rule, made[text]))
        np.testing.assert_array_equal(*answers)
    # The rules of the workdir are in such a file, too.
    assert str(fitted.find(classifier, rules.parse(TEXTS[0]), run / "sets.json")) == TEXTS[0]
    with pytest.raises(UserError, match=r"--calibration .* has no coverage=0.7; it has coverage"):
        fitted.find(classifier, rules.parse("coverage=0.7"), path)
    other = trained.load(run, names=lambda number: tuple("abcdefghij"[:number]))
    assert other.classes.names == tuple("abcdefghij")
    assert len(fitted.read(path, other)) == len(TEXTS)
    for name in ("parameters", "classes"):
        content = unsealed(path)
        content[name] = "another"
        (tmp_path / "other.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=r"--calibration .*: it is for another classifier"):
            fitted.read(tmp_path / "other.json", classifier)
    with pytest.raises(UserError, match=r"--calibration .* cannot be read: No such file"):
        fitted.read(tmp_path / "none.json", classifier)
