"""The noised loss by XLA and by the kernel, forward and backward, on a TPU.

    python -m benchmarks.kernel [--smallest] [--repetitions=21] [--output=FILE.json]

On the CPU the kernel is interpreted: the command then shows that it works, and no speed. On a GPU
both are XLA's code since the results of the committed file, which had a kernel of Triton.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import command, markdown, timing
from topk_jax import losses

# Examples, classes, K, samples.
SHAPES = (
    (64, 100, 5, 3),
    (32, 1081, 5, 3),
    (32, 1081, 5, 10),
    (256, 1000, 5, 5),
    (256, 10_000, 10, 5),
    (256, 100_000, 5, 5),
)
Implementation = Literal["xla", "pallas"]
IMPLEMENTATIONS: tuple[Implementation, ...] = ("xla", "pallas")


def main() -> None:
    """Measures every shape and prints or writes the results as JSON."""
    parser = command.parser(__doc__, repetitions=21)
    parser.add_argument("--smallest", action="store_true", help="only the smallest shape")
    arguments = parser.parse_args()
    shapes = SHAPES[:1] if arguments.smallest else SHAPES
    results = {
        "machine": timing.machine(),
        "repetitions": arguments.repetitions,
        "rows": [row(shape, arguments.repetitions) for shape in shapes],
    }
    command.write(results, arguments.output)


def row(shape: tuple[int, int, int, int], repetitions: int) -> dict[str, Any]:
    """The median seconds of both, their memory, and how many examples have another loss."""
    num_examples, num_classes, k, num_samples = shape
    logits = jax.random.normal(jax.random.key(0), (num_examples, num_classes))
    labels = jnp.arange(num_examples) % num_classes
    operands = (logits, labels, jax.random.key(1))

    def compiled(implementation: Implementation) -> Any:
        def loss(logits: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
            return losses.noised_top_k_hinge(
                logits,
                labels,
                k=k,
                epsilon=1.0,
                num_samples=num_samples,
                key=key,
                implementation=implementation,
            )

        return timing.value_and_gradient(loss).lower(*operands).compile()

    programs: dict[str, Any] = {name: compiled(name) for name in IMPLEMENTATIONS}
    gradients = [np.asarray(program(*operands)[1]) for program in programs.values()]
    others = int((gradients[0] != gradients[1]).any(axis=-1).sum())
    contestants = {name: timing.blocking(program, *operands) for name, program in programs.items()}
    return {
        "examples": num_examples,
        "classes": num_classes,
        "k": k,
        "samples": num_samples,
        "seconds": timing.medians_in_turns(contestants, repetitions),
        "logit_arrays": {
            name: timing.logit_arrays(program, logits) for name, program in programs.items()
        },
        "examples_with_another_gradient": others,
    }


def tables(results: dict[str, Any]) -> str:
    """The microseconds of both, and the kernel's in units of XLA's."""
    lines = [
        [
            *(f"{row[name]:,}" for name in ("examples", "classes", "k", "samples")),
            *(f"{1e6 * row['seconds'][name]:,.0f}" for name in IMPLEMENTATIONS),
            f"{row['seconds']['pallas'] / row['seconds']['xla']:.2f}",
            *(f"{row['logit_arrays'][name]:.1f}" for name in IMPLEMENTATIONS),
        ]
        for row in results["rows"]
    ]
    header = [
        *("examples", "classes", "K", "M", "XLA, µs", "kernel, µs", "kernel / XLA"),
        *("XLA, temporary arrays of logits", "kernel, temporary arrays"),
    ]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; medians of {results['repetitions']} calls.",
            markdown.table(header, lines),
        ]
    )


if __name__ == "__main__":
    main()
