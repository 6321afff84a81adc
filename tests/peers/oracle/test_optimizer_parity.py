"""Our SGD with its step decay is PyTorch's, step for step."""

import jax
import numpy as np
import pytest
import torch

from train.configuration import OptimizerFields
from train.training import optimizer


# optax's schedule compares floats with integers.
@jax.numpy_dtype_promotion("standard")
@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_is_that_of_pytorch(rng, nesterov):
    start = rng.normal(size=50).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    peer = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=1e-3)
    decay = torch.optim.lr_scheduler.MultiStepLR(peer, milestones=[2, 4], gamma=0.1)
    settings = {
        "name": "sgd",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "nesterov": nesterov,
        "beta2": None,
        "weight_decay": 1e-3,
        "schedule": "step",
        "decay_epochs": (2, 4),
        "decay_factor": 0.1,
        "warmup_epochs": 0.0,
        "clip_norm": None,
        "average_decay": None,
        "head_learning_rate": None,
        "layer_decay": None,
        "decay_biases_and_norms": True,
    }
    settings = OptimizerFields(**settings)
    values = optimizer.hyperparameters(settings)
    sgd = optimizer.build(settings, values, num_epochs=6, steps_per_epoch=5).transformation
    ours = {"weights": start}
    state = sgd.init(ours)
    for _epoch in range(6):
        for _step in range(5):
            gradient = rng.normal(size=50).astype(np.float32)
            updates, state = sgd.update({"weights": gradient}, state, ours)
            ours = {"weights": np.asarray(ours["weights"] + updates["weights"])}
            theirs.grad = torch.tensor(gradient)
            peer.step()
            # The same float32 operations; a compiler may fuse two of them.
            np.testing.assert_allclose(
                ours["weights"], theirs.detach().numpy(), rtol=1e-5, atol=1e-6
            )
        decay.step()
