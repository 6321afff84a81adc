"""What devices send each other if the classes are split over them, by the compiled programs.

    python -m benchmarks.collectives [--output=FILE.json]

Needs the program's dependencies, and no accelerator: nothing runs. Each function is compiled for 8
virtual devices of the CPU in `jax.shard_map`, a loss with the gradient of its sum, for two numbers
of classes. Each collective of the program is counted once, also in a loop.
"""

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from benchmarks import command, markdown, timing
from topk_jax import losses, metrics, sets
from train.planning.accounts import messages

DEVICES = 8
BATCH = 32
RANK = 5
NUM_SAMPLES = 3
# The second one shows what grows with the number of classes.
CLASSES = (16_384, 131_072)
NAME = "classes"

Function = Callable[..., jax.Array]


@dataclass(frozen=True)
class Account:
    """The collectives of a program, on each device.

    Attributes:
        reductions: the number of all-reduces.
        reduced: the numbers in them, of each example.
        gathers: the number of all-gathers.
        gathered: the numbers that a device sends in them, of each example.
        others: the number of other collectives.
        in_loops: how many of all of them are in loops.
        arrays: temporary memory in arrays of the device's logits.
    """

    reductions: int
    reduced: float
    gathers: int
    gathered: float
    others: int
    in_loops: int
    arrays: float


def main() -> None:
    """Compiles all functions and prints or writes the results as JSON."""
    arguments = command.parser(__doc__, repetitions=None).parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    results = {
        "machine": timing.machine(),
        "devices": DEVICES,
        "batch": BATCH,
        "functions": {
            name: {str(size): asdict(account(function, size)) for size in CLASSES}
            for name, function in functions().items()
        },
    }
    command.write(results, arguments.output)


def functions() -> dict[str, Function]:
    """Functions of logits, another head's logits, labels, class counts and the name of the axis."""

    def loss(name: str, **parameters: Any) -> Function:
        call = functools.partial(getattr(losses, name), **parameters)
        return _with_slope(lambda logits, _others, labels, _counts: call(logits, labels))

    def statistic(function: Function, *, labels: bool = False, **parameters: Any) -> Function:
        def call(logits: jax.Array, _others: Any, targets: jax.Array, _counts: Any) -> jax.Array:
            arguments = (logits, targets) if labels else (logits,)
            return function(*arguments, **parameters, class_axis_name=NAME)

        return call

    named: dict[str, dict[str, Any]] = {
        "cross_entropy": {},
        "focal": {"gamma": 2.0},
        "top_k_hinge": {"k": RANK},
        "convex_top_k_hinge": {"k": RANK},
        "calibrated_top_k_hinge": {"k": RANK},
        "noised_top_k_hinge": {
            "k": RANK,
            "epsilon": 1.0,
            "num_samples": NUM_SAMPLES,
            "key": jax.random.key(0),
        },
        "expected_top_k_hinge": {"k": RANK, "epsilon": 1.0},
        "smooth_top_k_hinge": {"k": RANK, "tau": 1.0},
        "sparsemax_loss": {},
        "entmax_loss": {"alpha": 1.5},
    }
    return {
        **{
            name: loss(name, **parameters, class_axis_name=NAME)
            for name, parameters in named.items()
        },
        "ldam": _with_slope(
            lambda logits, _, labels, counts: losses.ldam(
                logits, labels, margins=1 / counts, class_axis_name=NAME
            )
        ),
        "logit_adjusted_cross_entropy": _with_slope(
            lambda logits, _, labels, counts: losses.logit_adjusted_cross_entropy(
                logits, labels, class_counts=counts, class_axis_name=NAME
            )
        ),
        "average_k": _with_slope(
            lambda logits, others, labels, _: losses.average_k(
                logits, others, labels, k=RANK, alpha=0.3, class_axis_name=NAME
            )
        ),
        "sets.top_k_set": statistic(sets.top_k_set, k=RANK),
        "sets.threshold_set": statistic(sets.threshold_set, threshold=0.1),
        "sets.average_k_threshold": statistic(sets.average_k_threshold, k=RANK),
        "sets.conformal_threshold": statistic(sets.conformal_threshold, labels=True, error=0.1),
        "metrics.top_k_hits": statistic(metrics.top_k_hits, labels=True, k=RANK),
    }


def _with_slope(loss: Function) -> Function:
    """The gradient of the sum of a loss, by the logits of both heads."""

    def total(logits: jax.Array, others: jax.Array, *rest: jax.Array) -> jax.Array:
        return loss(logits, others, *rest).sum()

    return jax.grad(total, argnums=(0, 1))


def account(function: Function, num_classes: int) -> Account:
    """The collectives of a function for this number of classes."""
    by_classes = PartitionSpec(None, NAME)
    mesh = jax.make_mesh((DEVICES,), (NAME,), axis_types=(AxisType.Auto,))
    logits = jax.ShapeDtypeStruct((BATCH, num_classes), np.float32)

    # Results of any kind; each device has its own.
    def results(*arguments: jax.Array) -> Any:
        leaves = jax.tree.leaves(function(*arguments))
        return [jnp.asarray(leaf)[None] for leaf in leaves]

    mapped = jax.shard_map(
        results,
        mesh=mesh,
        in_specs=(by_classes, by_classes, PartitionSpec(), PartitionSpec(NAME)),
        out_specs=PartitionSpec(NAME),
    )
    compiled = (
        jax.jit(mapped)
        .lower(
            logits,
            logits,
            jax.ShapeDtypeStruct((BATCH,), np.int32),
            jax.ShapeDtypeStruct((num_classes,), np.float32),
        )
        .compile()
    )
    memory: Any = compiled.memory_analysis()
    share = 4 * BATCH * num_classes // DEVICES
    return counted(compiled.as_text() or "", memory.temp_size_in_bytes / share)


def counted(program: str, arrays: float) -> Account:
    """The collectives in the text of a compiled program."""
    found = list(messages(program))
    reduced = [message.numbers for message in found if message.kind == "all-reduce"]
    gathered = [message.numbers for message in found if message.kind == "all-gather"]
    return Account(
        reductions=len(reduced),
        reduced=sum(reduced) / BATCH,
        gathers=len(gathered),
        gathered=sum(gathered) / BATCH / DEVICES,
        others=len(found) - len(reduced) - len(gathered),
        in_loops=sum(message.in_loop for message in found),
        arrays=arrays,
    )


def tables(results: dict[str, Any]) -> str:
    """The collectives as Markdown, of the larger number of classes, beside the smaller one."""
    few, many = (f"{int(size):,}" for size in next(iter(results["functions"].values())))
    header = [
        "function",
        "all-reduces",
        "numbers in them",
        "all-gathers",
        "numbers sent in them",
        "of all, in loops",
        "memory",
    ]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; {results['devices']} devices, "
            f"{results['batch']} examples, K = {RANK}, M = {NUM_SAMPLES}. For each device and "
            f"example, with {few} classes and with {many}; computed, not measured:",
            markdown.table(
                header, (_line(name, row) for name, row in results["functions"].items())
            ),
        ]
    )


def _line(name: str, row: dict[str, Any]) -> list[str]:
    few, many = row.values()

    def both(field: str, form: str) -> str:
        ends = [f"{account[field]:{form}}" for account in (few, many)]
        return ends[0] if ends[0] == ends[1] else " → ".join(ends)

    fields = {
        "reductions": "d",
        "reduced": ".1f",
        "gathers": "d",
        "gathered": ".1f",
        "in_loops": "d",
        "arrays": ".1f",
    }
    return [f"`{name}`", *(both(field, form) for field, form in fields.items())]


if __name__ == "__main__":
    main()
