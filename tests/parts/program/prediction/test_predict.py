"""From image files and rows to sets: by themselves or as observations, and what lines say."""

import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from tests.parts.program.forked import check_mistakes
from tests.parts.program.prediction.made import NAMES, Fake
from topk_jax import rules as library
from train.foundation.errors import UserError
from train.prediction import inputs, outputs, predicting, set_page
from train.prediction.entries import Entry, to_line
from train.reports import rules

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
PLANTS = r"(plant\d+)_"


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder with photographs of plants in several places of the order, some by themselves."""
    folder, pixels = tmp_path_factory.mktemp("photographs"), {}
    rng = np.random.default_rng(3)
    for index in range(150):
        name = f"{index:03}.png" if index % 10 == 0 else f"{index:03}_plant{index % 31}_.png"
        pixels[str(folder / name)] = rng.integers(0, 256, (8, 8), np.uint8)
        Image.fromarray(pixels[str(folder / name)]).save(folder / name)
    return folder, pixels


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(4)
    path = tmp_path_factory.mktemp("rows") / "rows.npz"
    names = np.array([f"plant{index % 37}_{index}" for index in range(150)])
    pots = np.array([f"pot {index % 29}" if index % 7 else "" for index in range(150)])
    np.savez(path, features=rng.normal(size=(150, 3)).astype(np.float16), names=names, pot=pots)
    return path


def fitted(text):
    """A rule with classes, and with limits if it needs some: made up by hand."""
    rule = rules.parse(text)
    limits = 0.3 if rule.needs_limits else None
    on = library.CalibratedOn(99, 66.0, "made up") if rule.needs_limits else None
    own = dataclasses.replace(
        rule.rule,
        limits=None if limits is None else np.float32(limits),
        calibrated_on=on,
        taxonomy=Fake.classes.tree.taxonomy if rule.rule.has_names else None,
    )
    return dataclasses.replace(rule, rule=own, classes=Fake.classes)


def lines_of(classifier, text, examples, **how):
    rule = fitted(text)
    found = predicting.predict(classifier, rule, examples, **{"thumbnails": False} | how)
    return [json.loads(json.dumps(to_line(entry, rule, NAMES))) for entry in found]


POOLS = {"log_probabilities": stats.gmean, "probabilities": np.mean, "maximum": np.max}


def combined(rows, by):
    """The probabilities of an observation."""
    found = POOLS[by](rows, axis=0)
    return found / found.sum()


def of_images(folder, classifier, grammar=None, features=None):
    named = [] if features is not None else [str(folder)]
    return inputs.fit_for(inputs.find(named, features, grammar), classifier, features)


@pytest.mark.parametrize("grammar", [None, PLANTS])
@pytest.mark.parametrize("by", POOLS)
@pytest.mark.parametrize("kind", ["images", "features"])
def test_sets_are_those_of_the_probabilities(photographs, rows, kind, grammar, by):
    classifier = Fake(kind)
    folder, pixels = photographs
    if kind == "images":
        examples, given = of_images(folder, classifier, grammar), [*pixels.values()]
        origins = [{"path": path} for path in pixels]
        found = (re.search(PLANTS, path) for path in pixels)
        groups = ["" if one is None else one[1] for one in found]
    else:
        examples = of_images(None, classifier, grammar, rows)
        with np.load(rows) as arrays:
            given, names = [*arrays["features"]], arrays["names"].tolist()
        origins = [{"row": row, "name": name} for row, name in enumerate(names)]
        groups = [name.split("_")[0] for name in names]
    probabilities = classifier.probabilities(given)
    members = {}
    for index, group in enumerate(groups):
        alone = grammar is None or not group
        members.setdefault(index if alone else group, []).append(index)
    text = "coverage=0.9" + (f", combine={by}" if grammar else "")
    found = lines_of(classifier, text, examples)
    assert len(found) == len(members)
    for line, (group, indices) in zip(found, members.items(), strict=True):
        of = [origins[index] for index in indices]
        name = group if isinstance(group, str) else None
        origin = of[0] if grammar is None else {"group": name, "examples": of}
        row = combined(probabilities[indices], by) if grammar else probabilities[indices[0]]
        chosen = [one for one in np.argsort(-row).tolist() if row[one] >= 0.3]
        # Nothing is as near to the limit as the rounding of 32 bits.
        assert np.abs(row - 0.3).min() > 1e-5
        chances = [member.pop("probability") for member in line["set"]]
        np.testing.assert_allclose(chances, row[chosen], rtol=1e-4)
        assert line == {
            **origin,
            "set": [{"class": NAMES[one], "index": one} for one in chosen],
            "size": len(chosen),
            "rule": text,
            "calibrated_on": {"examples": 99, "groups": 66},
        }
        assert isinstance(line["calibrated_on"]["groups"], int)
    # It is traced, and so compiled, once.
    assert len(classifier.traced) == 1


def test_names_are_in_lines(rows):
    classifier = Fake("features")
    examples = of_images(None, classifier, None, rows)
    for line in lines_of(classifier, "top_k=1, max_names=1", examples)[:20]:
        (name,), (member,) = line["names"], line["set"]
        assert (line["name"], name["name"]) == (
            f"plant{line['row'] % 37}_{line['row']}",
            member["class"],
        )
        assert name["probability"] == pytest.approx(member["probability"])
        assert "calibrated_on" not in line


def test_photographs_that_cannot_be_read_are_named_and_the_others_used(
    photographs, tmp_path, capsys
):
    first = next(path for path in photographs[1] if "plant1_" in path)
    bad, lost = tmp_path / "x_plant1_9 <b>.png", tmp_path / "y_plant2_.png"
    for path in (bad, lost):
        path.write_text("no image")
    classifier, rule = Fake(), fitted("top_k=2, combine=log_probabilities")
    examples = inputs.fit_for(
        inputs.find([first, str(bad), str(lost)], None, PLANTS), classifier, None
    )
    found = [*predicting.predict(classifier, rule, examples, thumbnails=True)]
    out, shown = tmp_path / "out.jsonl", []

    def line_of(entry):
        return to_line(entry, rule, NAMES)

    facts = set_page.PageFacts(rule, NAMES, NAMES, "image", {})
    number = outputs.write(iter(found), line_of, out, shown.extend, total=3, facts=facts)
    assert (number, shown) == (2, found)
    assert capsys.readouterr().err.splitlines()[-1] == "2 of 3 images could not be read"
    plant, ash = map(json.loads, out.read_text().splitlines())
    assert (plant["group"], plant["examples"]) == ("plant1", [{"path": first}])
    assert plant["unreadable"] == [{"path": str(bad), "error": f"{bad} is not an image"}]
    assert ash == {"path": str(lost), "error": f"{lost} is not an image"}
    assert [(entry.title, len(entry.thumbnails)) for entry in found] == [
        ("plant1", 1),
        ("y_plant2_.png", 0),
    ]
    # The set is that of the photograph that can be read.
    alone = inputs.fit_for(inputs.find([first], None, PLANTS), classifier, None)
    (one,) = predicting.predict(classifier, rule, alone, thumbnails=False)
    assert (one.classes, one.thumbnails) == (found[0].classes, ())


def test_only_the_first_photographs_of_an_observation_have_thumbnails(photographs):
    classifier, rule = Fake(), fitted("top_k=1, combine=maximum")
    examples = of_images(photographs[0], classifier, "parent")
    (entry,) = predicting.predict(classifier, rule, examples, thumbnails=True)
    assert (len(entry.thumbnails), len(entry.origins)) == (24, 150)


def test_the_first_of_equally_likely_classes_comes_first():
    entry = Entry(probabilities=np.float32([0.1, 0.3, 0.1, 0.3, 0.2]))
    answer = library.Answer(np.array([True, True, True, True, False]))
    assert entry.answered(answer, None).classes == (1, 3, 0, 2)


def test_groups_are_those_of_an_array_or_in_the_names(rows):
    with np.load(rows) as arrays:
        pots = arrays["pot"].tolist()
    assert inputs.find([], rows, "pot").groups.tolist() == pots
    assert inputs.find([], rows, PLANTS).groups[:2].tolist() == ["plant0", "plant1"]
    # An array is not taken for groups unless it is asked for.
    assert inputs.find([], rows, None).groups is None
    for wrong in ("pots", "parent(", "near_duplicates"):
        with pytest.raises(UserError, match="--group"):
            inputs.find([], rows, wrong)


@pytest.mark.parametrize(
    ("text", "grouped", "message"),
    [
        ("top_k=1, combine=maximum", False, "needs --group"),
        ("coverage=0.9, new_score=energy", True, "excludes --group"),
    ],
)
def test_a_rule_that_does_not_go_with_the_examples_is_refused(text, grouped, message):
    with pytest.raises(UserError, match=message):
        predicting.fitted_rule(Fake(), rules.parse(text), grouped=grouped, calibration=None)


# The folder of the images stands for @, the run's for %; and what is named.
MISTAKES = {
    "--top_k=1 --out=@/1.png": "--out",
    "--top_k=1 --out=%/metrics.jsonl": "--out",
    "--sets=risk=0.1,costs=@/names.txt --out=@/names.txt": "--out",
    "--top_k=1 --html=@/1.png": "--html",
    "--coverage=0.9 --calibration=@/names.txt": "names.txt",
}


def test_a_mistake_is_one_line_and_replaces_no_file(finished_run, tmp_path):
    def contents():
        found = (one for folder in (tmp_path, finished_run) for one in folder.iterdir())
        return {file: file.read_bytes() for file in found if file.is_file()}

    Image.new("L", (8, 8)).save(tmp_path / "1.png")
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    before = contents()
    common = [f"--workdir={finished_run}", f"--images={tmp_path}/1.png"]
    mistakes = [
        (common + row.replace("@", str(tmp_path)).replace("%", str(finished_run)).split(), named)
        for row, named in MISTAKES.items()
    ]
    check_mistakes("train.predict", mistakes, ENVIRONMENT)
    assert contents() == before
