"""The noised loss compared with only its noise, cross-entropy and other implementations.

    python -m benchmarks.losses [--device=cpu] [--sections memory ...] [--smallest]
        [--repetitions=21] [--output=FILE.json]

Needs jax, numpy and optax. Includes pytopk, which needs PyTorch, if it is installed, and
beside it the same compiled by `torch.compile` on a GPU.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import command, timing
from topk_jax import losses

try:
    import pytopk
    import torch
except ImportError:
    pytopk = torch = None

# Batch, classes, samples M, set size K.
SHAPES = (
    (64, 100, 10, 5),
    (64, 1081, 5, 5),
    (256, 1000, 10, 5),
    (64, 10_000, 5, 5),
    (64, 1081, 5, 100),
    (64, 100_000, 3, 5),
)
# Targets: the exact expectation costs at most 4 and 3 times the noised loss, and with K = 100 at
# most 10 times as much as with K = 5.
EXPECTED = ((64, 100, 10, 5), (64, 1081, 10, 5), (64, 1081, 10, 100))
# Target: the time hardly depends on K.
FLATNESS = tuple((256, 1000, 10, k) for k in (1, 2, 5, 10, 20, 50, 100))
# Target: the memory does not grow with M.
MEMORY = tuple((256, 10_000, num_samples, 5) for num_samples in (5, 50))
SECTIONS = {"seconds": SHAPES, "expected": EXPECTED, "flat_in_k": FLATNESS, "memory": MEMORY}
EPSILON = 1.0


def main() -> None:
    """Measures every shape and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    command.add_device(parser)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--smallest", action="store_true", help="only the first shape of each section"
    )
    arguments = parser.parse_args()
    jax.config.update("jax_default_device", arguments.device)
    repetitions = arguments.repetitions
    measure: dict[str, Callable[[tuple[int, int, int, int]], dict[str, Any]]] = {
        "seconds": lambda shape: row(shape, repetitions),
        "expected": lambda shape: row(shape, repetitions, peers=False),
        "flat_in_k": lambda shape: row(shape, repetitions, peers=False),
        "memory": _memory_alone,
    }
    results: dict[str, Any] = {"machine": timing.machine(), "repetitions": repetitions}
    with command.keeping(results, arguments.output) as keep:
        for section in arguments.sections:
            results[section] = []
            for shape in SECTIONS[section][: 1 if arguments.smallest else None]:
                results[section].append(measure[section](shape))
                keep()


def row(
    shape: tuple[int, int, int, int], repetitions: int, *, peers: bool = True
) -> dict[str, Any]:
    """The median seconds of forward and backward at one shape, for our and for other losses."""
    batch, num_classes, num_samples, k = shape
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(batch, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, batch).astype(np.int32)
    key = jax.random.key(0)
    keys = jax.random.split(key, batch)
    contestants = {
        "noised_top_k_hinge": _ours(logits, labels, key, k, num_samples),
        "noised_top_k_hinge, one key per example": _ours(logits, labels, keys, k, num_samples),
        "cross_entropy": timing.forward_and_backward(losses.cross_entropy, logits, labels),
        "normals": _normals(shape, key),
    }
    if not peers:
        contestants["expected_top_k_hinge"] = timing.forward_and_backward(
            functools.partial(losses.expected_top_k_hinge, k=k, epsilon=EPSILON), logits, labels
        )
    if peers:
        contestants["optax perturbed"] = _optax(logits, labels, keys, k, num_samples)
    if peers and pytopk is not None:
        contestants["pytopk"] = _pytopk(logits, labels, k, num_samples)
        if jax.default_backend() == "gpu":
            compiled = _pytopk(logits, labels, k, num_samples, compiled=True)
            try:
                compiled()
            except Exception as error:
                print("pytopk is not compiled:", str(error)[:200], file=sys.stderr)  # noqa: T201
            else:
                contestants["pytopk, compiled"] = compiled
    seconds = timing.medians_in_turns(contestants, repetitions, settle=True)
    return {"batch": batch, "classes": num_classes, "M": num_samples, "K": k, "seconds": seconds}


def memory(shape: tuple[int, int, int, int]) -> dict[str, Any]:
    """The memory of forward and backward, in arrays of the logits' size.

    XLA's analysis counts temporaries. The memory of the process includes the result, one array; on
    an accelerator it has no arrays.
    """
    batch, num_classes, num_samples, k = shape
    logits = jax.device_put(np.zeros((batch, num_classes), np.float32))
    labels = jax.device_put(np.zeros(batch, np.int32))
    operands = (logits, labels, jax.random.key(0))
    loss = functools.partial(_noised, k=k, num_samples=num_samples)
    compiled = timing.value_and_gradient(loss).lower(*operands).compile()
    is_on_cpu = jax.default_backend() == "cpu"
    taken = timing.extra_memory(timing.blocking(compiled, *operands)) if is_on_cpu else None
    return {
        "batch": batch,
        "classes": num_classes,
        "M": num_samples,
        "K": k,
        "logit_arrays": timing.logit_arrays(compiled, logits),
        "process_arrays": None if taken is None else taken / logits.nbytes,
    }


def _memory_alone(shape: tuple[int, int, int, int]) -> dict[str, Any]:
    """`memory` in a new process, which cannot reuse freed memory.

    On an accelerator it is in this process, which has reserved the accelerator's memory.
    """
    if jax.default_backend() != "cpu":
        return memory(shape)
    found: dict[str, Any] = timing.in_process_of_its_own(memory, shape)
    return found


def _noised(
    logits: jax.Array, labels: jax.Array, key: jax.Array, *, k: int, num_samples: int
) -> jax.Array:
    return losses.noised_top_k_hinge(
        logits, labels, k=k, epsilon=EPSILON, num_samples=num_samples, key=key
    )


def _ours(
    logits: np.ndarray, labels: np.ndarray, key: jax.Array, k: int, num_samples: int
) -> timing.Contestant:
    return timing.forward_and_backward(
        functools.partial(_noised, k=k, num_samples=num_samples), logits, labels, key
    )


def _normals(shape: tuple[int, int, int, int], key: jax.Array) -> timing.Contestant:
    """Draws only the noise, one sample at a time, and keeps its sum."""
    batch, num_classes, num_samples, _ = shape

    @jax.jit
    def draw(key: jax.Array) -> jax.Array:
        def sample(key: jax.Array) -> jax.Array:
            noise = jax.random.normal(key, (batch, num_classes))
            return jax.lax.optimization_barrier(noise)[0, 0]

        return jax.lax.map(sample, jax.random.split(key, num_samples))

    return timing.blocking(draw, key)


def _optax(
    logits: np.ndarray, labels: np.ndarray, keys: jax.Array, k: int, num_samples: int
) -> timing.Contestant:
    """The same loss with optax's score-function estimator around the hard operator."""

    def kth(scores: jax.Array) -> jax.Array:
        return jax.lax.optimization_barrier(jax.lax.top_k(scores, k + 1)[0])[..., -1]

    perturbed = optax.perturbations.make_perturbed_fun(
        kth, num_samples=num_samples, sigma=EPSILON, noise=optax.perturbations.Normal()
    )

    def loss(logits: jax.Array, labels: jax.Array, keys: jax.Array) -> jax.Array:
        score = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        # Map over the examples, because it treats a batch as one function.
        return jax.nn.relu(1 + jax.vmap(perturbed)(keys, logits) - score)

    return timing.forward_and_backward(loss, logits, labels, keys)


def _pytopk(
    logits: np.ndarray, labels: np.ndarray, k: int, num_samples: int, *, compiled: bool = False
) -> timing.Contestant:
    loss = pytopk.BalNoisedTopK(k=k, epsilon=EPSILON, n_sample=num_samples)
    loss = torch.compile(loss) if compiled else loss
    device = "cuda" if jax.default_backend() == "gpu" else "cpu"
    scores = torch.tensor(logits, device=device, requires_grad=True)
    classes = torch.tensor(labels, dtype=torch.int64, device=device)

    def run() -> None:
        scores.grad = None
        loss(scores, classes).backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


if __name__ == "__main__":
    main()
