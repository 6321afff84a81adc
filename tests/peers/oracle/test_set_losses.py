"""Losses of sets equal TorchCP's where both compute the same.

TorchCP calibrates on the first examples of a batch and not on every second one, and its hard
quantile has no gradient. Its smooth quantile takes the rank from the top of scores that are sorted
downwards, so it is not compared.
"""

import jax
import numpy as np
import pytest
import torch

from tests.peers.oracle import torchcp_modules
from topk_jax import losses

# Its predictors warn of an argument of theirs, also without it.
pytestmark = pytest.mark.filterwarnings("ignore")
NUMBER, CLASSES = 32, 6
# Exact in binary, as is 17 (1 - error), for TorchCP multiplies with it in float32.
ERROR, TEMPERATURE = 0.125, 0.5
# The smooth quantile is the hard one with it: the scores are farther apart.
SMOOTHING = 1e-6
# Sums of float32 numbers in another order; logarithms and their exponentials.
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


@pytest.fixture
def batch(rng):
    """Logits and labels in our order, and in TorchCP's with the calibrating examples first."""
    logits = 2 * rng.normal(size=(NUMBER, CLASSES)).astype(np.float32)
    labels = rng.integers(CLASSES, size=NUMBER).astype(np.int32)
    order = np.concatenate([np.arange(0, NUMBER, 2), np.arange(1, NUMBER, 2)])
    theirs = torch.tensor(logits[order], requires_grad=True)
    return logits, labels, order, theirs, torch.tensor(labels[order], dtype=torch.int64)


def of_torchcp(name, kind, score, **options):
    """A loss of TorchCP with a hard quantile of one half."""
    predictor = torchcp_modules.load_one("predictor").SplitPredictor(
        getattr(torchcp_modules.load_one("score"), kind)(**score), alpha=ERROR, device="cpu"
    )
    module = torchcp_modules.load_one(f"loss.{name.lower().removesuffix('loss')}")
    return getattr(module, name)(predictor, **options)


def value_and_gradient(loss, logits, labels):
    value = loss(logits, labels)
    value.backward()
    return value.item(), logits.grad.numpy()


@pytest.mark.parametrize(
    ("conformity", "score_type"), [("log_probability", "log_softmax"), ("logit", "identity")]
)
@pytest.mark.parametrize("part", ["valid", "classification"])
def test_the_parts_of_conformal_training(batch, part, conformity, score_type):
    logits, labels, order, their_logits, their_labels = batch
    of_theirs = of_torchcp(
        "ConfTrLoss",
        "LAC",
        {"score_type": score_type},
        alpha=ERROR,
        fraction=0.5,
        soft_qunatile=False,
        epsilon=TEMPERATURE,
        loss_type=part,
        loss_transform="abs",
    )
    expected, gradient = value_and_gradient(of_theirs, their_logits, their_labels)

    def ours(logits):
        # Either the sizes alone, or the missed coverage alone.
        loss = losses.conformal_training(
            logits,
            labels,
            error=ERROR,
            temperature=TEMPERATURE,
            smoothing=SMOOTHING,
            size_weight=1.0 if part == "valid" else 0.0,
            loss_matrix=np.zeros((CLASSES, CLASSES), np.float32) if part == "valid" else None,
            conformity=conformity,
        )
        return jax.numpy.exp(loss) - 1e-8

    value, found = jax.value_and_grad(ours)(logits)
    np.testing.assert_allclose(value, expected, **CLOSE)
    # Of the examples with sets: the others have a gradient through the quantile only here.
    with_sets = slice(NUMBER // 2, None)
    np.testing.assert_allclose(found[order[with_sets]], gradient[with_sets], **CLOSE)
    assert not gradient[: NUMBER // 2].any()


def test_the_gap_of_conformal_temperature_scaling(batch):
    logits, labels, order, their_logits, their_labels = batch
    of_theirs = of_torchcp(
        "ConfTSLoss",
        "APS",
        {"score_type": "softmax", "randomized": False},
        alpha=ERROR,
        fraction=0.5,
        soft_qunatile=False,
    )
    expected, gradient = value_and_gradient(of_theirs, their_logits, their_labels)
    value, found = jax.value_and_grad(losses.efficiency_gap)(logits, labels, error=ERROR)
    np.testing.assert_allclose(value, expected, **CLOSE)
    with_sets = slice(NUMBER // 2, None)
    np.testing.assert_allclose(found[order[with_sets]], gradient[with_sets], **CLOSE)
