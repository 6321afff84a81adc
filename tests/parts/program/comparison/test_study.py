"""The runs of a study become known one after another, and its numbers follow from them."""

import base64
import json

import numpy as np
import pytest

from tests.parts.program.comparison.made_up_study import LABELS, STUDY, look, make, read
from train.comparison import study_outputs, study_results
from train.foundation import files
from train.foundation.errors import UserError
from train.run import run_folder
from train.series import contrasts


def rate(run):
    return run.config["optimizer"]["learning_rate"]


def loss(run):
    return run.config["loss"]["name"]


def in_the_middle(run):
    """Best at a learning rate of 0.01, in the middle of the range."""
    return 1 / (1 + abs(np.log10(rate(run)) + 2))


def collect(study, folder):
    return study_results.collect(study, look(study, folder))


def test_the_best_are_run_again_and_the_best_mean_is_selected(tmp_path):
    study, folder = read(tmp_path), tmp_path / "runs"
    first = look(study, folder)
    # The runs of the arm without parameters need no search.
    assert [(loss(run), run.seed) for run in first.runs] == [
        *([("noised_balanced", 0)] * 6),
        *([("cross_entropy", 0)] * 6),
        *(("cross_entropy", seed) for seed in (10, 11, 12)),
    ]
    # For two arms, the second run of two finalists, and three others.
    assert first.waiting == 2 * (2 + 3)
    assert {run.config["select_by"] for run in first.runs} == {"macro_top_3_accuracy"}
    assert {run.config["num_epochs"] for run in first.runs} == {2}
    heads = [run.config["model"]["head"] for run in first.runs]
    assert heads == [None] * 6 + ["cosine"] * 6 + [None] * 3

    # On the second seed, the order of the two best turns.
    best, second, *_ = sorted(
        {rate(run) for run in first.runs[6:12]}, key=lambda r: abs(np.log10(r) + 2)
    )

    def score(run):
        if loss(run) == "noised_balanced":
            # In the middle of both ranges.
            return in_the_middle(run) - abs(run.config["loss"]["epsilon"] - 0.7)
        if run.seed == 1:
            return {best: 0.0, second: 0.9}[rate(run)]
        return in_the_middle(run)

    made = make(study, folder, score)
    assert len(made) == 6 + 6 + 3 + 2 * (2 + 3)
    assert [run.seed for run in made] == [0] * 12 + [10, 11, 12] + [1] * 4 + [
        10,
        10,
        11,
        11,
        12,
        12,
    ]
    tuned = look(study, folder).tuned(study.arms["cosine"].search)
    finalists = [dict(tuned.drawn.candidates[index]) for index in tuned.finalists]
    assert finalists == [{"optimizer.learning_rate": best}, {"optimizer.learning_rate": second}]
    assert tuned.fields == (("optimizer.learning_rate", second),)
    assert {rate(run) for run in made[-6:] if loss(run) == "cross_entropy"} == {second}
    # The same command resumes, and nothing is left to do.
    assert make(study, folder, score) == []
    (run_folder.outcomes(folder / made[-1].name, "test").parent / run_folder.RESULTS).unlink()
    planner = look(study, folder)
    assert (len(planner.runs), planner.waiting) == (len(made), 0)


def test_a_search_goes_on_while_the_best_is_at_an_end(tmp_path):
    study, folder = read(tmp_path), tmp_path / "runs"
    # The larger the better for hinge; best in the middle for the other.
    made = make(
        study,
        folder,
        lambda run: rate(run) if loss(run) == "noised_balanced" else in_the_middle(run),
    )
    hinge, cosine, untuned = (arm.finals.tuned for arm in collect(study, folder).arms.values())
    # Each round goes half a range further: the range was 2 decades long, and is 3 and 4.5 then. No
    # draw of the second round is at the new end.
    ranges = [one.ranges["optimizer.learning_rate"] for one in hinge.drawn.extensions]
    assert [round(float(np.log10(one.end)), 3) for one in ranges] == [0.0, 1.5]
    assert len(hinge.drawn.candidates) == 6 + 2 * 4
    assert len(cosine.drawn.candidates) == 6
    assert hinge.fields == max(
        hinge.drawn.candidates, key=lambda one: dict(one)["optimizer.learning_rate"]
    )
    assert len(made) == 6 + 2 * 4 + 6 + 3 + 2 * (2 + 3)
    assert untuned.fields == ()


def test_a_run_that_diverged_is_the_worst(tmp_path):
    study, folder = read(tmp_path), tmp_path / "runs"
    # The best rates diverge; of the selected candidate, one seed does. Nothing of hinge is left.
    made = make(
        study,
        folder,
        in_the_middle,
        diverges=lambda run: (
            loss(run) == "noised_balanced"
            or (run.config["model"]["head"] == "cosine" and (rate(run) > 8e-3 or run.seed == 11))
        ),
    )
    numbers = collect(study, folder)
    hinge, cosine, untuned = numbers.arms.values()
    tuned = hinge.finals.tuned
    assert (tuned.failed, tuned.selected, hinge.finals.ended) == (True, None, {})
    assert sum(loss(run) == "noised_balanced" for run in made) == 6
    assert rate(made[-1]) < 8e-3
    assert (cosine.finals.diverged, untuned.finals.diverged) == ((11,), ())
    metric = numbers.study.metrics[1]
    assert cosine.values(metric)[11] == 0
    assert not cosine.hits(metric, len(LABELS))[1].any()
    of_loss, of_head = numbers.contrasts
    assert of_loss.numbers is None
    assert of_head.numbers == contrasts.contrast(
        cosine.hits(metric, len(LABELS)), untuned.hits(metric, len(LABELS)), LABELS, macro=False
    )
    # Holm's method needs all p-values of the study.
    assert of_head.adjusted is None
    assert numbers.collected.to_go == 0


def half_or_more(run):
    return 0.8 if run.config["model"]["head"] == "cosine" else 0.5


@pytest.fixture
def finished(tmp_path):
    study = read(tmp_path)
    make(study, tmp_path / "runs", in_the_middle, hit_rate=half_or_more)
    return study, tmp_path / "runs"


def test_the_contrasts_are_of_the_hits_of_shared_seeds(finished):
    numbers = collect(*finished)
    cosine = numbers.arms["cosine"]
    macro_top_3, top_1 = numbers.study.metrics
    of_loss, of_head = numbers.contrasts
    hits = {name: arm.hits(macro_top_3, len(LABELS)) for name, arm in numbers.arms.items()}
    assert hits["cosine"].shape == (3, len(LABELS))
    assert of_loss.numbers == contrasts.contrast(hits["hinge"], hits["cosine"], LABELS, macro=True)
    assert of_loss.numbers.estimate < -0.2
    assert [one.adjusted for one in numbers.contrasts] == contrasts.holm(
        [one.numbers.p_value for one in numbers.contrasts]
    )
    assert of_loss.equivalence == contrasts.equivalence(of_loss.numbers, 0.005, 2)
    assert of_head.equivalence is None
    assert cosine.values(top_1).summary.mean == pytest.approx(
        cosine.hits(top_1, len(LABELS)).mean()
    )


def test_the_json_has_what_the_contrasts_are_computed_from(finished):
    study, folder = finished
    numbers = collect(study, folder)
    plain = json.loads(files.to_json(study_outputs.to_plain(numbers)))
    assert plain["study"]["content"] == STUDY
    assert plain["versions"] == {"jax": ["1.2.3"]}
    assert plain["runs_to_go"] == 0
    labels = np.frombuffer(base64.b64decode(plain["labels"]["little_endian_int32"]), "<i4")
    np.testing.assert_array_equal(labels, LABELS)
    cosine = plain["arms"][1]
    assert cosine["config"] == "digits:cross_entropy"
    assert cosine["fields"]["model.head"] == "cosine"
    assert cosine["selected"] == cosine["candidates"][cosine["finalists"][0]]["fields"]
    scores = cosine["candidates"][cosine["finalists"][0]]["scores"]
    assert scores.keys() == {"0", "1"}
    assert cosine["candidates"][0]["training_seconds"]["0"] == 2.5
    run = cosine["runs"][2]
    assert (run["seed"], run["diverged"], run["best_epoch"]) == (12, False, 2)
    assert run["validation_by_epoch"] == [0.25, scores["0"]]
    assert (folder / run["folder"] / run_folder.RESULTS).exists()
    assert (
        cosine["configuration"]["optimizer.learning_rate"]
        == (cosine["selected"]["optimizer.learning_rate"])
    )
    assert "seed" not in cosine["configuration"]

    def hits(arm, metric):
        found = plain["arms"][arm]["hits"][metric]
        size = np.prod(found["shape"])
        bits = np.frombuffer(base64.b64decode(found["packed_bits"]), np.uint8)
        return np.unpackbits(bits, count=size).reshape(found["shape"])

    np.testing.assert_array_equal(
        hits(1, "top_1_accuracy")[2].mean(), run["metrics"]["top_1_accuracy"]
    )
    contrast = plain["contrasts"][1]
    difference = hits(1, "top_1_accuracy").mean() - hits(2, "top_1_accuracy").mean()
    assert contrast["numbers"]["estimate"] == pytest.approx(difference)
    assert plain["arms"][0]["hits"].keys() == {"macro_top_3_accuracy"}
    assert plain["arms"][0]["space"]["loss.epsilon"] == {
        "from": 0.2,
        "to": 1.2,
        "scale": "linear",
        "least": 0.1,
        "most": 1.4,
    }


def test_runs_with_other_examples_are_refused(finished):
    study, folder = finished
    run = collect(study, folder).arms["untuned"].finals.ended[11]
    path = run_folder.outcomes(run.workdir, "test")
    arrays = dict(np.load(path))
    arrays["labels"] = arrays["labels"][::-1]
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="has other labels on test than"):
        collect(study, folder)


def test_a_data_set_without_a_balanced_test_is_refused_after_the_first_run(tmp_path, finished):
    study = read(tmp_path, STUDY.replace('split = "test"', 'split = "balanced_test"'))
    with pytest.raises(UserError, match="has no balanced_test split: its data set has none"):
        make(study, finished[1], in_the_middle)
