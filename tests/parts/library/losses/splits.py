"""A batch in equal shares on several devices, by each of the ways that JAX has to do it."""

import functools

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

AXIS = "devices"
# Both map the same code: one number of devices shows it for `pmap`.
SPLITS = ((1, "shard_map"), (2, "shard_map"), (4, "shard_map"), (8, "shard_map"), (8, "pmap"))


def split(function, num_devices, mapping):
    """A function of (what devices share, their shares [n, ...]), from one of a device's share.

    What they share must have leaves: of an empty tree `pmap` mistakes the axes.
    Every array that `function` returns comes back stacked over the devices, `[num_devices, ...]`.
    `mapping` is "pmap", "shard_map" (with check_vma=False) or "checked_shard_map" (with True).
    """
    devices = np.array(jax.devices()[:num_devices])
    assert len(devices) == num_devices
    if mapping == "pmap":
        mapped = jax.pmap(function, axis_name=AXIS, in_axes=(None, 0), devices=list(devices))
    else:
        mapped = jax.jit(
            jax.shard_map(
                functools.partial(_on_a_row, function),
                mesh=Mesh(devices, (AXIS,)),
                in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
                out_specs=PartitionSpec(AXIS),
                check_vma=mapping == "checked_shard_map",
            )
        )

    def call(shared, batch):
        shares = jax.tree.map(lambda x: x.reshape(num_devices, -1, *x.shape[1:]), batch)
        return mapped(shared, shares)

    return call


def _on_a_row(function, shared, rows):
    """What `pmap` does by itself: take the leading axis off a device's share, and put it back."""
    result = function(shared, jax.tree.map(lambda x: x[0], rows))
    return jax.tree.map(lambda x: x[None], result)


def training_step(loss):
    """One device's part of a step: the loss of linear heads, and the gradients it leads to.

    The heads share their parameters [d, L] over the devices; each example has features and
    offsets of its own, so that the gradient in the offsets is that in the logits. The step
    averages the gradients of what is shared over the devices.
    """

    def objective(params, offsets, features, labels):
        heads = [features @ matrix + offset for matrix, offset in zip(params, offsets, strict=True)]
        return loss(*heads, labels, axis_name=AXIS)

    def step(params, share):
        offsets, features, labels = share
        gradient = jax.value_and_grad(objective, argnums=(0, 1))
        value, (in_params, in_logits) = gradient(params, offsets, features, labels)
        return value, jax.lax.pmean(in_params, AXIS), in_logits

    return step


def check_training_step(step, num_devices, mapping, heads, reference, gradient, labels, rng):
    """Compare every device's result of a split `training_step` with the global batch's reference.

    Args:
        step: what `split(training_step(loss), num_devices, mapping)` gave.
        num_devices: the number of shares.
        mapping: as given to `split`.
        heads: the logits of each head, `[n, L]`, in float32.
        reference: the value as a function of the heads and the labels.
        gradient: its gradients in the heads, likewise.
        labels: integers `[n]`.
        rng: draws the features and the parameters, which the offsets make up for.
    """
    features = rng.normal(size=(len(labels), 3)).astype(np.float32)
    params = [rng.normal(size=(3, head.shape[-1])).astype(np.float32) for head in heads]
    offsets = [head - features @ matrix for head, matrix in zip(heads, params, strict=True)]
    value, in_params, in_logits = step(params, (offsets, features, labels))
    # float32 sums of some 60 terms of order 1, each from logits that are rounded to 1e-6 here.
    tolerance = {"rtol": 2e-5, "atol": 2e-6}
    np.testing.assert_allclose(value, np.full(num_devices, reference(*heads, labels)), **tolerance)
    local = 1 if mapping == "checked_shard_map" else num_devices
    wanted = gradient(*heads, labels)
    for in_matrix, in_head, want in zip(in_params, in_logits, wanted, strict=True):
        for on_device in in_matrix:
            np.testing.assert_allclose(on_device, features.T.astype(np.float64) @ want, **tolerance)
        np.testing.assert_allclose(np.concatenate(in_head) / local, want, **tolerance)
