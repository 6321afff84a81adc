"""The search for a loss of our own: its runs, and its table on the page."""

import importlib
import json
import math
import re
import statistics
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence"


@pytest.fixture(scope="module")
def leads():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EVIDENCE)
        yield importlib.import_module("leads")


@pytest.fixture
def small(leads):
    """A setting with random features of ten classes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 6).astype(np.int32)
    features = jnp.asarray(rng.normal(size=(60, 8)) + np.eye(10, 8)[labels], jnp.float32)
    setting = leads.Setting("tail", "tail", "omniglot", 20, 16)
    return setting, features, leads.TrainingSet(np.arange(60), labels, np.bincount(labels))


def trained(leads, small, name, **values):
    setting, features, training_set = small
    arm = next(one for one in leads.ARMS if one.name == name)
    values = {one: jnp.asarray([value], jnp.float32) for one, value in values.items()}
    return np.asarray(leads.trained(setting, arm, values, features, training_set, 3))[:, 0]


def test_the_steps_are_those_of_the_study(leads, small):
    setting, features, training_set = small
    rows, labels = training_set.rows, training_set.labels
    plan = leads.Plan(setting.steps, setting.batch_size, 1, 0.9, 1.0)
    values = {"rate": 0.5, "scale": 8.0, "tau": 1.0}
    (scores,) = leads.training.train(
        "logit adjustment",
        "cosine",
        [values],
        plan,
        features,
        training_set,
        lambda scorer: scorer.scores(rows)[0],
        3,
    ).found
    kernel = trained(leads, small, "logit adjustment", **values)
    unit = np.asarray(features) / np.linalg.norm(features, axis=1, keepdims=True)
    ours = 8 * unit @ (kernel / np.linalg.norm(kernel, axis=0))
    # Twenty steps of float32, whose sums have other orders.
    np.testing.assert_allclose(ours, scores, atol=2e-4)
    # More than twice as many as by chance.
    assert (ours.argmax(axis=1) == labels).mean() > 0.2


def test_what_is_added_can_be_nothing(leads, small):
    values = {"rate": 0.5, "scale": 8.0, "q": 0.5}
    name = "generalized cross-entropy"
    plain = trained(leads, small, name, **values)
    averaged = trained(leads, small, f"{name}, averaged", **values, horizon=1 / 20)
    learnt = trained(leads, small, f"{name}, learnt scale", **values, **{"rate of scale": 0})
    margin = trained(leads, small, f"{name}, margin", **values, margin=0)
    of_noise = {"rate": 0.5, "scale": 8.0, "epsilon": 0.5}
    noised = trained(leads, small, "noised hinge", **of_noise)
    learnt_epsilon = "noised hinge, learnt epsilon"
    same_noise, other_noise = (
        trained(leads, small, learnt_epsilon, **of_noise, **{"rate of epsilon": rate})
        for rate in (0, 0.1)
    )
    np.testing.assert_allclose(same_noise, noised, atol=2e-5)
    assert np.abs(other_noise - noised).max() > 1e-3
    for same in (averaged, learnt, margin):
        # The compiler may sum in other orders.
        np.testing.assert_allclose(same, plain, atol=2e-5)
    for other in (
        trained(leads, small, f"{name}, averaged", **values, horizon=0.5),
        trained(leads, small, f"{name}, averaged at a constant rate", **values, horizon=1 / 20),
        trained(leads, small, f"{name}, learnt scale", **values, **{"rate of scale": 0.1}),
        trained(leads, small, f"{name}, margin", **values, margin=0.1),
        trained(leads, small, f"{name}, top-5 margin", **values, margin=0),
    ):
        assert np.abs(other - plain).max() > 1e-3


def test_the_table_of_the_page_is_that_of_the_file(leads):
    found = {}
    for one in json.loads(leads.FILE.read_text()):
        found.setdefault((one["setting"], one["arm"]), {})[one["search"]] = one["top_5"]
    means = {key: [*map(statistics.fmean, of_key.values())] for key, of_key in found.items()}

    def difference(key, other):
        by_seed = [
            statistics.fmean(found[key][one][seed] - found[other][one][seed] for one in "AB")
            for seed in range(5)
        ]
        # Half the squared difference of two searches is the variance of one. A mean over two
        # searches has half of it, and the difference of two such means all of it.
        luck = [(a - b) ** 2 / 2 for (setting, _), (a, b) in means.items() if setting == key[0]]
        variance = statistics.variance(by_seed) / 5 + statistics.fmean(luck)
        return [100 * statistics.fmean(by_seed), 100 * math.sqrt(variance)]

    page = (EVIDENCE / "pretrained.md").read_text()
    between = re.search(r"<!-- pretrained leads -->\n(.*?)<!-- end -->", page, re.DOTALL)[1]
    lines = [line for line in between.splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    planned = [[one.name, arm.name] for one in leads.SETTINGS for arm in leads.arms_of(one)]
    assert [row[:2] for row in rows] == planned
    best = {
        setting: max(arms, key=lambda arm: statistics.fmean(means[setting, arm]))
        for setting, arms in {
            "tail": (
                "cross-entropy",
                "smooth hinge",
                "logit adjustment",
                "noised hinge with priors",
            ),
            "noise": ("cross-entropy", "smooth hinge", "generalized cross-entropy", "noised hinge"),
        }.items()
    }
    for setting, arm, accuracy, *differences in rows:
        key = setting, arm
        # Two digits are printed.
        assert float(accuracy) == pytest.approx(100 * statistics.fmean(means[key]), abs=0.0051)
        for other, text in zip(("cross-entropy", best[setting]), differences, strict=True):
            if arm == other:
                assert text == "–"
            else:
                expected = difference(key, (setting, other))
                assert [*map(float, text.split(" ± "))] == pytest.approx(expected, abs=0.0051)


def test_the_sentences_about_leads_hold():
    page = (EVIDENCE / "pretrained.md").read_text()
    between = re.search(r"<!-- pretrained leads -->\n(.*?)<!-- end -->", page, re.DOTALL)[1]
    rows = [line.strip("| ").split(" | ") for line in between.splitlines() if " ± " in line]
    gains = {}
    for setting, arm, *_, text in rows:
        if text != "–":
            points, error = map(float, text.split(" ± "))
            assert points < 2 * error
            gains.setdefault(setting, {})[arm] = points
    assert max(gains["tail"], key=gains["tail"].get).endswith(", averaged at a constant rate")
    assert max(gains["noise"], key=gains["noise"].get) == "smooth hinge, learnt temperature"
    assert "**None was found:**" in page
