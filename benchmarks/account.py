"""What each loss costs an accelerator, by its program alone: bytes, operations, part of a step.

    python -m benchmarks.account [--output=FILE.json]

Needs the program's dependencies, and no accelerator: nothing runs. The program of a loss, forward
and backward of the mean, is lowered as for a GPU and compiled on the CPU, for its fusions. XLA's
cost analysis counts what it reads and writes and its operations. Selections, of which that
analysis knows nothing, are added as one read of what they select from. Loops whose number of passes
depends on the data are counted once; the number of loops is reported, and the account of such a
loss is a lower bound.

A loss cannot take less time than its bytes at the bandwidth of the memory, nor than its operations
at the rate of arithmetic in float32. A training step cannot take less than the operations of the
network, forward and backward, at the rate of matrix products in bfloat16. The part of a step is the
time of a loss beyond that of cross-entropy, divided by the time of the step. It is an estimate, as
both times are lower bounds.
"""

import argparse
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from benchmarks import collection, command, markdown, timing
from topk_jax import losses
from topk_jax.operators import _perturbed_selection
from train.models import build_model

# Batch, classes.
SHAPES = ((256, 1000), (64, 1081), (64, 100_000))
# Height and width of the images.
NETWORKS = {"densenet_40_40": 32, "resnet50": 224}
RANK = 5
# A loss that takes more of a step than this has to be improved.
LIMIT_PERCENT = 2.0

Loss = Callable[..., jax.Array]


@dataclass(frozen=True)
class Machine:
    """The published rates of an accelerator.

    Attributes:
        matrix: operations of matrix products in bfloat16, in one second.
        elementwise: operations in float32, in one second; None where none is published.
        memory: bytes of the memory, in one second.
    """

    matrix: float
    elementwise: float | None
    memory: float

    def seconds(self, account: dict[str, Any]) -> float:
        """The least time of a loss."""
        by_memory = account["bytes"] / self.memory
        if self.elementwise is None:
            return by_memory
        return max(by_memory, account["operations"] / self.elementwise)


MACHINES = {
    "H100": Machine(matrix=989e12, elementwise=67e12, memory=3.35e12),
    "TPU v5e": Machine(matrix=197e12, elementwise=None, memory=819e9),
}
_SHAPE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = f32\[([\d,]*)\]", re.MULTILINE)
_SELECTION = re.compile(r'custom-call\([^%]*%([\w.-]+)\), custom_call_target="TopK"')
_LOOP = re.compile(r"\bwhile\(")


def main() -> None:
    """Accounts for every loss at every shape and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    arguments = parser.parse_args()
    results = {
        "machine": timing.machine(),
        "shapes": [row(*shape) for shape in SHAPES],
    }
    command.write(results, arguments.output)


def row(batch: int, num_classes: int) -> dict[str, Any]:
    """The account of each loss, and the operations of a step of each network, at one shape."""
    return {
        "batch": batch,
        "classes": num_classes,
        "losses": {
            name: account(loss, batch, num_classes)
            for name, loss in contestants(num_classes).items()
        },
        "steps": {name: step_operations(name, batch, num_classes) for name in NETWORKS},
    }


def contestants(num_classes: int) -> dict[str, Loss]:
    """The losses of logits and labels by name, with usual parameters."""
    ours = collection.our_losses(num_classes)
    noised = functools.partial(
        losses.noised_top_k_hinge, k=RANK, epsilon=1.0, key=jax.random.key(0)
    )
    del ours["noised_top_k_hinge"]
    return {
        **ours,
        "noised_top_k_hinge, M 3": functools.partial(noised, num_samples=3),
        "noised_top_k_hinge, M 10": functools.partial(noised, num_samples=10),
        "convex_top_k_hinge": functools.partial(losses.convex_top_k_hinge, k=RANK),
        "calibrated_top_k_hinge": functools.partial(losses.calibrated_top_k_hinge, k=RANK),
        "expected_positive_regularization": functools.partial(
            losses.expected_positive_regularization, expected_positives=float(RANK), beta=0.01
        ),
        # One array of logits for both heads.
        "average_k": lambda logits, labels: losses.average_k(
            logits, logits, labels, k=RANK, alpha=0.3
        ),
    }


def account(loss: Loss, batch: int, num_classes: int) -> dict[str, Any]:
    """The bytes and operations of a loss, its loops, and its bytes in arrays of the logits."""
    logits = jax.ShapeDtypeStruct((batch, num_classes), np.float32)
    labels = jax.ShapeDtypeStruct((batch,), np.int32)
    # All samples at once: a loop over groups of them reads and writes as much.
    with mock.patch.object(_perturbed_selection, "_BLOCK_SIZE_ELSEWHERE", 2**40):
        program = jax.export.export(
            timing.value_and_gradient(loss),
            platforms=["cuda"],
            disabled_checks=[jax.export.DisabledSafetyCheck.platform()],
        )(logits, labels)
    compiled = jax.jit(program.call).lower(logits, labels).compile()
    costs: Any = compiled.cost_analysis()
    text = compiled.as_text() or ""
    num_bytes = costs["bytes accessed"] + selected_bytes(text)
    return {
        "bytes": num_bytes,
        "operations": costs["flops"] + costs.get("transcendentals", 0.0),
        "loops": len(_LOOP.findall(text)),
        "logit_arrays": num_bytes / (4 * batch * num_classes),
    }


def selected_bytes(program: str) -> int:
    """The bytes of the arrays that a compiled program selects from."""
    shapes = dict(_SHAPE.findall(program))
    return sum(
        4 * math.prod(int(size) for size in shapes[name].split(","))
        for name in _SELECTION.findall(program)
    )


def step_operations(name: str, batch: int, num_classes: int) -> float:
    """The operations of a network, forward and backward, by its lowered program."""
    size = NETWORKS[name]
    model = build_model(
        name, num_classes=num_classes, head="linear", axis_name=None, half_precision=False
    )
    images = jax.ShapeDtypeStruct((batch, size, size, 3), np.float32)
    labels = jax.ShapeDtypeStruct((batch,), np.int32)
    variables = jax.eval_shape(
        lambda images: model.init(jax.random.key(0), images, train=False), images
    )

    def mean_loss(params: Any, rest: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits, _ = model.apply(
            {"params": params, **rest}, images, train=True, mutable=["batch_stats"]
        )
        return jnp.asarray(losses.cross_entropy(logits, labels)).mean()

    rest = {part: tree for part, tree in variables.items() if part != "params"}
    lowered = jax.jit(jax.grad(mean_loss)).lower(variables["params"], rest, images, labels)
    costs: Any = lowered.cost_analysis()
    return float(costs["flops"])


def part_of_step(machine: Machine, row: dict[str, Any], name: str, network: str) -> float:
    """The least time of a loss beyond cross-entropy's, in per cent of the least time of a step."""
    first, one = (row["losses"][loss] for loss in ("cross_entropy", name))
    beyond = machine.seconds(one) - machine.seconds(first)
    return 100 * beyond / (row["steps"][network] / machine.matrix)


def tables(results: dict[str, Any]) -> str:
    """The account as Markdown: bytes beside cross-entropy's, and parts of the steps."""
    parts = [f"{markdown.machine(results['machine'])}; computed, not measured."]
    for row in results["shapes"]:
        steps = ", ".join(
            f"{name} {operations / 1e9:,.0f}" for name, operations in row["steps"].items()
        )
        parts += [
            f"{row['batch']} × {row['classes']:,}; billions of operations of a step: {steps}:",
            markdown.table(
                [
                    *("loss", "MB", "/ cross-entropy", "million operations", "loops"),
                    *(f"% of {network}, {machine}" for network in NETWORKS for machine in MACHINES),
                ],
                (_line(row, name) for name in row["losses"]),
            ),
        ]
    return "\n\n".join(parts) + "\n"


def _line(row: dict[str, Any], name: str) -> list[str]:
    one, first = row["losses"][name], row["losses"]["cross_entropy"]
    shares = [
        part_of_step(machine, row, name, network)
        for network in NETWORKS
        for machine in MACHINES.values()
    ]
    return [
        f"`{name}`",
        f"{one['bytes'] / 1e6:,.1f}",
        f"{one['bytes'] / first['bytes']:.1f}",
        f"{one['operations'] / 1e6:,.1f}",
        str(one["loops"]),
        *(f"**{share:.2f}**" if share > LIMIT_PERCENT else f"{share:.2f}" for share in shares),
    ]


if __name__ == "__main__":
    main()
