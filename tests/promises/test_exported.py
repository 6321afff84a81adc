"""From a run to its use: predict, export, ONNX, serve and monitor say the same of one image."""

import base64
import io
import json
import pathlib
import shutil
import urllib.error
import urllib.request
from html.parser import HTMLParser

import jax.export
import numpy as np
import onnxruntime
import pytest
from PIL import Image

from tests import reference
from tests.promises import commands, recomputed

COVERAGE = 0.9
EVIL = "<script>alert(1)<!-- \"'&amp; -->"
FEW = 27


@pytest.fixture(scope="module")
def predicted(digits):
    """The lines of `train.predict` for the test images, in the order of the test split."""
    line = commands.line(
        "predict", workdir=digits.workdir, images=digits.photographs, coverage=COVERAGE
    )
    lines = [json.loads(one) for one in commands.ok(line).out.splitlines()]
    return sorted(lines, key=lambda line: pathlib.Path(line["path"]).name)


@pytest.fixture(scope="module")
def images(digits):
    return digits.dataset.test.rows(...)


def members(lines):
    """The sets as booleans [n, L]."""
    chosen = np.zeros((len(lines), 10), bool)
    for row, line in zip(chosen, lines, strict=True):
        row[[member["index"] for member in line["set"]]] = True
    return chosen


def check_probabilities(lines, probabilities):
    for line, of_image in zip(lines, probabilities, strict=True):
        found = [member["probability"] for member in line["set"]]
        assert found == sorted(found, reverse=True)
        expected = of_image[[member["index"] for member in line["set"]]]
        np.testing.assert_allclose(found, expected, rtol=2e-5)


def check_sets(found, expected, scores, limit):
    """Sets are the same, but for scores that are at their limit and are rounded otherwise."""
    at_limit = np.isclose(scores, limit, rtol=2e-5, atol=1e-7)
    np.testing.assert_array_equal(found | at_limit, expected | at_limit)


def test_sets_of_images_are_those_of_the_scores_of_the_test(predicted, scores):
    threshold = reference.conformal_threshold(
        scores["validation"]["scores"],
        scores["validation"]["labels"],
        error=recomputed.error_of(COVERAGE),
    )
    assert len(predicted) == len(scores["test"]["labels"])
    for line in predicted:
        assert line["size"] == len(line["set"])
        assert line["calibrated_on"]["examples"] == len(scores["validation"]["labels"])
        assert [one["class"] for one in line["set"]] == [str(one["index"]) for one in line["set"]]
    check_probabilities(predicted, scores["test"]["scores"])
    expected = scores["test"]["scores"] >= threshold
    check_sets(members(predicted), expected, scores["test"]["scores"], threshold)


def test_a_split_has_the_sets_of_its_images(predicted, digits, tmp_path):
    given = {"workdir": digits.workdir, "split": "test", "coverage": COVERAGE}
    page = tmp_path / "page.html"
    ended = commands.ok(commands.line("predict", out=tmp_path / "a.jsonl", html=page, **given))
    lines = [json.loads(one) for one in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == digits.dataset.test.places.tolist()
    assert [line["set"] for line in lines] == [line["set"] for line in predicted]
    # A few sets are also for people, with what the rule promises.
    for line, shown in zip(lines[:2], ended.out.splitlines(), strict=False):
        assert shown.split()[1:3] == [str(line["row"]), line["set"][0]["class"]]
    mean = np.mean([line["size"] for line in lines])
    assert f"{len(lines)} sets: {mean:.3g} classes on average" in ended.out
    assert "with a probability of at least 90%" in ended.out
    assert page.read_text().count("data:image/png") == len(lines)


def of_score(validation, test, score, quantiles):
    """The sets of a conformal rule, and its scores and limits."""
    of_labels = recomputed.hits_of(
        reference.conformal_scores(validation["scores"], **score), validation["labels"]
    )
    limit = quantiles(of_labels, validation["labels"])
    found = reference.conformal_scores(test["scores"], **score)
    return found <= limit, found, limit


def of_all(scores, _labels):
    return reference.conformal_quantile(scores, error=0.1)


def of_classes(scores, labels):
    return reference.class_conditional_quantiles(scores, labels, error=0.1, num_classes=10)


def of_risk(validation, test):
    """The sets that cost at most 0.2 on average, if all classes cost the same in all."""
    labels, counts = validation["labels"], validation["class_counts"]
    costs = counts.sum() / (10 * counts)
    of_labels = recomputed.hits_of(validation["scores"], labels)
    allowed = 0.2 * (len(labels) + 1) - costs.max()
    limit = max(
        one for one in of_labels if (costs[labels] * (of_labels < one)).sum() <= allowed + 1e-9
    )
    return test["scores"] >= limit, test["scores"], limit


RAPS = {"kind": "raps", "rank_penalty": 0.01, "unpenalized_ranks": 5}
RULES = {
    "top_k": ({"top_k": 3}, lambda _, test: (reference.top_k_set(test["scores"], k=3),)),
    "average_k": (
        {"average_k": 2.5},
        lambda validation, test: (
            test["scores"] >= (limit := reference.average_k_threshold(validation["scores"], k=2.5)),
            *(test["scores"], limit),
        ),
    ),
    "raps": (
        {"sets": "coverage=0.9, rule=raps"},
        lambda validation, test: of_score(validation, test, RAPS, of_all),
    ),
    "class_conditional": (
        {"sets": "coverage=0.9, rule=class_conditional"},
        lambda validation, test: of_score(validation, test, {"kind": "lac"}, of_classes),
    ),
    "costs": ({"sets": "risk=0.2, costs=macro"}, of_risk),
}


@pytest.mark.parametrize("rule", RULES)
def test_sets_of_a_rule_are_those_that_numpy_calibrates(digits, scores, rule):
    flags, expect = RULES[rule]
    folder = digits.photographs / "3"
    lines = commands.ok(commands.line("predict", workdir=digits.workdir, images=folder, **flags))
    found = [json.loads(line) for line in lines.out.splitlines()]
    expected, *limits = expect(scores["validation"], scores["test"])
    of_these = np.flatnonzero(scores["test"]["labels"] == 3)
    assert [int(pathlib.Path(line["path"]).stem) for line in found] == of_these.tolist()
    if limits:
        check_sets(members(found), expected[of_these], limits[0][of_these], limits[1])
    else:
        np.testing.assert_array_equal(members(found), expected[of_these])


@pytest.fixture(scope="module")
def program(digits):
    file = digits.folder / "program"
    commands.ok(commands.line("export", workdir=digits.workdir, coverage=COVERAGE, out=file))
    return file


@pytest.fixture(scope="module")
def limit(program):
    """The smallest probability of a class in a set, as the description of the program has it."""
    rule = json.loads(program.with_name("program.json").read_text())["rule"]
    assert (rule["rule"], rule["promised"]) == (f"coverage={COVERAGE}", COVERAGE)
    return rule["limits"]


def test_an_exported_program_has_the_sets_of_predict(program, predicted, images, limit):
    called = jax.export.deserialize(program.read_bytes())
    probabilities, chosen = called.call(images)
    check_probabilities(predicted, np.asarray(probabilities))
    check_sets(np.asarray(chosen), members(predicted), probabilities, limit)
    # Any number of images.
    np.testing.assert_array_equal(called.call(images[:1])[1], np.asarray(chosen)[:1])


def test_an_onnx_file_has_the_sets_of_predict(digits, predicted, images, limit):
    file = digits.folder / "program.onnx"
    flags = {"workdir": digits.workdir, "coverage": COVERAGE, "format": "onnx", "out": file}
    commands.ok(commands.line("export", **flags))
    session = onnxruntime.InferenceSession(file)
    probabilities, chosen = session.run(None, {"images": images})
    check_probabilities(predicted, probabilities)
    check_sets(chosen, members(predicted), probabilities, limit)


def test_a_server_answers_with_the_sets_of_predict(program, predicted, limit):
    few = predicted[:FEW]
    with commands.served(program=program) as url:
        with urllib.request.urlopen(f"{url}/health") as response:
            assert response.status == 200
        images = [pathlib.Path(line["path"]).read_bytes() for line in few]
        sets = asked(url, {"images": [base64.b64encode(one).decode() for one in images]})["sets"]
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked(url, {"images": ["no image"]})
        refused.value.close()
        assert 400 <= refused.value.code < 500
    for line, found in zip(few, sets, strict=True):
        assert found["rule"] == line["rule"]
        assert found["calibrated_on"] == line["calibrated_on"]
    check_sets(members(sets), members(few), 0.0, limit)


def asked(url, value):
    """What a server answers."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/predict", json.dumps(value).encode(), headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_a_program_is_evaluated_by_its_own_sets(digits, program, predicted):
    out = digits.folder / "of_program.json"
    line = commands.line("evaluate", weights=program, images=digits.photographs, out=out)
    commands.ok(line)
    report = json.loads(out.read_text())
    chosen, labels = members(predicted), digits.dataset.test.labels
    assert report["examples"] == len(labels)
    found = report["sets"][f"coverage={COVERAGE}"]
    assert found["coverage"] == pytest.approx(recomputed.hits_of(chosen, labels).mean(), rel=1e-6)
    assert found["set_size"] == pytest.approx(chosen.sum(axis=1).mean(), rel=1e-6)


class Page(HTMLParser):
    """The elements of a page, and its text outside scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._is_text = [], "", True
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._is_text = tag not in ("script", "style")

    def handle_endtag(self, tag):
        self._is_text = True

    def handle_data(self, data):
        self.text += data if self._is_text else ""


def test_a_page_shows_photographs_and_names_as_text(digits, images, tmp_path):
    (tmp_path / "classes.txt").write_text("\n".join([EVIL, *map(str, range(1, 10))]))
    evil = tmp_path / "photographs" / f"{EVIL.replace('/', '')}.png"
    evil.parent.mkdir()
    shutil.copy(next((digits.photographs / "0").iterdir()), evil)
    (evil.parent / "unreadable.png").write_text(EVIL)
    line = commands.line(
        "predict",
        workdir=digits.workdir,
        images=evil.parent,
        top_k=10,
        classes=tmp_path / "classes.txt",
        html=tmp_path / "page.html",
        out=tmp_path / "sets.jsonl",
    )
    # Of one image there is no set.
    assert commands.run(line).code == 1
    lines = (tmp_path / "sets.jsonl").read_text().splitlines()
    assert [sorted(json.loads(one)) for one in lines][1] == ["error", "path"]
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert not [name for _, attributes in page.elements for name in attributes if name[:2] == "on"]
    # The class, and the photograph.
    assert page.text.count(EVIL) >= 2
    (photograph,) = (attributes["src"] for tag, attributes in page.elements if tag == "img")
    content = base64.b64decode(photograph.removeprefix("data:image/png;base64,"))
    shown = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    np.testing.assert_array_equal(shown, np.asarray(Image.open(evil)))


@pytest.fixture(scope="module")
def outcomes(predicted, digits, run_seed):
    """Lines with the labels that were found, in a random order, and lines whose labels are not."""
    labels = digits.dataset.test.labels
    rng = np.random.default_rng(run_seed)
    kept = [
        {**predicted[index], "label": str(labels[index])} for index in rng.permutation(len(labels))
    ]
    shifted = [{**line, "label": str((int(line["label"]) + 1) % 10)} for line in kept[:FEW]]
    return kept, shifted


def test_a_monitor_alarms_when_the_promise_is_broken_and_not_before(digits, outcomes, tmp_path):
    kept, shifted = outcomes
    file = tmp_path / "outcomes.jsonl"
    line = commands.line(
        "monitor", workdir=digits.workdir, outcomes=file, state=tmp_path / "state.json"
    )

    def monitored(lines):
        file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        ended = commands.run(line)
        # What is printed are the numbers of the lines.
        counted, covered, *_ = ended.out.splitlines()
        sizes = [one["size"] for one in lines]
        hits = [one["label"] in {member["class"] for member in one["set"]} for one in lines]
        assert recomputed.numbers(counted)[0] == len(lines)
        assert f"{np.mean(sizes):.3g}" in counted
        low, high = reference.anytime_interval([np.sum(hits)], [len(hits)])
        for number in (np.mean(hits), low[0], high[0]):
            assert f"{number:.1%}" in covered
        return ended.code

    assert monitored(kept) == 0
    assert monitored(kept) == 0
    assert monitored([*kept, *shifted]) == 3
    # An alarm stays.
    assert monitored([*kept, *shifted, *kept]) == 3
