"""The other losses beside cross-entropy, selections beside sorts, the smooth top-K hinge as a tree.

    python -m benchmarks.other_losses [--device=cpu] [--repetitions=15] [--output=FILE.json]

Needs jax, numpy and optax.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, markdown, timing
from topk_jax import losses, operators, sets

# Batch, classes.
SHAPES = ((64, 100), (64, 1081))
# Batch, classes, K: the targets' shapes, then growth in K and in the number of classes.
SMOOTH = (
    (64, 100, 5),
    (256, 1000, 5),
    (64, 1000, 20),
    (64, 10_000, 5),
    (64, 100, 1),
    (64, 100, 10),
    (64, 100, 20),
    (64, 100, 50),
    (64, 1000, 10),
)
SELECTIONS = SMOOTH[:4]
RANK = 5

Function = Callable[..., jax.Array]


def main() -> None:
    """Measures everything and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=15)
    command.add_device(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_default_device", arguments.device)
    repetitions = arguments.repetitions
    measured: dict[str, tuple[Callable[..., dict[str, Any]], Sequence[tuple[int, ...]]]] = {
        "losses": (all_losses, SHAPES),
        "smooth": (smooth, SMOOTH),
        "selections": (selections, SELECTIONS),
    }
    results: dict[str, Any] = {"machine": timing.machine(), "repetitions": repetitions}
    with command.keeping(results, arguments.output) as keep:
        for section, (measure, shapes) in measured.items():
            results[section] = []
            for shape in shapes:
                results[section].append(measure(*shape, repetitions))
                keep()


def all_losses(batch: int, num_classes: int, repetitions: int) -> dict[str, Any]:
    """The median seconds of forward and backward of each loss at one shape."""
    logits, labels = _batch(batch, num_classes)
    proposals, _ = _batch(batch, num_classes, seed=1)
    targets = (np.random.default_rng(2).random(logits.shape) < 3 / num_classes).astype(np.int32)
    margins = losses.class_margins(np.arange(1, num_classes + 1), max_margin=0.5)
    of_labels: dict[str, Function] = {
        "cross_entropy": losses.cross_entropy,
        "focal": functools.partial(losses.focal, gamma=2.0),
        "ldam": functools.partial(losses.ldam, margins=margins, scale=30.0),
        "top_k_hinge": functools.partial(losses.top_k_hinge, k=RANK),
        "convex_top_k_hinge": functools.partial(losses.convex_top_k_hinge, k=RANK),
        "calibrated_top_k_hinge": functools.partial(losses.calibrated_top_k_hinge, k=RANK),
        "smooth_top_k_hinge": functools.partial(losses.smooth_top_k_hinge, k=RANK, tau=1.0),
        "expected_top_k_hinge": functools.partial(losses.expected_top_k_hinge, k=RANK, epsilon=0.5),
        "sparsemax_loss": losses.sparsemax_loss,
        "assume_negative": losses.assume_negative,
        "expected_positive_regularization": functools.partial(
            losses.expected_positive_regularization, expected_positives=float(RANK), beta=0.01
        ),
    }
    contestants = {
        name: timing.forward_and_backward(loss, logits, labels) for name, loss in of_labels.items()
    }
    contestants["sparse_top_loss"] = timing.forward_and_backward(
        losses.sparse_top_loss, logits, targets
    )
    contestants["binary_cross_entropy"] = timing.forward_and_backward(
        losses.binary_cross_entropy, logits, targets
    )
    contestants["role"] = timing.forward_and_backward(
        functools.partial(losses.role, expected_positives=float(RANK), weight=0.01),
        logits,
        proposals,
        labels,
    )
    contestants["average_k"] = timing.forward_and_backward(
        functools.partial(losses.average_k, k=RANK, alpha=0.3), logits, proposals, labels
    )
    seconds = timing.medians_in_turns(contestants, repetitions)
    return {"batch": batch, "classes": num_classes, "seconds": seconds}


def smooth(batch: int, num_classes: int, k: int, repetitions: int) -> dict[str, Any]:
    """Time and memory, forward and backward, of the smooth top-K hinge and of a plain tree."""
    logits, labels = _batch(batch, num_classes)
    rivals: dict[str, Function] = {
        "cross_entropy": losses.cross_entropy,
        "smooth_top_k_hinge": functools.partial(losses.smooth_top_k_hinge, k=k, tau=1.0),
        "log-space tree": functools.partial(_by_log_space_tree, k=k, tau=1.0),
    }
    contestants = {
        name: timing.forward_and_backward(loss, logits, labels) for name, loss in rivals.items()
    }
    return {
        "batch": batch,
        "classes": num_classes,
        "K": k,
        "seconds": timing.medians_in_turns(contestants, repetitions),
        "logit_arrays": {name: _memory(loss, logits, labels) for name, loss in rivals.items()},
    }


def selections(batch: int, num_classes: int, k: int, repetitions: int) -> dict[str, Any]:
    """The median seconds of selections, forward only, and of full sorts of the same array."""
    logits, labels = _batch(batch, num_classes)
    probabilities = np.asarray(jax.nn.softmax(logits))
    contestants = {
        "sort of the classes": _forward(functools.partial(jnp.sort, axis=-1), logits),
        "sparse_top": _forward(lambda scores: operators.sparse_top(scores, k), logits),
        "sort of the batch": _forward(lambda scores: jnp.sort(scores.reshape(-1)), logits),
        "average_k_candidates": _forward(
            functools.partial(losses.average_k_candidates, k=k), logits, labels
        ),
        "average_k_threshold": _forward(
            functools.partial(sets.average_k_threshold, k=k), probabilities
        ),
    }
    seconds = timing.medians_in_turns(contestants, repetitions)
    return {"batch": batch, "classes": num_classes, "K": k, "seconds": seconds}


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    shapes = results["losses"]
    of_losses = markdown.table(
        ["loss", *(f"{row['batch']} × {row['classes']:,}" for row in shapes)],
        [
            [f"`{name}`", *(_against(row["seconds"], name, "cross_entropy") for row in shapes)]
            for name in shapes[0]["seconds"]
        ],
    )
    of_smooth = markdown.table(
        [
            *("batch", "L", "K", "CE, ms", "smooth, ms", "tree / smooth", "smooth / CE"),
            *("arrays of the logits' size", "of the tree"),
        ],
        [
            [
                *_shape(row),
                f"{1e3 * row['seconds']['cross_entropy']:.2f}",
                f"{1e3 * row['seconds']['smooth_top_k_hinge']:.2f}",
                _ratio(row["seconds"], "log-space tree", "smooth_top_k_hinge"),
                _ratio(row["seconds"], "smooth_top_k_hinge", "cross_entropy"),
                f"{row['logit_arrays']['smooth_top_k_hinge']:.1f}",
                f"{row['logit_arrays']['log-space tree']:.1f}",
            ]
            for row in results["smooth"]
        ],
    )
    against = (
        ("sparse_top", "sort of the classes"),
        ("average_k_candidates", "sort of the batch"),
        ("average_k_threshold", "sort of the batch"),
    )
    of_selections = markdown.table(
        [
            *("batch", "L", "K"),
            *(heading for name, rival in against for heading in (f"`{name}`, ms", f"{rival} / it")),
        ],
        [
            [
                *_shape(row),
                *(
                    cell
                    for name, rival in against
                    for cell in (
                        f"{1e3 * row['seconds'][name]:.2f}",
                        _ratio(row["seconds"], rival, name),
                    )
                ),
            ]
            for row in results["selections"]
        ],
    )
    return "\n\n".join([of_losses, of_smooth, of_selections])


def _by_log_space_tree(logits: jax.Array, labels: jax.Array, *, k: int, tau: float) -> jax.Array:
    """The smooth top-K hinge as it is written, with the polynomials of all classes in log space."""
    is_label = labels[:, None] == jnp.arange(logits.shape[-1])[None]
    score = jnp.where(is_label, logits, 0).sum(axis=-1)
    others = jnp.where(is_label, -jnp.inf, logits / (k * tau))
    log_sigmas = operators.log_symmetric_polynomials(others, k)
    exponent = (1 - score / k) / tau + log_sigmas[:, k] - log_sigmas[:, k - 1]
    return tau * jax.nn.softplus(exponent)


def _batch(batch: int, num_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(batch, num_classes)).astype(np.float32)
    return logits, rng.integers(0, num_classes, batch).astype(np.int32)


def _forward(function: Function, *arguments: Any) -> timing.Contestant:
    return timing.blocking(jax.jit(function), *arguments)


def _memory(loss: Function, logits: np.ndarray, labels: np.ndarray) -> float:
    """XLA's temporary memory of forward and backward, in arrays of the logits' size."""
    compiled = timing.value_and_gradient(loss).lower(logits, labels).compile()
    return timing.logit_arrays(compiled, logits)


def _shape(row: dict[str, Any]) -> list[str]:
    return [str(row["batch"]), f"{row['classes']:,}", str(row["K"])]


def _ratio(seconds: dict[str, float], name: str, other: str) -> str:
    return f"{seconds[name] / seconds[other]:.1f}"


def _against(seconds: dict[str, float], name: str, other: str) -> str:
    return f"{1e3 * seconds[name]:.2f} ms ({_ratio(seconds, name, other)})"


if __name__ == "__main__":
    main()
