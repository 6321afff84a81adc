"""The study on features of a pretrained network: its design, its runs and its answers."""

import dataclasses
import importlib
import json
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"
MODULES = (
    *("answers", "arms", "collecting", "design", "examples", "losses", "progress"),
    *("records", "running", "selection", "tables", "training"),
)
# Two losses, three candidates and two searches, of groups that are far from each other.
SMALL = """
k = 5
candidates = 3
finalists = 2
checkpoints = 2
momentum = 0.9
deferred_from = 0.8
validation_per_class = { omniglot = 2 }
test_per_class = { omniglot = 3 }
group_size = 5
seeds = [100, 101]
equivalence = 0.5
[[searches]]
name = "A"
seeds = [0, 1]
[[searches]]
name = "B"
seeds = [10, 11]
[[settings]]
name = "noise"
question = "noise"
data_set = "omniglot"
wrong = 0.4
groups = "across"
steps = 4
batch_size = 8
[heads.linear.space]
rate = { from = 0.01, to = 1.0 }
[heads.cosine.space]
rate = { from = 0.01, to = 1.0 }
scale = { from = 4.0, to = 64.0 }
[[losses]]
name = "cross-entropy"
questions = ["noise"]
searches = 2
[[losses]]
name = "generalized cross-entropy"
questions = ["noise"]
searches = 2
[losses.space]
q = { from = 0.05, to = 1.0, scale = "linear" }
[[contrasts]]
question = "noise"
first = "generalized cross-entropy"
second = "cross-entropy"
"""
NUM_CLASSES, PER_CLASS, NUM_FEATURES = 50, 10, 12


@pytest.fixture(scope="module")
def code():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EVIDENCE)
        yield types.SimpleNamespace(
            **{name: importlib.import_module(f"pretrained.{name}") for name in MODULES}
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with features of 50 classes."""
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(NUM_CLASSES), PER_CLASS).astype(np.int32)
    # Ten groups of five classes.
    means = rng.normal(size=(NUM_CLASSES // 5, NUM_FEATURES)).repeat(5, axis=0)
    means += 0.3 * rng.normal(size=means.shape)
    features = means[labels] + 0.3 * rng.normal(size=(len(labels), NUM_FEATURES))
    names = [f"{label}/{index}.png" for index, label in enumerate(labels)]
    np.savez(
        folder / "omniglot.npz", features=features.astype(np.float32), labels=labels, names=names
    )
    return folder


@pytest.fixture(scope="module")
def small(code, tmp_path_factory):
    path = tmp_path_factory.mktemp("design") / "small.toml"
    path.write_text(SMALL)
    return code.design.study(path)


@pytest.fixture(scope="module")
def examples(code, small, folder):
    return code.examples.load(folder, "omniglot", small)


def run(code, small, folder, results):
    lines = []
    records = code.records.Records(results, small.digest)
    code.running.run(small, records, folder, labels=results, report=lines.append)
    return lines, records


@pytest.fixture(scope="module")
def finished(code, small, folder, tmp_path_factory):
    """The folder of the results, and the records."""
    results = tmp_path_factory.mktemp("results")
    _, records = run(code, small, folder, results)
    return results, records


# The design


def test_every_loss_of_the_design_can_be_computed(code):
    study = code.design.study()
    assert {loss.name for loss in study.losses} == {*code.losses.LOSSES}
    data = code.losses.Data(jnp.full(30, 4.0), jax.random.key(0))
    for loss in study.losses:
        for head in code.design.HEADS:
            setting = next(one for one in study.settings if one.question in loss.questions)
            arm = code.design.Arm(setting, loss, head, study.searches[0])
            candidates = study.candidates(arm)
            assert len(candidates) == 25
            values = {name: jnp.float32(value) for name, value in candidates[0].items()}
            scores = jnp.zeros((7, code.losses.num_outputs(loss.name, 30)))
            found = jax.eval_shape(
                code.losses.LOSSES[loss.name], scores, jnp.zeros(7, jnp.int32), values, data
            )
            assert found.shape == (7,)


def test_the_contrasts_of_the_design_have_two_searches(code):
    study = code.design.study()
    twice = {loss.name for loss in study.losses if loss.searches == 2}
    assert sum(len(study.contrasts_of(setting)) for setting in study.settings) == 41
    for setting in study.settings:
        known = {loss.name for loss in study.losses_of(setting)}
        for contrast in study.contrasts_of(setting):
            assert {contrast.first, contrast.second} <= known & twice
        # Checkpoints divide the steps.
        assert setting.steps % study.numbers["checkpoints"] == 0


def test_the_seeds_of_the_searches_are_not_those_that_are_compared(code):
    study = code.design.study()
    seeds = [seed for search in study.searches for seed in search.seeds]
    assert len({*seeds, *study.seeds}) == len(seeds) + len(study.seeds) == 16


def test_candidates_cover_each_range(code):
    for dimensions in (1, 2, 4):
        points = code.design.low_discrepancy(25, dimensions, seed=3)
        assert points.shape == (25, dimensions)
        for column in points.T:
            np.testing.assert_allclose(np.diff(np.sort(column)), 1 / 25, rtol=1e-9)
        # Two points in one small box: of 25 independent draws most pairs of dimensions have some.
        distances = np.abs(points[:, None] - points)
        farthest = np.minimum(distances, 1 - distances).max(axis=-1)
        assert (farthest + np.eye(25)).min() > {1: 0.039, 2: 0.15, 4: 0.15}[dimensions]
    assert not np.allclose(points, code.design.low_discrepancy(25, 4, seed=4))


def test_the_values_of_a_range(code):
    log = code.design.Range(0.01, 1.0, is_log=True)
    assert [log.at(share) for share in (0, 0.5, 1)] == [0.01, 0.1, 1]
    linear = code.design.Range(0.0, 3.0, is_log=False)
    assert linear.at(1 / 9) == 0.3333
    assert linear.share_of(linear.at(0.25)) == pytest.approx(0.25)
    assert log.share_of(0.1) == pytest.approx(0.5)


# The data


def test_groups_are_of_similar_classes(examples):
    # The classes of a group come one after the other.
    for first in range(0, NUM_CLASSES, 5):
        assert len({*examples.similar[first : first + 5].tolist()}) == 1
    assert np.bincount(examples.similar).tolist() == [5] * 10


@pytest.mark.parametrize("num_classes", [50, 52])
def test_groups_of_any_number_of_classes(code, num_classes):
    means = np.random.default_rng(1).normal(size=(num_classes, 8))
    groups = code.examples.similar_groups(means, 5)
    expected = [5] * (10 - num_classes % 5) + [6] * (num_classes % 5)
    assert sorted(np.bincount(groups)) == expected
    blocks = code.examples.blocks_across(groups)
    sizes = np.bincount(blocks)
    assert sizes.tolist() == [5] * (len(sizes) - 1) + [5 + num_classes % 5]
    for block in range(len(sizes) - 1):
        assert len({*groups[blocks == block].tolist()}) == 5


@pytest.mark.parametrize("kind", ["within", "across"])
def test_wrong_labels_are_of_the_block(code, small, examples, kind):
    setting = dataclasses.replace(small.settings[0], groups=kind)
    labels = np.repeat(np.arange(NUM_CLASSES), 400).astype(np.int32)
    found = code.examples.wrong_labels(setting, examples, labels, np.random.default_rng(0))
    wrong = found != labels
    # Four standard deviations of a share of 20,000.
    assert wrong.mean() == pytest.approx(0.4, abs=4 * (0.24 / len(labels)) ** 0.5)
    same_group = examples.similar[found[wrong]] == examples.similar[labels[wrong]]
    assert same_group.all() == (kind == "within")
    assert same_group.any() == (kind == "within")
    # Each class has four others in its block.
    pairs = {*zip(labels[wrong].tolist(), found[wrong].tolist(), strict=True)}
    assert len(pairs) == 4 * NUM_CLASSES


def test_a_long_tail(code, small, examples):
    setting = dataclasses.replace(small.settings[0], wrong=0.0, largest=5, smallest=1)
    found = [code.examples.training_set(setting, examples, seed) for seed in (0, 0, 1)]
    assert sorted(found[0].class_counts) == sorted(code.examples.tail_sizes(NUM_CLASSES, 5, 1))
    assert found[0].class_counts.max() == 5
    assert found[0].class_counts.min() == 1
    assert {*found[0].rows.tolist()} <= {*examples.pool.tolist()}
    assert len({*found[0].rows.tolist()}) == len(found[0].rows)
    np.testing.assert_array_equal(found[0].labels, examples.labels[found[0].rows])
    np.testing.assert_array_equal(found[0].rows, found[1].rows)
    assert found[0].class_counts.tolist() != found[2].class_counts.tolist()


def test_the_splits(code, small, folder, examples, monkeypatch):
    splits = [examples.pool, examples.validation, examples.test]
    assert sorted(np.concatenate(splits)) == list(range(NUM_CLASSES * PER_CLASS))
    for split, size in zip(splits, (5, 2, 3), strict=True):
        assert np.bincount(examples.labels[split]).tolist() == [size] * NUM_CLASSES
    # A development trial has nothing that the study selects by or tests.
    monkeypatch.setattr(code.examples, "_DEVELOPMENT", {"validation": 1, "test": 2})
    trial = code.examples.load(folder, "omniglot", small, development=True)
    used = np.concatenate([trial.pool, trial.validation, trial.test])
    assert sorted(used) == examples.pool.tolist()


# The runs


def test_heads_that_are_trained_at_once_are_those_of_the_formulas(code, examples, small):
    plan = code.training.Plan(steps=4, batch_size=8, checkpoints=2, momentum=0.9, deferred_from=0.8)
    training_set = code.examples.training_set(small.settings[0], examples, 5)
    rates = (0.5, 0.01)
    trained = code.training.train(
        "cross-entropy",
        "linear",
        [{"rate": rate} for rate in rates],
        plan,
        jnp.asarray(examples.features),
        training_set,
        lambda scorer: scorer.scores(examples.test),
        5,
    )
    first = code.training.initial_params(
        "linear", jax.random.fold_in(jax.random.key(5), 0), NUM_FEATURES, NUM_CLASSES, NUM_CLASSES
    )
    batches = code.training.draw_batches(
        len(training_set.rows), plan, np.random.default_rng([5, 2])
    )
    for index, rate in enumerate(rates):
        kernel, bias = (np.asarray(first[name], np.float64) for name in ("kernel", "bias"))
        moved = [np.zeros_like(kernel), np.zeros_like(bias)]
        for step, batch in enumerate(batches):
            rows = examples.features[training_set.rows[batch]].astype(np.float64)
            scores = rows @ kernel + bias
            gradient = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            gradient[np.arange(8), training_set.labels[batch]] -= 1
            gradient /= 8
            gradients = rows.T @ gradient, gradient.sum(axis=0)
            moved = [0.9 * old + new for old, new in zip(moved, gradients, strict=True)]
            by = rate * (1 + np.cos(np.pi * step / 4)) / 2
            kernel -= by * (0.9 * moved[0] + gradients[0])
            bias -= by * (0.9 * moved[1] + gradients[1])
        expected = examples.features[examples.test] @ kernel + bias
        # Sums of tens of float32 numbers of size 10, over four steps.
        np.testing.assert_allclose(trained.found[-1][index], expected, rtol=0, atol=1e-3)
    assert trained.flops == 2 * NUM_FEATURES * NUM_CLASSES * (4 * 4 * 8 + 2 * 2 * 150)


def test_deferred_weights_are_1_until_they_begin(code):
    data = code.losses.Data(jnp.array([1.0, 3.0]), jax.random.key(0))
    values = {"one_minus_beta": jnp.float32(0.5)}
    early, late = (code.losses.weights(values, data, jnp.bool_(one)) for one in (False, True))
    np.testing.assert_array_equal(early, [1, 1])
    # 1 - beta over 1 - beta ** n, scaled to a mean of 1 over the images.
    expected = np.array([1.0, 0.5 / 0.875])
    expected /= (expected * [1, 3]).sum() / 4
    np.testing.assert_allclose(late, expected, rtol=1e-6)


def test_sets_of_five_classes_on_average(code):
    scores = np.random.default_rng(0).normal(size=(2, 60, 20))
    labels = np.random.default_rng(1).integers(0, 20, 60)
    hits = code.running.average_hits(scores, labels, [2.0, float("nan")])
    assert not hits[1].any()
    probabilities = np.exp(scores[0] / 2) / np.exp(scores[0] / 2).sum(axis=1, keepdims=True)
    order = np.argsort(-probabilities.ravel())[: 5 * 60]
    chosen = np.zeros(60 * 20, bool)
    chosen[order] = True
    np.testing.assert_array_equal(hits[0], chosen.reshape(60, 20)[np.arange(60), labels])


def test_sets_with_ties_have_no_more_than_five_classes_on_average(code):
    labels = np.arange(20)
    hits = code.running.average_hits(np.zeros((1, 20, 20)), labels, [1.0])
    assert not hits.any()
    scores = np.zeros((1, 20, 20))
    scores[0, :10, :8] = 1.0  # 80 entries are above the others, of 100 that sets may have.
    hits = code.running.average_hits(scores, labels, [1.0])
    np.testing.assert_array_equal(hits[0], labels < 8)


def test_all_that_is_planned_runs_once(code, small, finished):
    _, records = finished
    by_arm = {}
    for key in records.found:
        by_arm.setdefault((key.loss, key.head, key.search), []).append(key)
    assert len(by_arm) == 8
    for keys in by_arm.values():
        seeds = [key.seed for key in keys]
        first, second = (0, 1) if keys[0].search == "A" else (10, 11)
        assert seeds.count(first) == 3
        # Both rules have two finalists of three candidates, and each selects one of them.
        assert seeds.count(second) in (2, 3)
        assert seeds.count(100) == seeds.count(101)
        assert seeds.count(100) in (1, 2)
    for key, record in records.found.items():
        assert bool(record.test) == (key.seed >= 100)
        assert {*record.validation} == {"correct", "wrong"}
        assert all(len(one) == 2 for one in record.validation.values())
    assert code.progress.of_setting(small, records, small.settings[0]).to_go == 0


def test_a_stopped_study_goes_on(code, small, folder, finished, tmp_path):
    results, records = finished
    lines = (results / "noise.jsonl").read_bytes().splitlines(keepends=True)
    # Killed while it wrote the last line of some.
    (tmp_path / "noise.jsonl").write_bytes(b"".join(lines[:20]) + lines[20][:-5])
    began = code.records.Records(tmp_path, small.digest)
    assert len(began.found) == 20
    progress = code.progress.of_setting(small, began, small.settings[0])
    assert progress.done == 20
    assert progress.to_go >= len(lines) - 20
    _, again = run(code, small, folder, tmp_path)
    assert {*again.found} == {*records.found}
    for key, record in records.found.items():
        assert again.found[key].test == record.test
        assert again.found[key].validation == record.validation


def test_runs_of_another_design_are_refused(code, finished):
    with pytest.raises(ValueError, match="another design"):
        code.records.Records(finished[0], "0" * 64)


def test_features_with_other_test_examples_are_refused(code, small, finished, examples, tmp_path):
    results, records = finished
    labels = examples.labels[examples.test]
    code.collecting.check_labels(small, "omniglot", labels, tmp_path)
    assert len([*code.collecting.write(small, records, results, tmp_path)]) == 2
    code.collecting.check_labels(small, "omniglot", labels, tmp_path)
    code.collecting.check_labels(small, "tiny_imagenet", labels[:9], tmp_path)
    for others in (labels[:9], labels[::-1]):
        with pytest.raises(ValueError, match="features of omniglot have other test labels"):
            code.collecting.check_labels(small, "omniglot", others, tmp_path)


# The numbers


def test_a_complete_setting_is_collected(code, small, finished, examples, tmp_path):
    results, records = finished
    path, how_far = code.collecting.write(small, records, results, tmp_path)
    plain = json.loads(path.read_text())
    np.testing.assert_array_equal(
        code.collecting.test_labels(plain), examples.labels[examples.test]
    )
    read = code.collecting.read(plain, small)
    assert len(read) == 16
    for one, stored in zip(read, plain["arms"], strict=True):
        np.testing.assert_allclose(
            one.hits["top_5"].mean(axis=1), stored["accuracies"]["top_5"], rtol=1e-12
        )
    assert plain["runs"] == len(records.found)
    # A run is missing: nothing is written.
    some = next(key for key in records.found if key.seed >= 100)
    del records.found[some]
    assert list(code.collecting.write(small, records, results, tmp_path)) == [how_far]
    (of_setting,) = json.loads(how_far.read_text())["settings"]
    assert of_setting["done"] == plain["runs"] - 1
    assert of_setting["to_go"] >= 1
    records.read("noise")
    # None is here: they finished elsewhere.
    (tmp_path / "empty").mkdir()
    nowhere = code.records.Records(tmp_path / "empty", small.digest)
    content = path.read_bytes()
    assert list(code.collecting.write(small, nowhere, results, tmp_path)) == [how_far]
    (of_setting,) = json.loads(how_far.read_text())["settings"]
    assert (of_setting["done"], of_setting["to_go"]) == (plain["runs"], 0)
    assert of_setting["cpu_seconds"] == plain["used"]["cpu_seconds"]
    assert path.read_bytes() == content


def test_the_tables_have_complete_questions(code, small, finished, tmp_path, monkeypatch):
    results, records = finished
    monkeypatch.setattr(code.design, "study", lambda: small)
    list(code.collecting.write(small, records, results, tmp_path))
    contrasts, accuracies = code.tables.contrasts(tmp_path), code.tables.accuracies(tmp_path)
    assert contrasts.count("`noise` | generalized cross-entropy - cross-entropy") == 1
    assert accuracies.count("`noise`") == 16
    assert code.tables.secondary(tmp_path).count("`noise`") == 2 * len(
        small.losses_of(small.settings[0])
    )
    assert f"`noise` | {len(records.found)} | 0 |" in code.tables.progress(tmp_path)
    # Another setting of the question has not run.
    both = (*small.settings, dataclasses.replace(small.settings[0], name="other"))
    monkeypatch.setattr(code.design, "study", lambda: dataclasses.replace(small, settings=both))
    assert "No question is complete" in code.tables.contrasts(tmp_path)
    assert "No question is complete" in code.tables.accuracies(tmp_path)
    assert "No question is complete" in code.tables.secondary(tmp_path)


def chosen(code, loss, head, search, validation, hits, rule="correct"):
    of_seeds = {"top_5": hits.mean(axis=1).tolist()}
    return code.arms.Chosen(loss, head, search, rule, 0, {}, validation, {"top_5": hits}, of_seeds)


def test_each_search_has_its_better_head(code):
    none = np.zeros((2, 3), bool)
    heads = [
        chosen(code, "a", "linear", "A", 0.5, none),
        chosen(code, "a", "cosine", "A", 0.6, none),
        chosen(code, "a", "linear", "B", 0.7, none),
        chosen(code, "a", "cosine", "B", 0.6, none),
        chosen(code, "a", "cosine", "B", 0.9, none, rule="wrong"),
        chosen(code, "b", "cosine", "B", 0.9, none),
    ]
    found = code.answers.with_better_head(heads, "a")
    assert [(one.search, one.head) for one in found] == [("A", "cosine"), ("B", "linear")]


def test_the_luck_of_the_search_is_in_the_standard_error(code, small):
    labels = np.repeat(np.arange(4), 25)

    def share(hits_of_100):
        return np.repeat([[True] * hits_of_100 + [False] * (100 - hits_of_100)], 2, axis=0)

    losses = {"cross-entropy": (40, 44), "generalized cross-entropy": (60, 60)}
    found = [
        chosen(code, loss, "linear", search, 0.5, share(count))
        for loss, counts in losses.items()
        for search, count in zip("AB", counts, strict=True)
    ]
    finished = code.answers.Finished(small.settings[0], found, labels)
    (difference,) = code.answers.differences(small, [finished])
    assert difference.estimate == pytest.approx(0.18)
    # Half of 0.04 squared, and of 0, over two losses: that of one search. Each side of the
    # difference has half of it.
    assert difference.of_searches == pytest.approx((0.04**2 / 4) ** 0.5)
    total = difference.of_seeds**2 + difference.of_searches**2
    assert difference.found.standard_error == pytest.approx(total**0.5)
    freedom = total**2 / (difference.of_seeds**4 / 1 + difference.of_searches**4 / 2)
    assert difference.freedom == pytest.approx(freedom)
    (answer,) = code.answers.answered(small, [difference])
    assert answer.adjusted == pytest.approx(difference.found.p_value)
    assert answer.verdict == "undecided"


def test_contrasts_that_have_not_run_correct_most(code):
    study = code.design.study()
    setting = study.settings[0]
    contrast = study.contrasts_of(setting)[0]
    one = code.answers.Difference(setting, contrast, 0.05, 0.01, 0.0, 9.0, ())
    (answer,) = code.answers.answered(study, [one])
    assert answer.adjusted == pytest.approx(41 * one.found.p_value)
    assert answer.verdict == "better"
