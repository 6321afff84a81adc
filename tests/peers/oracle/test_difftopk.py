"""Relaxed ranks and their cross-entropy equal difftopk, the authors' PyTorch code.

Both compute in float64; difftopk's networks are matrices of zeros, ones and halves, which are exact
in float32. difftopk sorts in ascending order: its last column has rank 1. Its `steepness` and its
`inverse_temperature` are 1 / tau.
"""

import functools

import difftopk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from difftopk import networks

from topk_jax import losses, operators

# The distributions P_K that difftopk's README trains with.
DISTRIBUTIONS = [
    [1.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, 1.0],
    [0.5, 0.0, 0.0, 0.0, 0.5],
    [0.25, 0.0, 0.0, 0.0, 0.75],
    [0.1, 0.0, 0.0, 0.0, 0.9],
    [0.2, 0.2, 0.2, 0.2, 0.2],
]
# Its distributions of swaps, and ours.
SWAPS = {
    "logistic": {"swap": "logistic"},
    "cauchy": {"swap": "cauchy"},
}
# The method, its distribution and inverse temperature for ImageNet, CIFAR-100, and in the README.
SETTINGS = [
    ("odd_even", "logistic", 0.5),
    ("odd_even", "cauchy", 2.0),
    ("softsort", None, 0.5),
    ("softsort", None, 0.0625),
]
METHODS = {
    "odd_even": "odd_even",
    "softsort": "soft_sort",
}
# Sums of some hundred products of float64 in another order. difftopk's networks have
# 100 layers of differences.
ROUNDING = 1e-9


@pytest.fixture(autouse=True)
def _float64(monkeypatch):
    # The networks multiply a unit matrix in float32.
    monkeypatch.setattr(torch, "FloatTensor", torch.DoubleTensor)
    torch.set_default_dtype(torch.float64)
    # Its threads wait for each other in thousands of operations on a few numbers.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with jax.enable_x64(True):
        yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float32)


def make_batch(rng, num_classes, batch=6):
    logits = 2 * rng.normal(size=(batch, num_classes))
    return logits, rng.integers(0, num_classes, batch).astype(np.int32)


def relaxation(method, distribution, inverse_temperature):
    swap = {} if distribution is None else SWAPS[distribution]
    return {"method": METHODS[method], "tau": 1 / inverse_temperature, **swap}


def in_float64(network):
    return [[matrix.double() for matrix in layer] for layer in network]


def their_loss(method, distribution, inverse_temperature, num_classes, **options):
    loss = difftopk.TopKCrossEntropyLoss(
        method,
        inverse_temperature,
        n=num_classes,
        distribution=distribution,
        **options,
    )
    if hasattr(loss, "top_k_net"):
        loss.top_k_net.sorting_network = in_float64(loss.top_k_net.sorting_network)
    return loss


def their_values(loss, logits, labels):
    """Each example's loss, and the gradient of their sum."""
    scores = torch.tensor(logits, requires_grad=True)
    targets = torch.tensor(labels, dtype=torch.int64)
    # difftopk returns the mean over a batch.
    values = torch.stack([loss(scores[i : i + 1], targets[i : i + 1]) for i in range(len(labels))])
    values.sum().backward()
    return values.detach().numpy(), scores.grad.numpy()


def with_their_floor(value, gradient):
    """-log(p (1 - 2e-7) + 1e-7), for the p of our -log p."""
    probability = np.exp(-value) * (1 - 2e-7)
    share = probability / (probability + 1e-7)
    return -np.log(probability + 1e-7), share[:, None] * gradient


@functools.partial(jax.jit, static_argnames=("method", "swap", "num_candidates", "softmax_top_1"))
def our_values(logits, labels, **options):
    def total(logits):
        values = losses.relaxed_top_k_cross_entropy(logits, labels, **options)
        return values.sum(), values

    (_, values), gradient = jax.value_and_grad(total, has_aux=True)(logits)
    return values, gradient


def assert_same_loss(rng, setting, p_k, num_classes, num_candidates, top1_mode):
    logits, labels = make_batch(rng, num_classes)
    loss = their_loss(*setting, num_classes, p_k=p_k, m=num_candidates, top1_mode=top1_mode)
    expected = their_values(loss, logits, labels)
    ours = our_values(
        logits,
        labels,
        top_k_weights=jnp.asarray(p_k),
        num_candidates=num_candidates,
        softmax_top_1=top1_mode == "sm",
        **relaxation(*setting),
    )
    for one, other in zip(with_their_floor(*map(np.asarray, ours)), expected, strict=True):
        # Near the floor of a probability, its slope divides the roundings of 50 layers by it.
        np.testing.assert_allclose(one, other, rtol=100 * ROUNDING, atol=100 * ROUNDING)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(("num_classes", "num_candidates"), [(1000, 16), (1081, 50)])
def test_loss_of_candidates(rng, setting, num_classes, num_candidates):
    for p_k in DISTRIBUTIONS:
        assert_same_loss(rng, setting, p_k, num_classes, num_candidates, "sm")


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_loss_of_all_classes(rng, setting):
    # Those of CIFAR-100; for 100 classes difftopk's odd-even network takes 30 seconds to make.
    num_classes = 30 if setting[0] == "odd_even" else 100
    for p_k in DISTRIBUTIONS[2:4]:
        assert_same_loss(rng, setting, p_k, num_classes, None, "sm")


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_loss_without_a_softmax(rng, setting):
    for p_k in DISTRIBUTIONS[2:4]:
        assert_same_loss(rng, setting, p_k, 40, 16, "sort")


our_ranks = jax.jit(
    operators.relaxed_ranks, static_argnums=1, static_argnames=("method", "swap", "axis")
)


def assert_same_ranks(ranks, expected):
    """Ours [n, k, L] and theirs [n, L, k], in ascending order."""
    expected = np.moveaxis(expected.detach().numpy(), -1, -2)[:, ::-1]
    np.testing.assert_allclose(ranks, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("distribution", SWAPS)
@pytest.mark.parametrize("size", [2, 5, 16, 21])
def test_ranks_of_the_network(rng, distribution, size):
    k = min(5, size)
    scores, _ = make_batch(rng, size)
    net = difftopk.DiffTopkNet("odd_even", size, k, steepness=10.0, distribution=distribution)
    net.sorting_network = in_float64(networks.get_sorting_network("odd_even", size, "cpu"))
    expected = net(torch.tensor(scores))[1]
    ranks = our_ranks(scores, k, method="odd_even", tau=0.1, **SWAPS[distribution])
    assert_same_ranks(ranks, expected)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_ranks_by_a_softmax(rng, size):
    k = min(5, size)
    scores, _ = make_batch(rng, size)
    # As in their loss: ranks are rows of the matrix of the negative scores.
    expected = difftopk.SoftSort(tau=2.0)(-torch.tensor(scores)).transpose(-2, -1)[:, :, -k:]
    assert_same_ranks(our_ranks(scores, k, method="soft_sort", tau=2.0), expected)
