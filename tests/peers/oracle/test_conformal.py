"""Conformal scores, quantiles and sets equal TorchCP, MAPIE and crepes."""

import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from crepes import ConformalClassifier
from mapie.conformity_scores import APSConformityScore
from sklearn.cluster import KMeans

from tests.peers.oracle import torchcp_modules
from topk_jax import sets
from topk_jax.sets import _class_quantiles

SHAPES = [(100, 10), (40, 1000)]
# Exact in binary, for TorchCP multiplies with it in float32.
ERROR = 0.125


@pytest.fixture(scope="module")
def torchcp():
    score, predictor = torchcp_modules.load()
    return types.SimpleNamespace(score=score, predictor=predictor)


def batch(rng, number, num_classes):
    logits = 2 * rng.normal(size=(number, num_classes)).astype(np.float32)
    labels = np.array([rng.choice(num_classes, p=row) for row in softmax(logits)], np.int32)
    return logits, labels


def softmax(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


CASES = [
    ("lac", "LAC", {}, {}),
    ("margin", "Margin", {}, {}),
    ("aps", "APS", {}, {}),
    ("raps", "RAPS", {"rank_penalty": 0.25, "unpenalized_ranks": 2}, {"penalty": 0.25, "kreg": 2}),
    ("saps", "SAPS", {"rank_penalty": 0.25}, {"weight": 0.25}),
]


@pytest.mark.parametrize(("number", "num_classes"), SHAPES)
@pytest.mark.parametrize(("kind", "theirs", "given", "settings"), CASES)
def test_scores_are_those_of_torchcp(
    rng, key, torchcp, monkeypatch, kind, theirs, given, settings, number, num_classes
):
    logits, labels = batch(rng, number, num_classes)
    probabilities = softmax(logits).astype(np.float32)
    uniform = torch.tensor(np.asarray(jax.random.uniform(key, (number,))))
    # Its scores of all classes draw a number for each class; for SAPS it is 1 - U.
    drawn = 1 - uniform if kind == "saps" else uniform
    monkeypatch.setattr(
        torch,
        "rand",
        lambda *shape, **_: drawn if isinstance(shape[0], int) else drawn[:, None].expand(shape[0]),
    )
    score = getattr(torchcp.score, theirs)(score_type="identity", **settings)
    randomised = {"key": key} if kind in ("aps", "raps", "saps") else {}
    ours = sets.conformal_scores(probabilities, kind=kind, **given, **randomised)
    # Sums of up to 1,000 float32 numbers in another order.
    close = {"rtol": 1e-5, "atol": 3e-6}
    expected = score(torch.tensor(probabilities)).numpy()
    # Of equal probabilities theirs puts one first; ours have the same score.
    is_tied = (np.diff(np.sort(probabilities, axis=-1), axis=-1) == 0).any(axis=-1)
    assert is_tied.mean() < 0.5
    np.testing.assert_allclose(ours[~is_tied], expected[~is_tied], **close)
    alone = sets.conformal_label_scores(probabilities, labels, kind=kind, **given, **randomised)
    expected = score(torch.tensor(probabilities), torch.tensor(labels, dtype=torch.int64)).numpy()
    if kind == "saps":
        # For labels that are the likeliest class it multiplies with U, not 1 - U.
        first = probabilities.argmax(axis=-1) == labels
        expected = np.where(first, uniform.numpy() * probabilities.max(axis=-1), expected)
    np.testing.assert_allclose(alone, expected, **close)


def calibrated(torchcp, name, logits, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predictor = getattr(torchcp.predictor, name)(torchcp.score.LAC(), alpha=ERROR)
        predictor.num_classes = logits.shape[-1]
        predictor.calculate_threshold(
            torch.tensor(logits), torch.tensor(labels, dtype=torch.int64), ERROR
        )
    return predictor


@pytest.mark.parametrize("name", ["SplitPredictor", "ClassConditionalPredictor", "RC3PPredictor"])
def test_quantiles_and_sets_are_those_of_torchcp(rng, torchcp, name):
    # 16 examples of each class but the last, which has four, so that all rates are exact.
    labels = np.append(np.arange(7 * 16) % 7, [7] * 4).astype(np.int32)
    logits = rng.normal(size=(len(labels), 8)).astype(np.float32)
    logits[np.arange(len(labels)), labels] += 2
    theirs = calibrated(torchcp, name, logits, labels)
    probabilities = np.asarray(torch.softmax(torch.tensor(logits), dim=-1))
    scores = sets.conformal_label_scores(probabilities, labels, kind="lac")
    ranks = sets.conformal_label_scores(probabilities, labels, kind="rank")
    new = torch.tensor(rng.normal(size=(50, 8)).astype(np.float32))
    new_probabilities = np.asarray(torch.softmax(new, dim=-1))
    given = {"error": ERROR, "num_classes": 8}
    places = None
    if name == "SplitPredictor":
        quantiles = sets.conformal_quantile(scores, labels, error=ERROR)
        expected = theirs.q_hat
    elif name == "ClassConditionalPredictor":
        quantiles = sets.class_conditional_quantiles(scores, labels, **given)
        expected = theirs.q_hat
    else:
        quantiles, places = sets.rank_calibrated_quantiles(scores, ranks, labels, **given)
        expected = theirs.class_thresholds
        np.testing.assert_array_equal(places, theirs.class_rank_limits)
    np.testing.assert_array_equal(quantiles, expected)
    chosen = sets.conformal_set(new_probabilities, quantiles, kind="lac")
    if places is not None:
        chosen &= sets.conformal_set(new_probabilities, places, kind="rank")
    np.testing.assert_array_equal(chosen, theirs.predict_with_logits(new).numpy().astype(bool))


def test_scores_of_labels_are_those_of_mapie(rng):
    logits, labels = batch(rng, 200, 7)
    probabilities = softmax(logits).astype(np.float32)
    sums, ranks = APSConformityScore.get_true_label_cumsum_proba(labels, probabilities, range(7))
    ours = sets.conformal_label_scores(probabilities, labels, kind="aps")
    own = probabilities[np.arange(200), labels]
    # A sum of seven numbers below 1.
    np.testing.assert_allclose(ours + own, sums[:, 0], atol=5e-7)
    np.testing.assert_array_equal(
        sets.conformal_label_scores(probabilities, labels, kind="rank"), ranks
    )


@pytest.mark.parametrize("error", [0.05, 0.1, 0.2])
def test_sets_by_class_are_those_of_crepes(rng, error):
    # It keeps a class whose p-value equals the error, although the guarantee does not need it. So
    # no error (n + 1) is an integer here.
    labels = np.repeat(np.arange(4), [40, 31, 18, 5]).astype(np.int32)
    scores = rng.normal(size=(len(labels), 4)).astype(np.float32)
    new = rng.normal(size=(60, 4)).astype(np.float32)
    quantiles = sets.class_conditional_quantiles(scores, labels, error=error)
    chosen = np.asarray(sets.score_set(new, quantiles))
    for label in range(4):
        classifier = ConformalClassifier().fit(scores[labels == label, label])
        expected = classifier.predict_set(new[:, [label]], confidence=1 - error, smoothing=False)
        np.testing.assert_array_equal(chosen[:, [label]], expected)


def test_clusters_are_those_of_scikit_learn(rng, key):
    centers = 4 * np.eye(5)[rng.integers(5, size=60)]
    points = (centers + rng.normal(size=(60, 5))).astype(np.float32)
    weights = rng.random(60).astype(np.float32)
    ours = np.asarray(_class_quantiles._k_means(key, jnp.asarray(points), jnp.asarray(weights), 5))
    theirs = KMeans(5, n_init=10, random_state=0).fit(points, sample_weight=weights).labels_
    # The same pairs are together.
    np.testing.assert_array_equal(ours[:, None] == ours, theirs[:, None] == theirs)
