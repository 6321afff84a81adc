"""The results of the study on a pretrained network, computed a second time by other code.

`tests/reference/_pretrained_study.py` has the rules of the design in words of its own. The
committed files and the tables of the page are compared with it, and so are made-up files of all
settings.
"""

import base64
import copy
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.reference import _pretrained_study as reference

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
PAGE = EVIDENCE / "pretrained.md"
SETTINGS = {one["name"]: one for one in reference.plan()["settings"]}
# Classes of several sizes, so that a mean over classes is not one over examples.
LABELS = np.repeat(np.arange(30), np.arange(30) % 5 + 1).astype("<i4")


@pytest.fixture(scope="module")
def code():
    """The modules of the study that make its tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EVIDENCE)
        yield {name: importlib.import_module(f"pretrained.{name}") for name in ("design", "tables")}


def table(page, name):
    """The rows of a table of the page, without its head."""
    between = re.search(rf"<!-- pretrained {name} -->\n(.*?)<!-- end -->", page, re.DOTALL)[1]
    lines = [line for line in between.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[2:]]


def assert_rows_are(rows, answers):
    """Every printed number is the one of the second computation, to its last digit."""
    assert len(rows) == len(answers)
    for row, one in zip(rows, answers, strict=True):
        setting, difference, points, verdict, published, detectable, corrected, errors = row
        assert (setting, difference, verdict) == (f"`{one.setting}`", one.contrast, one.verdict)
        printed = [
            *map(float, points.split(" ± ")),
            float(detectable),
            *map(float, errors.split(", ")),
        ]
        computed = [one.points, one.half_width, one.detectable, one.of_seeds, one.of_searches]
        # Two digits are printed. The noncentral effects are found by search.
        np.testing.assert_allclose(printed, computed, rtol=1e-6, atol=0.005 + 1e-9)
        assert [float(text) for text in published.split(", ") if text] == one.published
        if corrected == "below 0.001":
            assert one.corrected < 1e-3
        else:
            assert float(corrected) == pytest.approx(one.corrected, rel=0.051)


def assert_secondary_rows_are(rows, expected):
    assert len(rows) == len(expected)
    for (setting, name, *texts), (own_setting, own_name, *numbers) in zip(
        rows, expected, strict=True
    ):
        assert (setting, name) == (f"`{own_setting}`", own_name)
        for text, found in zip(texts, numbers, strict=True):
            if found is None:
                assert text == "–"
            else:
                printed = [float(one) for one in text.split(" ± ")]
                np.testing.assert_allclose(printed, found, rtol=1e-6, atol=0.005 + 1e-9)


# What is committed


def test_the_committed_files_are_what_was_planned():
    assert [*reference.mistakes(reference.read())] == []


def test_the_committed_progress_is_that_of_the_files():
    progress = json.loads((reference.RESULTS / "progress.json").read_text())
    assert progress["design"] == reference.digest()
    assert [one["setting"] for one in progress["settings"]] == [*SETTINGS]
    results = reference.read()
    for one in progress["settings"]:
        most = reference.most_runs(SETTINGS[one["setting"]])
        assert one["done"] + one["to_go"] <= most
        assert one["done"] or one["to_go"] == most
        assert (one["to_go"] == 0) == (one["setting"] in results)
        if one["setting"] in results:
            assert results[one["setting"]]["runs"] == one["done"]
    assert sum(map(reference.most_runs, SETTINGS.values())) == 12_882
    assert reference.num_planned() == 41


def test_all_settings_of_a_data_set_have_the_same_test_examples():
    labels = {}
    for name, result in reference.read().items():
        assert labels.setdefault(SETTINGS[name]["data_set"], result["labels"]) == result["labels"]


def test_the_answers_of_the_page_are_those_of_the_files():
    page = PAGE.read_text()
    answers = reference.answers(reference.read())
    assert_rows_are(table(page, "contrasts"), answers)
    assert_secondary_rows_are(table(page, "secondary"), reference.secondary(reference.read()))
    assert page.count("No question is complete.") == (0 if answers else 3)
    printed = {(row[0], row[1], row[2]): row[3] for row in table(page, "accuracies")}
    for setting in reference.complete(reference.read()):
        result = reference.read()[setting["name"]]
        for arm in result["arms"]:
            key = (
                f"`{setting['name']}`",
                f"{arm['loss']}, {arm['head']}",
                f"{arm['search']}, {arm['rule']}",
            )
            accuracy = 100 * reference.hits(result, arm).mean()
            assert float(printed.pop(key)) == pytest.approx(accuracy, abs=0.005 + 1e-9)
    assert not printed


def test_the_sentences_about_long_tails_hold():
    tails = "tail_100", "tail_few", "tail_omniglot"
    found = {(one.setting, one.contrast): one for one in reference.answers(reference.read())}

    def verdicts(contrast):
        return [found[setting, contrast].verdict for setting in tails]

    hinge = "imbalanced noised hinge, deferred weights"
    assert verdicts("logit adjustment - cross-entropy") == ["better", "undecided", "better"]
    assert verdicts(f"{hinge} - logit adjustment") == ["worse", "undecided", "worse"]
    assert verdicts(f"{hinge} - cross-entropy") == ["undecided"] * 3
    assert verdicts(f"{hinge} - LDAM, deferred weights") == ["worse", "cannot tell", "cannot tell"]
    assert "worse than LDAM with one of them" in " ".join(PAGE.read_text().split())
    assert verdicts("logit adjustment afterwards - logit adjustment") == ["undecided"] * 3
    of_tails = [one for one in found.values() if one.setting in tails]
    assert sum(one.of_searches > one.of_seeds for one in of_tails) == len(of_tails)
    evidence = (EVIDENCE.parent / "evidence.md").read_text()
    heads = [row for row in reference.secondary(reference.read()) if row[0] in tails]
    linear = [row[3] for row in heads if row[1] == "cross-entropy, linear"]
    assert len(linear) == 3
    assert all(points < 0 for points, _ in linear)
    assert "with a cosine head on [features of a pretrained network]" in " ".join(evidence.split())
    for page in (PAGE.read_text(), evidence):
        words = " ".join(page.split())
        assert "with two of three tails" in words
        assert "worse than logit adjustment with the same two" in words


def test_the_sentences_about_wrong_labels_hold():
    answers = [one for one in reference.answers(reference.read()) if "noise" in one.setting]
    found = {(one.setting, one.contrast): one for one in answers}
    settings = [name for name in SETTINGS if "noise" in name]
    assert len(settings) == 6
    robust = "generalized cross-entropy - cross-entropy"
    better = [name for name in settings if found[name, robust].verdict == "better"]
    assert better == ["noise_across_40", "noise_within_40"]
    assert {found[name, robust].verdict for name in {*settings} - {*better}} == {"undecided"}
    evidence = (EVIDENCE.parent / "evidence.md").read_text()
    assert "generalized cross-entropy is better; the hinges are undecided" in evidence
    for one in answers:
        if one.contrast == robust:
            continue
        assert one.verdict == "undecided"
        (published,) = one.published
        assert published > one.detectable
        assert published > one.points + one.half_width
    secondary = reference.secondary(reference.read())
    costs = {(row[0], row[1]): row[5][0] for row in secondary if row[5] is not None}
    for name in settings:
        for head in ("linear", "cosine"):
            if "omniglot" not in name:
                robust_cost = costs[name, f"generalized cross-entropy, {head}"]
                assert robust_cost < costs[name, f"cross-entropy, {head}"]
    gains = {(row[0], row[1]): row[2][0] for row in secondary if row[2] is not None}
    assert "lost most of the gain" in " ".join(evidence.split())
    for name in better:
        for head in ("linear", "cosine"):
            robust_arm, plain_arm = (
                f"{loss}, {head}" for loss in ("generalized cross-entropy", "cross-entropy")
            )
            gain = gains[name, robust_arm]
            assert gain > 0
            # Both are selected by wrong labels.
            assert gain + costs[name, robust_arm] - costs[name, plain_arm] < gain / 2
    for kind in ("across", "within"):
        assert (
            found[f"noise_{kind}_40", "noised hinge - cross-entropy"].points
            > found[f"noise_{kind}_20", "noised hinge - cross-entropy"].points
        )
    leads = [
        found[name, "noised hinge - cross-entropy"].points
        - found[name, "smooth hinge - cross-entropy"].points
        for name in settings
    ]
    assert min(leads) < 0 < max(leads)
    smooth = [
        row[4][0]
        for row in secondary
        if row[0] in settings and row[1] == "smooth hinge, linear" and row[4] is not None
    ]
    assert len(smooth) == 6
    assert min(smooth) < 0 < max(smooth)
    assert "in all settings of the pretrained one" in " ".join(evidence.split())
    linear = [row[3][0] for row in secondary if row[1] == "cross-entropy, linear"]
    assert len(linear) == 10
    assert all(points < 0 for points in linear)


def test_the_sentence_of_the_readme_holds():
    page = " ".join((EVIDENCE.parents[1] / "README.md").read_text().split())
    assert "no difference between cross-entropy and the papers' losses is decided" in page
    losses = (
        "imbalanced noised hinge, deferred weights",
        "noised hinge",
        "smooth hinge",
        "average-K",
    )
    told = {f"{loss} - cross-entropy" for loss in losses}
    answers = [one for one in reference.answers(reference.read()) if one.contrast in told]
    assert {one.contrast for one in answers} == told
    assert {one.verdict for one in answers} <= {"undecided", "cannot tell"}


def test_the_sentences_of_which_loss_hold():
    page = " ".join((EVIDENCE.parent / "which_loss.md").read_text().split())
    answers = reference.answers(reference.read())
    assert "[pretrained features](evidence/pretrained.md#answers) undecided)" in page
    smooth = [one.verdict for one in answers if one.contrast == "smooth hinge - cross-entropy"]
    assert smooth == ["undecided"] * 9
    assert "its mean is higher than every mean with a linear head" in page
    assert "No other loss is decided to be better" in page
    assert not [one for one in answers if (one.setting, one.verdict) == ("tail_few", "better")]
    few = [row for row in reference.secondary(reference.read()) if row[0] == "tail_few"]
    # The better head of cross-entropy is the cosine head there.
    assert [row[3] is None for row in few if row[1] == "cross-entropy, cosine"] == [True]
    linear = [row[3] for row in few if row[1].endswith(", linear")]
    assert len(linear) > 2
    assert all(points < 0 for points, _ in linear)


def test_effects_are_less_detectable_than_planned():
    page = " ".join(PAGE.read_text().split())
    assert "finds a true difference of 0.9 points with a probability of 80 %, 0.2 finds" in page
    assert "the [detectable](#answers) effects are larger than planned" in page
    found = [one.detectable for one in reference.answers(reference.read())]
    assert min(found) > 0.9
    assert max(found) > 1.7


def test_the_sentences_about_sets_hold():
    found = {
        one.contrast: one for one in reference.answers(reference.read()) if one.setting == "sets_5"
    }
    assert {*found} == {"average-K - cross-entropy", "average-K - noised hinge"}
    for one in found.values():
        assert one.points < 0
        assert one.verdict == "cannot tell"
        assert one.of_searches > one.of_seeds
    page = " ".join(PAGE.read_text().split())
    assert (
        "average-K has a lower mean than cross-entropy and than the noised hinge. The study" in page
    )


# Made-up results of all settings


@pytest.fixture(scope="module")
def made_up(code):
    """A file of every setting, in the form in which the study writes them."""
    study = code["design"].study()
    rng = np.random.default_rng(0)
    found = {}
    for setting in study.settings:
        arms, searched, runs = [], [], 0
        difficulty = rng.normal(size=len(LABELS))
        quality = {one.name: rng.normal(scale=0.4) for one in study.losses}
        for arm in study.arms_of(setting):
            candidates = study.candidates(arm)
            selected = {}
            for rule in setting.rules:
                of_arm = quality[arm.loss.name] + rng.normal(scale=0.1)
                scores = of_arm - difficulty + rng.normal(size=(len(study.seeds), len(LABELS)))
                hits = scores > 0
                seen = rng.integers(300, size=len(candidates)) / 500
                best = np.argsort(-seen, kind="stable")[:3].tolist()
                finalists = {one: [seen[one], *(rng.random(2) / 2)] for one in best}
                means = {one: sum(finalists[one]) / 3 for one in sorted(best)}
                selected[rule] = max(means, key=means.get)
                searched.append(
                    {
                        "loss": arm.loss.name,
                        "head": arm.head,
                        "search": arm.search.name,
                        "rule": rule,
                        "candidates": seen.tolist(),
                        "finalists": {str(one): [*map(float, finalists[one])] for one in best},
                    }
                )
                arms.append(
                    {
                        "loss": arm.loss.name,
                        "head": arm.head,
                        "search": arm.search.name,
                        "rule": rule,
                        "candidate": selected[rule],
                        "parameters": candidates[selected[rule]],
                        "validation": means[selected[rule]],
                        "accuracies": {
                            study_metric(setting): hits.mean(axis=1).tolist(),
                            **({} if setting.question == "sets" else {"top_1": some_of(hits, rng)}),
                        },
                        "hits": packed(hits),
                    }
                )
            runs += len(candidates) + 3 * 2 + len(study.seeds) * len({*selected.values()})
        found[setting.name] = {
            "setting": setting.name,
            "design": reference.digest(),
            "metric": study_metric(setting),
            "seeds": list(study.seeds),
            "labels": base64.b64encode(LABELS.tobytes()).decode(),
            "arms": arms,
            "searched": searched,
            "runs": runs,
        }
    return found


def some_of(hits, rng):
    return (hits & (rng.random(hits.shape) < 0.5)).mean(axis=1).tolist()


def study_metric(setting):
    return "average_5" if setting.question == "sets" else "top_5"


def packed(hits):
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


def written(results, folder):
    for name, one in results.items():
        (folder / f"{name}.json").write_text(json.dumps(one))
    return folder


def test_the_tables_of_made_up_results_are_those_of_the_second_computation(code, made_up, tmp_path):
    folder = written(made_up, tmp_path)
    results = reference.read(folder)
    assert [*reference.mistakes(results)] == []
    answers = reference.answers(results)
    assert len(answers) == 41
    assert len({one.verdict for one in answers}) > 2
    page = f"<!-- pretrained contrasts -->\n{code['tables'].contrasts(folder)}<!-- end -->"
    assert_rows_are(table(page, "contrasts"), answers)
    page = f"<!-- pretrained secondary -->\n{code['tables'].secondary(folder)}<!-- end -->"
    expected = reference.secondary(results)
    assert any(row[-1] for row in expected)
    assert_secondary_rows_are(table(page, "secondary"), expected)


def test_a_question_without_a_setting_has_no_answers_and_is_still_corrected_for(
    code, made_up, tmp_path
):
    some = {name: one for name, one in made_up.items() if name != "noise_within_20"}
    folder = written(some, tmp_path)
    answers = reference.answers(reference.read(folder))
    assert {SETTINGS[one.setting]["question"] for one in answers} == {"tail", "sets"}
    page = f"<!-- pretrained contrasts -->\n{code['tables'].contrasts(folder)}<!-- end -->"
    assert_rows_are(table(page, "contrasts"), answers)
    every = {(one.setting, one.contrast): one for one in reference.answers(made_up)}
    assert all(one.corrected >= every[one.setting, one.contrast].p_value for one in answers)


def another_parameter(result):
    result["arms"][3]["parameters"]["rate"] *= 1.01


def another_candidate(result):
    result["arms"][0]["candidate"] = (result["arms"][0]["candidate"] + 1) % 25


def another_accuracy(result):
    result["arms"][1]["accuracies"][result["metric"]][2] += 1e-3


def another_validation(result):
    result["arms"][2]["validation"] -= 1e-3


def another_finalist(result):
    finalists = result["searched"][0]["finalists"]
    first = next(iter(finalists))
    finalists[str((int(first) + 1) % 25)] = finalists.pop(first)


def a_better_candidate(result):
    one = result["searched"][1]
    left = next(index for index in range(25) if str(index) not in one["finalists"])
    one["candidates"][left] = 1.0


def a_better_finalist(result):
    arm, one = result["arms"][1], result["searched"][1]
    other = next(name for name in one["finalists"] if int(name) != arm["candidate"])
    one["finalists"][other][1:] = [1.0, 1.0]


def searched_seeds(result):
    result["seeds"] = [0, *result["seeds"][1:]]


def fewer_arms(result):
    del result["arms"][-1]


def fewer_runs(result):
    result["runs"] -= 200


def of_another_design(result):
    result["design"] = "0" * 64


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (another_parameter, "other parameters than its candidate"),
        (another_candidate, "other parameters than its candidate"),
        (another_accuracy, "other accuracies than its hits"),
        (another_validation, "another validation accuracy than its finalist"),
        (another_finalist, "other finalists than its candidates say"),
        (a_better_candidate, "other finalists than its candidates say"),
        (a_better_finalist, "not the best finalist"),
        (searched_seeds, "not compared on fresh seeds"),
        (fewer_arms, "other arms than were planned"),
        (fewer_runs, "runs are not the"),
        (of_another_design, "of another design"),
    ],
)
def test_files_that_are_not_of_the_design_are_noticed(made_up, change, told):
    result = copy.deepcopy(made_up["sets_5"])
    change(result)
    assert any(told in one for one in reference.mistakes({"sets_5": result}))


def test_the_second_computation_shares_no_code_with_the_study():
    source = Path(reference.__file__).read_text()
    imported = re.findall(r"^(?:from|import) ([\w.]+)", source, re.MULTILINE)
    ours = [one for one in imported if one.split(".")[0] not in sys.stdlib_module_names]
    assert {one.split(".")[0] for one in ours} == {"numpy", "tests"}
    assert {one for one in ours if one.startswith("tests")} <= {
        "tests.reference",
        "tests.reference._studies",
    }
