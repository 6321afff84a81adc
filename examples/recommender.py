"""Top-20 and average-20 sets of a million items, which are split over eight devices.

    python -m examples.recommender

Two towers make the vectors of the users and of the items. Each device has an eighth of the items:
their vectors, their part of the optimizer's state, and their scores. No array on a device has an
entry for every item. Without accelerators the devices are threads of the CPU, and it takes a minute
or two. A smaller number of items may follow the command.

Few of the items are ever taken, so that 50 steps can teach which. The sets still choose among all.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec

from topk_jax import heads, losses, metrics, sets

NUM_ITEMS = 1_000_000
NUM_TASTES = 40
# Tastes are narrow and wide in turns, so that some users should get larger sets than others.
NUM_LIKED = (5, 50)
WIDTH = 32
K = 20
BATCH_SIZE = 64
NUM_STEPS = 50
NUM_CALIBRATION_USERS = 128
NUM_TEST_BATCHES = 10
# How many users' best items are printed, and how many of each.
SHOWN = (3, 5)
OPTIMIZER = optax.adam(0.03)

# "users" is a layer [features, WIDTH] that makes the vectors of users from their features. "items"
# has the vectors of the items, [WIDTH, items].
Model = dict[str, jax.Array]


class Tastes:
    """Users who each have one taste, which likes some items that no other taste likes.

    Attributes:
        odds: how often each item of a taste is taken, `[tastes, items of a taste]`; 0 where a
            narrow taste has no item.
    """

    def __init__(self, num_items: int) -> None:
        self._rng = np.random.default_rng(0)
        ranks = np.arange(max(NUM_LIKED))
        sizes = np.resize(NUM_LIKED, (NUM_TASTES, 1))
        popularity = np.where(ranks < sizes, 1 / (ranks + 3), 0)
        self.odds = popularity / popularity.sum(axis=1, keepdims=True)
        self._items = self._rng.choice(num_items, popularity.shape, replace=False)
        self._vectors = self._rng.normal(size=(NUM_TASTES, WIDTH))

    def draw(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The features of new users, `[size, WIDTH]`, and the next item of each, `[size]`."""
        tastes = self._rng.integers(NUM_TASTES, size=size)
        features = self._vectors[tastes] + 0.3 * self._rng.normal(size=(size, WIDTH))
        ranks = [self._rng.choice(len(odds), p=odds) for odds in self.odds[tastes]]
        return features.astype(np.float32), self._items[tastes, ranks].astype(np.int32)

    def best(self) -> dict[str, float]:
        """The recall of the best sets: the same for all users, of K items, and of K on average."""
        everything = np.sort(self.odds.ravel())
        return {
            "popular": everything[-K:].sum() / NUM_TASTES,
            "top": np.sort(self.odds, axis=1)[:, -K:].sum() / NUM_TASTES,
            "average": everything[-K * NUM_TASTES :].sum() / NUM_TASTES,
        }


def vectors_and_items(model: Model, features: jax.Array) -> tuple[jax.Array, heads.LinearHead]:
    """The vectors of the users, and the items that this device has."""
    users = features @ model["users"]
    # Vectors of one length make the scores of different users comparable.
    users = WIDTH**0.5 * users / jnp.linalg.norm(users, axis=-1, keepdims=True)
    return users, heads.LinearHead(model["items"])


def own_scores(model: Model, features: jax.Array) -> jax.Array:
    """The scores of the items that this device has."""
    return heads.scores(*vectors_and_items(model, features))


def mean_loss(model: Model, features: jax.Array, taken: jax.Array, key: jax.Array) -> jax.Array:
    """The mean loss of a batch of users."""
    scores = own_scores(model, features)
    return losses.noised_top_k_hinge(
        scores, taken, k=K, epsilon=1.0, num_samples=3, key=key, class_axis_name="items"
    ).mean()


def average_threshold(model: Model, features: jax.Array) -> jax.Array:
    """The threshold for sets of K items on average."""
    return sets.average_k_threshold(own_scores(model, features), k=K, class_axis_name="items")


def best_items(model: Model, features: jax.Array) -> jax.Array:
    """The K best items of each user, best first."""
    _, items = heads.top_k(*vectors_and_items(model, features), k=K, class_axis_name="items")
    return items


def hits_and_sizes(
    model: Model, threshold: jax.Array, features: jax.Array, taken: jax.Array
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Whether the sets have the next item of each user, and their sizes."""
    on_items = {"class_axis_name": "items"}
    scores = own_scores(model, features)
    top = sets.top_k_set(scores, k=K, **on_items)
    average = sets.threshold_set(scores, threshold, **on_items)
    return {
        "top": (
            metrics.top_k_hits(scores, taken, k=K, **on_items),
            metrics.set_sizes(top, **on_items),
        ),
        "average": (
            metrics.threshold_hits(scores, taken, threshold, **on_items),
            metrics.set_sizes(average, **on_items),
        ),
    }


def on_each_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that each device calls for its own items, with the same result on all devices.

    The types of the arguments show how they are split, because the axis of the mesh is Explicit.
    """
    # It keeps the first mesh that it is called with. So each program has one of its own.
    return jax.shard_map(function, out_specs=PartitionSpec())


def step(
    model: Model, state: optax.OptState, features: jax.Array, taken: jax.Array, key: jax.Array
) -> tuple[Model, optax.OptState, jax.Array]:
    """One step of the optimizer, whose state is split like the model."""
    loss, gradient = jax.value_and_grad(on_each_device(mean_loss))(model, features, taken, key)
    updates, state = OPTIMIZER.update(gradient, state)
    return optax.apply_updates(model, updates), state, loss


def compiled(model: Model, state: optax.OptState, tastes: Tastes) -> dict[str, jax.stages.Compiled]:
    """The programs by name, compiled before they run so that their memory is known."""
    users, taken = tastes.draw(BATCH_SIZE)
    calibration_users, _ = tastes.draw(NUM_CALIBRATION_USERS)
    key, threshold = jax.random.key(0), jnp.zeros(())
    lowered = {
        "training": jax.jit(step, donate_argnums=(0, 1)).lower(model, state, users, taken, key),
        "calibration": jax.jit(on_each_device(average_threshold)).lower(model, calibration_users),
        "test": jax.jit(on_each_device(hits_and_sizes)).lower(model, threshold, users, taken),
        "use": jax.jit(on_each_device(best_items)).lower(model, users[: SHOWN[0]]),
    }
    return {name: program.compile() for name, program in lowered.items()}


def trained(
    program: jax.stages.Compiled,
    model: Model,
    state: optax.OptState,
    tastes: Tastes,
    num_steps: int,
) -> tuple[Model, optax.OptState]:
    """The model and the state of the optimizer after some steps."""
    values = []
    start = time.perf_counter()
    for key in jax.random.split(jax.random.key(1), num_steps):
        model, state, loss = program(model, state, *tastes.draw(BATCH_SIZE), key)
        values.append(float(loss))
        if len(values) % 10 == 0:
            print(f"step {len(values)}: mean loss of ten steps {np.mean(values[-10:]):.3f}")
    print(f"{(time.perf_counter() - start) / num_steps:.2f} seconds per step")
    return model, state


def print_memory(
    model: Model, state: optax.OptState, programs: dict[str, jax.stages.Compiled]
) -> None:
    """Prints what each device has, and what each program needs on each device while it runs."""
    print("\ndevice       items   MB of the model and the optimizer's state")
    leaves = jax.tree.leaves((model, state))
    for items in model["items"].addressable_shards:
        shards = [shard for leaf in leaves for shard in leaf.addressable_shards]
        held = sum(shard.data.nbytes for shard in shards if shard.device == items.device)
        print(f"{items.device!s:8} {items.data.shape[1]:9,} {held / 1e6:9.1f}")
    for name, program in programs.items():
        if (memory := program.memory_analysis()) is not None:
            print(f"{name}: {memory.temp_size_in_bytes / 1e6:.1f} MB more on each device")


def print_recalls(
    found: dict[str, tuple[jax.Array, jax.Array]], tastes: Tastes
) -> dict[str, float]:
    """Prints how often sets have the next item of new users, and returns it by name."""
    best = tastes.best()
    print("\nsets of new users        mean size   recall   best possible")
    print(f"most popular items {K:15} {best['popular']:8.3f}")
    recalls = {}
    for name in ("top", "average"):
        hits, sizes = found[name]
        recalls[name] = float(hits.mean())
        mean_size = metrics.tally(sizes).mean()
        print(f"{name}-{K:<18} {mean_size:8.1f} {recalls[name]:8.3f} {best[name]:8.3f}")
    return recalls


def main(
    num_items: int = NUM_ITEMS,
    num_steps: int = NUM_STEPS,
    devices: Sequence[jax.Device] | None = None,
) -> dict[str, float]:
    """Trains, and returns the recall of the top-K and of the average-K sets of new users."""
    devices = devices or jax.devices()
    # All devices have equally many items.
    num_items -= num_items % len(devices)
    print(f"{num_items:,} items on {len(devices)} devices")
    tastes = Tastes(num_items)
    mesh = jax.make_mesh((len(devices),), ("items",), devices=devices)
    with jax.set_mesh(mesh):
        model = {
            "users": jax.random.normal(jax.random.key(0), (WIDTH, WIDTH)),
            "items": jnp.zeros((WIDTH, num_items), out_sharding=PartitionSpec(None, "items")),
        }
        state = OPTIMIZER.init(model)
        programs = compiled(model, state, tastes)
        model, state = trained(programs["training"], model, state, tastes, num_steps)
        calibration_users, _ = tastes.draw(NUM_CALIBRATION_USERS)
        threshold = programs["calibration"](model, calibration_users)
        batches = [tastes.draw(BATCH_SIZE) for _ in range(NUM_TEST_BATCHES)]
        found = [jax.device_get(programs["test"](model, threshold, *batch)) for batch in batches]
        best = jax.device_get(programs["use"](model, batches[0][0][: SHOWN[0]]))
    print_memory(model, state, programs)
    print("\nbest items of new users, best first")
    for items in best[:, : SHOWN[1]]:
        print(*items)
    return print_recalls(jax.tree.map(lambda *parts: np.concatenate(parts), *found), tastes)


if __name__ == "__main__":
    # This has no effect on accelerators.
    jax.config.update("jax_num_cpu_devices", 8)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else NUM_ITEMS)
