"""Losses of a head over blocks of classes: peak memory, and time beside the plain program.

    python -m benchmarks.chunked [--repetitions=5] [--classes=1000000] [--timed_classes=100000]
        [--output=FILE.json]

Needs jax, numpy and optax. It measures on the CPU, in float32, forward and backward of the mean
loss by features and weights. Memory is measured in a process of its own for each loss, which needs
three times the weights; only Linux reports it.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from benchmarks import command, markdown, timing
from topk_jax import heads, losses

BATCH = 256
FEATURES = 128
RANK = 5
NOISE = {"k": RANK, "epsilon": 1.0, "num_samples": 3}
# Average-K has two heads, and so twice the weights.
PARAMETERS: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "top_k_hinge": {"k": RANK},
    "convex_top_k_hinge": {"k": RANK},
    "calibrated_top_k_hinge": {"k": RANK},
    "noised_top_k_hinge": NOISE,
    "average_k": {"k": RANK, "alpha": 1.0},
}

# Maps the features, the weights of all heads and the labels to the mean loss.
Loss = Callable[[jax.Array, tuple[jax.Array, ...], jax.Array], jax.Array]


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=5)
    parser.add_argument(
        "--classes",
        type=command.integer(RANK + 1),
        default=1_000_000,
        help="of the weights whose memory is measured",
    )
    parser.add_argument(
        "--timed_classes",
        type=command.integer(RANK + 1),
        default=100_000,
        help="for the times of both programs; the plain one needs some arrays [batch, classes]",
    )
    arguments = parser.parse_args()
    large = (arguments.classes, arguments.repetitions)
    results = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "batch": BATCH,
        "features": FEATURES,
        "classes": arguments.classes,
        "memory": {
            name: timing.in_process_of_its_own(memory, name, arguments.classes)
            for name in PARAMETERS
        },
        "seconds": timing.in_process_of_its_own(
            seconds, ("cross_entropy", "noised_top_k_hinge"), *large, False
        ),
        "timed_classes": arguments.timed_classes,
        "timed": seconds(tuple(PARAMETERS), arguments.timed_classes, arguments.repetitions, True),
    }
    command.write(results, arguments.output)


def memory(name: str, num_classes: int) -> dict[str, float | None]:
    """Bytes of a call of the chunked loss, and how they compare with the weights and the gradient.

    `temporary` is what XLA plans besides arguments and results. `peak` is the highest memory of the
    process in the call, minus what it had before the weights were made.
    """
    shapes = jax.eval_shape(functools.partial(batch, name, num_classes))
    compiled = gradient(chunked(name)).lower(*shapes).compile()
    before = timing.resident_memory()
    draw = jax.jit(batch, static_argnums=(0, 1))
    data = jax.block_until_ready(draw(name, num_classes))
    needed = 2 * sum(weights.nbytes for weights in data[1])
    call = timing.blocking(compiled, *data)
    # The program that drew the weights may keep its memory for a while, but not beyond a call.
    call()
    highest = timing.peak_memory(call)
    analysis = compiled.memory_analysis()
    peak = None if before is None or highest is None else highest - before
    return {
        "weights_and_gradient": needed,
        "temporary": None if analysis is None else analysis.temp_size_in_bytes,
        "peak": peak,
        "ratio": None if peak is None else peak / needed,
    }


def seconds(
    names: tuple[str, ...], num_classes: int, repetitions: int, with_plain: bool
) -> dict[str, dict[str, float]]:
    """The median seconds of a call of each loss, chunked and plain, in turns."""
    found: dict[str, dict[str, float]] = {name: {} for name in names}
    contestants = {}
    for name in names:
        data = batch(name, num_classes)
        contestants[f"{name} chunked"] = timing.blocking(gradient(chunked(name)), *data)
        if with_plain:
            contestants[f"{name} plain"] = timing.blocking(gradient(plain(name)), *data)
    for contestant, median in timing.medians_in_turns(contestants, repetitions).items():
        name, _, which = contestant.partition(" ")
        found[name][which] = median
    return found


def batch(name: str, num_classes: int) -> tuple[jax.Array, tuple[jax.Array, ...], jax.Array]:
    """Features, weights of one head or of two, and labels; the scores have about unit variance."""
    number = 2 if name == "average_k" else 1
    of_features, of_labels, *of_weights = jax.random.split(jax.random.key(0), 2 + number)
    features = jax.random.normal(of_features, (BATCH, FEATURES))
    labels = jax.random.randint(of_labels, (BATCH,), 0, num_classes)
    bound = (3 / FEATURES) ** 0.5
    weights = tuple(
        jax.random.uniform(key, (FEATURES, num_classes), minval=-bound, maxval=bound)
        for key in of_weights
    )
    return features, weights, labels


def gradient(loss: Loss) -> Any:
    """The loss and its gradient by the features and the weights, jitted."""
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


def chunked(name: str) -> Loss:
    """The mean loss over blocks of classes."""
    return _mean(name, heads, heads.LinearHead)


def plain(name: str) -> Loss:
    """The mean loss of the scores of all classes."""
    return _mean(name, losses, None)


def _mean(name: str, module: Any, head: Callable[[jax.Array], Any] | None) -> Loss:
    loss = functools.partial(getattr(module, name), **PARAMETERS[name])
    if name == "noised_top_k_hinge":
        loss = functools.partial(loss, key=jax.random.key(0))

    def mean(features: jax.Array, weights: tuple[jax.Array, ...], labels: jax.Array) -> jax.Array:
        if head is None:
            return loss(*(features @ one for one in weights), labels).mean()
        return loss(features, *map(head, weights), labels).mean()

    return mean


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown: one row for each loss."""
    classes, timed = f"{results['classes']:,}", f"{results['timed_classes']:,}"
    head = [
        "loss",
        f"peak / weights and gradient, {classes} classes",
        f"seconds, {classes} classes",
        f"seconds, {timed} classes",
        f"plain, seconds, {timed} classes",
        "blocks / plain",
    ]
    rows = (
        [
            f"`{name}`",
            f"{results['memory'][name]['ratio']:.2f}",
            f"{results['seconds'][name]['chunked']:.2f}" if name in results["seconds"] else "",
            f"{timed['chunked']:.2f}",
            f"{timed['plain']:.2f}",
            f"{timed['chunked'] / timed['plain']:.2f}",
        ]
        for name, timed in results["timed"].items()
    )
    machine = markdown.machine(results["machine"])
    return f"{machine}; medians of {results['repetitions']} calls in turns.\n\n" + markdown.table(
        head, rows
    )


if __name__ == "__main__":
    main()
