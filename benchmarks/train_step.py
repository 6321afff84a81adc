"""Training steps by loss and K: images per second, and the cost of a loss beyond cross-entropy.

    python -m benchmarks.train_step [--device=cpu] [--model densenet_40_40 resnet50] [--batch=64]
        [--ranks 5 10] [--repetitions=21] [--output=FILE.json]

Needs jax, numpy, optax and flax, and no data set. A step is the program's own: images to float32,
forward, backward, SGD with Nesterov momentum. Each loss is also timed without the network, forward
and backward on logits of the same shape, because a millisecond is not measurable in a step of a
second. On a CPU a step takes seconds, and its compilation longer. There the batches are smaller
than in the recipes, and only the losses of the thesis's figure 4.3, at K = 5, are timed in complete
steps.
"""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import jax_utils

from benchmarks import command, timing
from topk_jax import losses
from train.devices.devices import PmapDevices
from train.models import build_model
from train.training import randomness, steps
from train.training.objectives import Objective
from train.training.optimizer import Optimizer
from train.training.state import initial_state, initializer, num_parameters

AXIS_NAME = "devices"
EPSILON = 1.0
TAU = 1.0
# So small that the parameters, and with them the time of a step, hardly change.
LEARNING_RATE = 1e-6
LOSS_REPETITIONS = 101


@dataclass(frozen=True)
class Loss:
    """A loss with its set size K and its number of samples M, if it has them.

    Attributes:
        function: logits [n, L], labels [n] and one random key per example [n] to losses [n].
        on_cpu: whether complete steps are timed on a CPU too.
    """

    name: str
    function: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    k: int | None = None
    num_samples: int | None = None
    on_cpu: bool = False

    @property
    def title(self) -> str:
        """A name that no other loss here has."""
        return f"{self.name} K={self.k} M={self.num_samples}"


def _noised(k: int, num_samples: int, *, on_cpu: bool = False) -> Loss:
    def function(logits: jax.Array, labels: jax.Array, keys: jax.Array) -> jax.Array:
        return losses.noised_top_k_hinge(
            logits, labels, k=k, epsilon=EPSILON, num_samples=num_samples, key=keys
        )

    return Loss("noised_top_k_hinge", function, k, num_samples, on_cpu)


def _expected(k: int) -> Loss:
    def function(logits: jax.Array, labels: jax.Array, _keys: jax.Array) -> jax.Array:
        return losses.expected_top_k_hinge(logits, labels, k=k, epsilon=EPSILON)

    return Loss("expected_top_k_hinge", function, k)


def _smooth(k: int, *, on_cpu: bool = False) -> Loss:
    def function(logits: jax.Array, labels: jax.Array, _keys: jax.Array) -> jax.Array:
        return losses.smooth_top_k_hinge(logits, labels, k=k, tau=TAU)

    return Loss("smooth_top_k_hinge", function, k, on_cpu=on_cpu)


# First the loss that the others are compared with, then the others.
CROSS_ENTROPY = Loss(
    "cross_entropy",
    lambda logits, labels, _keys: losses.cross_entropy(logits, labels),
    on_cpu=True,
)
LOSSES = (
    CROSS_ENTROPY,
    _noised(1, 3),
    _noised(5, 3, on_cpu=True),
    _noised(10, 3),
    _noised(20, 3),
    _noised(5, 10),
    _expected(5),
    _smooth(5, on_cpu=True),
    _smooth(10),
    _smooth(20),
)
RANKS = {loss.k for loss in LOSSES}


@dataclass(frozen=True)
class Workload:
    """What a network is trained on.

    Attributes:
        size: height and width of the images in pixels.
        num_classes: the number of classes.
        batch: the recipe's batch.
        cpu_batch: a batch that a CPU gets through in seconds.
    """

    size: int
    num_classes: int
    batch: int
    cpu_batch: int


WORKLOADS = {
    "densenet_40_40": Workload(size=32, num_classes=100, batch=64, cpu_batch=64),
    "resnet50": Workload(size=224, num_classes=1081, batch=32, cpu_batch=8),
}


def main() -> None:
    """Measures every network and prints or writes the results as JSON."""
    parser = command.parser(
        __doc__, repetitions=None, what="timed steps of each; 21 by default, 5 on a CPU"
    )
    command.add_device(parser)
    parser.add_argument("--model", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument(
        "--batch",
        type=command.integer(1),
        help="images per step; by default the recipe's, less on a CPU",
    )
    parser.add_argument(
        "--ranks",
        nargs="+",
        type=command.integer(1),
        help="only the losses with these K, beside cross-entropy",
    )
    arguments = parser.parse_args()
    device = arguments.device
    jax.config.update("jax_default_device", device)
    on_cpu = device.platform == "cpu"
    repetitions = arguments.repetitions or (5 if on_cpu else 21)
    machine = timing.machine()
    machine["versions"]["flax"] = importlib.metadata.version("flax")
    results = {
        "machine": machine,
        "step_repetitions": repetitions,
        "loss_repetitions": LOSS_REPETITIONS,
        "models": [
            measure(
                name,
                [loss for loss in LOSSES if loss.k in {None, *(arguments.ranks or RANKS)}],
                device=device,
                batch=arguments.batch,
                repetitions=repetitions,
            )
            for name in arguments.model
        ],
    }
    command.write(results, arguments.output)


def measure(
    name: str,
    chosen: list[Loss],
    *,
    device: jax.Device,
    batch: int | None,
    repetitions: int,
) -> dict[str, Any]:
    """The median seconds of a step with each loss, and of only each loss, for one network."""
    workload = WORKLOADS[name]
    on_cpu = device.platform == "cpu"
    if batch is None:
        batch = workload.cpu_batch if on_cpu else workload.batch
    stepped = [loss for loss in chosen if loss.on_cpu or not on_cpu]
    contestants, num_trained = whole_steps(name, stepped, batch=batch, device=device)
    step_seconds = timing.medians_in_turns(contestants, repetitions)
    loss_seconds = timing.medians_in_turns(
        {loss.title: loss_alone(loss, batch, workload.num_classes) for loss in chosen},
        LOSS_REPETITIONS,
    )
    step_baseline = step_seconds[CROSS_ENTROPY.title]
    loss_baseline = loss_seconds[CROSS_ENTROPY.title]
    rows = []
    for loss in chosen:
        row = {
            "loss": loss.name,
            "K": loss.k,
            "M": loss.num_samples,
            "loss_seconds": loss_seconds[loss.title],
            # What the loss adds to a step of cross-entropy, by the times of the losses.
            "loss_overhead_percent": 100
            * (loss_seconds[loss.title] - loss_baseline)
            / step_baseline,
        }
        if loss in stepped:
            seconds = step_seconds[loss.title]
            row["step_seconds"] = seconds
            row["images_per_second"] = batch / seconds
            row["step_overhead_percent"] = 100 * (seconds / step_baseline - 1)
        rows.append(row)
    return {
        "model": name,
        "parameters": num_trained,
        "size": workload.size,
        "classes": workload.num_classes,
        "batch": batch,
        "losses": rows,
    }


def whole_steps(
    name: str, stepped: list[Loss], *, batch: int, device: jax.Device
) -> tuple[dict[str, timing.Contestant], int]:
    """A training step with each loss, by its title, and the number of parameters.

    All of them change one state in turn, so that memory holds it once.
    """
    workload = WORKLOADS[name]
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
    state = jax_utils.replicate(jax.tree.map(lambda leaf: _drawn(rng, leaf), shapes), [device])
    examples = {
        "images": rng.integers(0, 256, (batch, *image_shape)).astype(np.uint8),
        "labels": rng.integers(0, workload.num_classes, batch).astype(np.int32),
        "positions": np.arange(batch, dtype=np.int32),
    }
    examples = jax_utils.replicate(examples, [device])

    def contestant(loss: Loss) -> timing.Contestant:
        step = steps.make_train_step(
            model,
            # A training step makes no use of the loss of evaluation; no labels are estimated.
            lambda _values: Objective(
                lambda logits, labels, keys, _estimates: loss.function(logits, labels, keys),
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
            devices=[device],
            donate_argnums=0,
        )

        def run() -> None:
            nonlocal state
            state, metrics = compiled(state, examples)
            jax.block_until_ready((state, metrics))

        return run

    return {loss.title: contestant(loss) for loss in stepped}, num_parameters(shapes.params)


def loss_alone(loss: Loss, batch: int, num_classes: int) -> timing.Contestant:
    """Forward and backward of the mean loss, random keys included."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(batch, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, batch).astype(np.int32)
    positions = np.arange(batch, dtype=np.int32)

    def with_keys(
        logits: jax.Array, labels: jax.Array, positions: jax.Array, step: jax.Array
    ) -> jax.Array:
        return loss.function(logits, labels, randomness.loss_keys(0, step, positions))

    return timing.forward_and_backward(with_keys, logits, labels, positions, np.int32(0))


def _drawn(rng: np.random.Generator, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    """Small normals for a matrix or a convolution, ones for scales and variances."""
    if leaf.ndim > 1:
        return rng.normal(scale=0.05, size=leaf.shape).astype(leaf.dtype)
    return np.ones(leaf.shape, leaf.dtype)


if __name__ == "__main__":
    main()
