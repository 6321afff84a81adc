"""The noised loss compared with only its noise, cross-entropy and other implementations.

    python -m benchmarks.noised_loss [--sections memory ...] [--output=FILE.json]

Forward and backward pass of the mean loss, with float32 logits from a normal distribution and
epsilon 1. Includes pytopk, the authors' code, which needs PyTorch, if it is installed. `optax
perturbed` is the same hinge with optax's score-function estimator. `normals` only draws the M *
batch * L normals with `jax.random.normal`, one sample at a time.
"""

import concurrent.futures
import functools
import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import table, timing
from topk_jax import losses

try:
    import pytopk
    import torch
except ImportError:
    pytopk = torch = None

# Batch, classes, samples M, set size K.
Shape = tuple[int, int, int, int]
# The names of the JSON: beside others; the exact expectation; by K; memory by M.
SECTIONS: dict[str, tuple[Shape, ...]] = {
    "seconds": (
        (64, 100, 10, 5),
        (64, 1081, 5, 5),
        (256, 1000, 10, 5),
        (64, 10_000, 5, 5),
        (64, 1081, 5, 100),
        (64, 100_000, 3, 5),
    ),
    "expected": ((64, 100, 10, 5), (64, 1081, 10, 5), (64, 1081, 10, 100)),
    "flat_in_k": tuple((256, 1000, 10, k) for k in (1, 2, 5, 10, 20, 50, 100)),
    "memory": tuple((256, 10_000, num_samples, 5) for num_samples in (5, 50)),
}
_TITLES = {
    "seconds": "Beside others:",
    "expected": "The exact expectation beside the noised loss with ten samples:",
    "flat_in_k": "By K:",
}
_OURS = "noised_top_k_hinge"
EPSILON = 1.0


def main() -> None:
    """Measures every shape and prints or writes the results as JSON."""
    parser = timing.parser(__doc__, repetitions=21)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    given = timing.parse(parser)
    times = functools.partial(_times, repetitions=given.repetitions)
    measured: dict[str, Callable[[Shape], dict[str, Any]]] = {
        "seconds": times,
        "expected": functools.partial(times, with_peers=False),
        "flat_in_k": functools.partial(times, with_peers=False),
        "memory": _memory_alone,
    }
    results: dict[str, Any] = {
        "machine": timing.machine("torch", "pytopk"),
        "repetitions": given.repetitions,
    }
    for section in given.sections:
        shapes = SECTIONS[section][:1] if given.smoke else SECTIONS[section]
        names = ("batch", "classes", "M", "K")
        results[section] = [
            dict(zip(names, shape, strict=True)) | measured[section](shape) for shape in shapes
        ]
    timing.write(results, given.output)


def tables(results: Mapping[str, Any]) -> str:
    """Milliseconds by shape and contestant, ratios to ours, and the memory."""
    parts = [
        f"{table.machine(results)}; medians of {results['repetitions']} calls in turns, in "
        "milliseconds, and in brackets as a multiple of the noised loss with one key."
    ]
    for section, title in _TITLES.items():
        if section in results:
            rows = results[section]
            names = list(rows[0]["seconds"])
            cells = (
                [*_shape(row), *(_time(row["seconds"], name) for name in names)] for row in rows
            )
            parts += [title, table.markdown(["batch", "L", "M", "K", *names], cells)]
    if "memory" in results:
        header = ["batch", "L", "M", "K", "temporaries of XLA", "taken by the process"]
        cells = (
            [
                *_shape(row),
                f"{row['logit_arrays']:.2f}",
                "–" if row["process_arrays"] is None else f"{row['process_arrays']:.2f}",
            ]
            for row in results["memory"]
        )
        parts += [
            "Memory in arrays of [batch, L]; the process also takes the gradient, one array:",
            table.markdown(header, cells),
        ]
    return "\n\n".join(parts)


def _shape(row: Mapping[str, Any]) -> Iterable[str]:
    return (f"{row[name]:,}" for name in ("batch", "classes", "M", "K"))


def _time(seconds: Mapping[str, float], name: str) -> str:
    return f"{1e3 * seconds[name]:.2f} ({seconds[name] / seconds[_OURS]:.2f})"


def _times(shape: Shape, *, repetitions: int, with_peers: bool = True) -> dict[str, Any]:
    """The median seconds of forward and backward at one shape, for our and for other losses."""
    batch, num_classes, num_samples, k = shape
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(batch, num_classes)).astype(np.float32)
    labels = rng.integers(0, num_classes, batch).astype(np.int32)
    key = jax.random.key(0)
    keys = jax.random.split(key, batch)
    noised = timing.value_and_gradient(functools.partial(_noised, k=k, num_samples=num_samples))
    contestants = {
        _OURS: timing.blocking(noised, logits, labels, key),
        f"{_OURS}, one key per example": timing.blocking(noised, logits, labels, keys),
        "cross_entropy": timing.blocking(
            timing.value_and_gradient(losses.cross_entropy), logits, labels
        ),
        "normals": _normals(shape, key),
    }
    if not with_peers:
        expected = functools.partial(losses.expected_top_k_hinge, k=k, epsilon=EPSILON)
        contestants["expected_top_k_hinge"] = timing.blocking(
            timing.value_and_gradient(expected), logits, labels
        )
    else:
        optax_loss = timing.value_and_gradient(_optax(k, num_samples))
        contestants["optax perturbed"] = timing.blocking(optax_loss, logits, labels, keys)
        if pytopk is not None:
            contestants["pytopk"] = _pytopk(logits, labels, k, num_samples)
    return {"seconds": timing.medians_in_turns(contestants, repetitions, settle=True)}


def _memory(shape: Shape) -> dict[str, Any]:
    """The memory of forward and backward, in arrays of the logits' size.

    XLA's analysis counts temporaries. The memory of the process includes the result, one array; on
    an accelerator it has no arrays.
    """
    batch, num_classes, num_samples, k = shape
    logits = jax.device_put(np.zeros((batch, num_classes), np.float32))
    operands = (logits, np.zeros(batch, np.int32), jax.random.key(0))
    loss = functools.partial(_noised, k=k, num_samples=num_samples)
    compiled = timing.value_and_gradient(loss).lower(*operands).compile()
    on_cpu = jax.default_backend() == "cpu"
    call = timing.blocking(compiled, *operands)
    return {
        "logit_arrays": timing.logit_arrays(compiled, logits),
        "process_arrays": timing.extra_memory(call) / logits.nbytes if on_cpu else None,
    }


def _memory_alone(shape: Shape) -> dict[str, Any]:
    """`_memory` in a new process, which cannot reuse freed memory.

    On an accelerator it is in this process, which has reserved the accelerator's memory.
    """
    if jax.default_backend() != "cpu":
        return _memory(shape)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(_memory, shape).result()


def _noised(
    logits: jax.Array, labels: jax.Array, key: jax.Array, *, k: int, num_samples: int
) -> jax.Array:
    return losses.noised_top_k_hinge(
        logits, labels, k=k, epsilon=EPSILON, num_samples=num_samples, key=key
    )


def _normals(shape: Shape, key: jax.Array) -> timing.Contestant:
    """Draws only the noise, one sample at a time, and keeps its sum."""
    batch, num_classes, num_samples, _ = shape

    @jax.jit
    def draw(key: jax.Array) -> jax.Array:
        def sample(key: jax.Array) -> jax.Array:
            noise = jax.random.normal(key, (batch, num_classes))
            return jax.lax.optimization_barrier(noise)[0, 0]

        return jax.lax.map(sample, jax.random.split(key, num_samples))

    return timing.blocking(draw, key)


def _optax(k: int, num_samples: int) -> Callable[..., jax.Array]:
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

    return loss


def _pytopk(logits: np.ndarray, labels: np.ndarray, k: int, num_samples: int) -> timing.Contestant:
    loss = pytopk.BalNoisedTopK(k=k, epsilon=EPSILON, n_sample=num_samples)
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
