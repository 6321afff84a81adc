"""The memory of a head of ten million classes, from programs compiled for TPUs and GPUs.

    python -m benchmarks.ten_million_classes --device=v5e:4x4 [--output=FILE.json] [NAME...]

Needs the program's dependencies and the compiler of the device: `.[tpu]` for v5e and v5p,
`.[cuda13]` for h100. Nothing runs. On several chips, NAME is a loss of
`configs/million_classes.py`: its step is compiled with 10,000,000 classes over the chips of each
host, --width features below the head, Adam and 64 examples. On one chip, NAME is a loss of
`topk_jax.heads`: its step is compiled with the same head, examples and features, and SGD with
momentum. Several devices may have one output file. If it exists, only what it lacks is compiled.
"""

import argparse
from dataclasses import asdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks import accounts, command, compiled_steps, markdown
from topk_jax import heads
from train.planning.accounts import compile_for
from train.planning.targets import Target, find_target

CLASSES, BATCH = 10_000_000, 64
_LOSSES = ("cross_entropy", "noised_balanced")
_LOSSES_OF_HEADS = ("cross_entropy",)
# Arrays of the size of the head: weights, gradient, and what the optimizer keeps.
_ARRAYS_OF_ADAM, _ARRAYS_OF_MOMENTUM = 4, 3


def main() -> None:
    """Accounts for every loss and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="losses, such as cross_entropy")
    parser.add_argument("--device", required=True, help="the chips, such as v5e:4x4")
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    parser.add_argument(
        "--width", type=command.integer(1), default=512, help="features below the head"
    )
    arguments = parser.parse_args()
    accounts.find_compiler(parser, arguments.device)
    losses = arguments.names or (_LOSSES if ":" in arguments.device else _LOSSES_OF_HEADS)
    accounts.report(
        [f"{loss}, {arguments.device}, {arguments.width}" for loss in losses],
        _account,
        device=arguments.device.partition(":")[0],
        output=arguments.output,
    )


def _account(name: str) -> dict[str, Any]:
    loss, chips, width = name.split(", ")
    target = find_target(chips)
    compiled = _on_several if len(target.devices) > 1 else _on_one
    return compiled(loss, target, int(width))


def _on_several(loss: str, target: Target, width: int) -> dict[str, Any]:
    """The step of the program, whose classes the chips share."""
    changes = {"dataset.num_classes": CLASSES, "model.width": width, "dataset.batch_size": BATCH}
    config = compiled_steps.configuration(f"million_classes:{loss}", changes)
    # The chips of a host share the classes.
    host = target.devices[0].process_index
    sharing = sum(chip.process_index == host for chip in target.devices)
    head = _head_bytes(_ARRAYS_OF_ADAM, width) // sharing
    return {"head": head, **compiled_steps.plan(config, target)}


def _on_one(loss: str, target: Target, width: int) -> dict[str, Any]:
    """A step of only a head, by blocks of classes."""
    optimizer = optax.sgd(0.1, momentum=0.9)

    def step(head: Any, state: Any, features: jax.Array, labels: jax.Array) -> Any:
        def mean_loss(head: Any) -> jax.Array:
            return jnp.mean(getattr(heads, loss)(features, head, labels))

        updates, state = optimizer.update(jax.grad(mean_loss)(head), state)
        return optax.apply_updates(head, updates), state

    def zeros() -> heads.LinearHead:
        return heads.LinearHead(jnp.zeros((width, CLASSES)), bias=jnp.zeros(CLASSES))

    head = jax.eval_shape(zeros)
    state = jax.eval_shape(optimizer.init, head)
    on_one = NamedSharding(Mesh(target.devices, ("chip",)), PartitionSpec())
    jitted = jax.jit(step, in_shardings=on_one, out_shardings=on_one, donate_argnums=(0, 1))
    features = jax.ShapeDtypeStruct((BATCH, width), np.float32)
    labels = jax.ShapeDtypeStruct((BATCH,), np.int32)
    found = compile_for(jitted, target, head, state, features, labels)
    needed = max(found.peak, found.arguments + found.temporary)
    return {"head": _head_bytes(_ARRAYS_OF_MOMENTUM, width), "needed": needed, **asdict(found)}


def _head_bytes(arrays: int, width: int) -> int:
    """By arithmetic, the bytes of this number of copies of the weights and bias, in float32."""
    return 4 * (width + 1) * CLASSES * arrays


def tables(results: dict[str, Any]) -> str:
    """The memory as Markdown: a row for each loss and machine."""
    programs: accounts.Accounts = results["programs"]
    return "\n\n".join(
        [
            f"{markdown.machine(results['machine'])}; computed, not measured. GB of a chip:",
            markdown.table(
                [
                    "loss",
                    "chips",
                    "features",
                    "head, by arithmetic",
                    "kept",
                    "temporary",
                    "at once",
                ],
                [[*_named(name), *_gigabytes(found)] for name, found in programs.items()],
            ),
        ]
    )


def _named(name: str) -> list[str]:
    loss, chips, width = name.split(", ")
    return [f"`{loss}`" if ":" in chips else f"`heads.{loss}`", chips, width]


def _gigabytes(found: dict[str, Any]) -> list[str]:
    """What the head needs by arithmetic, and what is compiled, or why it is not."""
    if "failed" in found:
        return [f"{found['head'] / 1e9:.2f}" if "head" in found else "–", found["failed"], "", ""]
    sizes = (found["head"], found["arguments"], found["temporary"], found["needed"])
    return [f"{size / 1e9:.2f}" for size in sizes]


if __name__ == "__main__":
    main()
