"""Training steps by loss: images per second, and the cost of a loss beyond cross-entropy.

    python -m benchmarks.train_step [--model densenet_40_40 resnet50] [--output=FILE.json]

Needs no data set. A step is the program's own: images to float32, forward, backward, SGD with
Nesterov momentum. Each loss is also timed without the network, forward and backward on logits of
the same shape, because a millisecond is not measurable in a step of a second. K is 5, as in the
thesis's figure 4.3. On a CPU a step takes seconds, and its compilation longer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import jax_utils

from benchmarks import table, timing
from topk_jax import losses
from train.devices.devices import PmapDevices
from train.models import build_model
from train.training import randomness, steps
from train.training.objectives import Objective
from train.training.optimizer import Optimizer
from train.training.state import initial_state, initializer, num_parameters

AXIS_NAME = "devices"
# So small that the parameters, and with them the time of a step, hardly change.
LEARNING_RATE = 1e-6
LOSS_REPETITIONS = 101

# Logits [n, L], labels [n] and one random key per example [n] to losses [n].
Loss = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
# Name, K and M.
Title = tuple[str, int | None, int | None]


def _noised(num_samples: int) -> Loss:
    return lambda logits, labels, keys: losses.noised_top_k_hinge(
        logits, labels, k=5, epsilon=1.0, num_samples=num_samples, key=keys
    )


def _without_keys(loss: Callable[..., jax.Array], **parameters: Any) -> Loss:
    return lambda logits, labels, _keys: loss(logits, labels, **parameters)


# First the one that the others are compared with.
LOSSES: dict[Title, Loss] = {
    ("cross_entropy", None, None): _without_keys(losses.cross_entropy),
    ("noised_top_k_hinge", 5, 3): _noised(3),
    ("noised_top_k_hinge", 5, 10): _noised(10),
    ("expected_top_k_hinge", 5, None): _without_keys(losses.expected_top_k_hinge, k=5, epsilon=1.0),
    ("smooth_top_k_hinge", 5, None): _without_keys(losses.smooth_top_k_hinge, k=5, tau=1.0),
}
_BASE = ("cross_entropy", None, None)


@dataclass(frozen=True)
class Workload:
    """What a network is trained on: height and width in pixels, classes, and the batch."""

    size: int
    num_classes: int
    batch: int


WORKLOADS = {
    "densenet_40_40": Workload(size=32, num_classes=100, batch=64),
    "resnet50": Workload(size=224, num_classes=1081, batch=32),
    # For `--smoke`.
    "small_cnn": Workload(size=8, num_classes=10, batch=4),
}


def main() -> None:
    """Measures every network and prints or writes the results as JSON."""
    parser = timing.parser(__doc__, repetitions=21, what="timed steps of each")
    parser.add_argument("--model", nargs="+", choices=WORKLOADS)
    given = timing.parse(parser)
    chosen = given.model or (["small_cnn"] if given.smoke else ["densenet_40_40", "resnet50"])
    results = {
        "machine": timing.machine("flax"),
        "step_repetitions": given.repetitions,
        "loss_repetitions": LOSS_REPETITIONS,
        "models": [_measure(name, given.repetitions) for name in chosen],
    }
    timing.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """Times of a step and of only the loss, and what the loss adds to the step of cross-entropy."""
    parts = [
        f"{table.machine(results)}; medians of {results['step_repetitions']} steps and of "
        f"{results['loss_repetitions']} evaluations of the loss alone, in turns."
    ]
    for model in results["models"]:
        parts += [
            f"`{model['model']}`, {model['parameters']:,} parameters, batch {model['batch']}, "
            f"{model['size']} by {model['size']} pixels, {model['classes']:,} classes:",
            table.markdown(
                [
                    *("loss", "K", "M", "loss alone, ms", "more than cross-entropy, % of a step"),
                    *("step, ms", "images/s", "step, % over cross-entropy"),
                ],
                (_line(row) for row in model["losses"]),
            ),
        ]
    return "\n\n".join(parts)


def _line(row: Mapping[str, Any]) -> list[str]:
    return [
        row["loss"],
        *("–" if row[name] is None else str(row[name]) for name in ("K", "M")),
        f"{1e3 * row['loss_seconds']:.2f}",
        f"{row['loss_overhead_percent']:.2f}",
        f"{1e3 * row['step_seconds']:,.1f}",
        f"{row['images_per_second']:,.0f}",
        f"{row['step_overhead_percent']:+.1f}",
    ]


def _measure(name: str, repetitions: int) -> dict[str, Any]:
    """The median seconds of a step with each loss, and of only each loss, for one network."""
    workload = WORKLOADS[name]
    contestants, num_trained = _whole_steps(name, workload)
    of_step = timing.medians_in_turns(contestants, repetitions)
    of_loss = timing.medians_in_turns(
        {title: _loss_alone(loss, workload) for title, loss in LOSSES.items()},
        LOSS_REPETITIONS,
    )
    step_of_base, loss_of_base = of_step[_BASE], of_loss[_BASE]
    rows = []
    for title in LOSSES:
        step, alone = of_step[title], of_loss[title]
        rows.append(
            {
                **dict(zip(("loss", "K", "M"), title, strict=True)),
                "loss_seconds": alone,
                # What the loss adds to a step of cross-entropy, by the times of the losses.
                "loss_overhead_percent": 100 * (alone - loss_of_base) / step_of_base,
                "step_seconds": step,
                "images_per_second": workload.batch / step,
                "step_overhead_percent": 100 * (step / step_of_base - 1),
            }
        )
    return {
        "model": name,
        "parameters": num_trained,
        "size": workload.size,
        "classes": workload.num_classes,
        "batch": workload.batch,
        "losses": rows,
    }


def _whole_steps(name: str, workload: Workload) -> tuple[dict[Title, timing.Contestant], int]:
    """A training step with each loss, and the number of parameters.

    All of them change one state in turn, so that memory holds it once.
    """
    devices = jax.devices()[:1]
    model = build_model(
        name,
        num_classes=workload.num_classes,
        head="linear",
        axis_name=AXIS_NAME,
        half_precision=False,
    )
    schedule = optax.constant_schedule(LEARNING_RATE)
    sgd = optax.chain(
        optax.add_decayed_weights(1e-4), optax.sgd(schedule, momentum=0.9, nesterov=True)
    )
    hyperparameters = {"seed": np.uint32(0), "loss": {}, "optimizer": {}}
    image_shape = (workload.size, workload.size, 3)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(
        lambda key: initial_state(initializer(model, image_shape), sgd, key), jax.random.key(0)
    )
    # Drawn here, because the initialisation would take as long to compile as many steps take to
    # run.
    state = jax_utils.replicate(jax.tree.map(partial(_drawn, rng), shapes), devices)
    examples = {
        "images": rng.integers(0, 256, (workload.batch, *image_shape)).astype(np.uint8),
        "labels": rng.integers(0, workload.num_classes, workload.batch).astype(np.int32),
        "positions": np.arange(workload.batch, dtype=np.int32),
    }
    examples = jax_utils.replicate(examples, devices)

    def contestant(loss: Loss) -> timing.Contestant:
        step = steps.make_train_step(
            model,
            # A training step makes no use of the loss of evaluation; no labels are estimated.
            lambda _values: Objective(
                lambda logits, labels, keys, _estimates: loss(logits, labels, keys),
                evaluation_loss=losses.cross_entropy,
            ),
            lambda _values: Optimizer(sgd, schedule),
            augment=lambda _key, image: image,
            normalize=lambda images: images.astype(jnp.float32) / 128 - 1,
            devices=PmapDevices(),
        )
        compiled = jax.pmap(
            lambda state, batch: step(state, hyperparameters, batch),
            axis_name=AXIS_NAME,
            devices=devices,
            donate_argnums=0,
        )

        def run() -> None:
            nonlocal state
            state, metrics = compiled(state, examples)
            jax.block_until_ready((state, metrics))

        return run

    contestants = {title: contestant(loss) for title, loss in LOSSES.items()}
    return contestants, num_parameters(shapes.params)


def _loss_alone(loss: Loss, workload: Workload) -> timing.Contestant:
    """Forward and backward of the mean loss, random keys included."""
    rng = np.random.default_rng(0)
    batch = workload.batch
    logits = rng.normal(size=(batch, workload.num_classes)).astype(np.float32)
    labels = rng.integers(0, workload.num_classes, batch).astype(np.int32)
    positions = np.arange(batch, dtype=np.int32)

    def with_keys(
        logits: jax.Array, labels: jax.Array, positions: jax.Array, step: jax.Array
    ) -> jax.Array:
        return loss(logits, labels, randomness.loss_keys(0, step, positions))

    compiled = timing.value_and_gradient(with_keys)
    return timing.blocking(compiled, logits, labels, positions, np.int32(0))


def _drawn(rng: np.random.Generator, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    """Small normals for a matrix or a convolution, ones for scales and variances."""
    if leaf.ndim > 1:
        return rng.normal(scale=0.05, size=leaf.shape).astype(leaf.dtype)
    return np.ones(leaf.shape, leaf.dtype)


if __name__ == "__main__":
    main()
