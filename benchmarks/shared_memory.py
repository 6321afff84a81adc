"""The memory of a large network on several chips, whose parameters they share or not.

    python -m benchmarks.shared_memory --device=h100:16 [--output=FILE.json] [NAME...]

Needs the program's dependencies and the compiler of the device: `.[tpu]` for v5e and v5p,
`.[cuda13]` for h100. Nothing runs. The step is the one of `configs/images.py` with a ViT-L of
DINOv2, images of 518 by 518 pixels in bfloat16, 128 at once, 1,000 classes, and SGD with momentum.
If the output file exists, only what it lacks is compiled.
"""

import argparse
import functools
from typing import Any

from benchmarks import accounts, command, compiled_steps, markdown
from train.planning.targets import find_target

_CHANGES = {
    "model.name": "vit_large_patch14_dinov2",
    "model.half_precision": True,
    "dataset.image_size": 518,
    "dataset.batch_size": 128,
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"parallel": "shard_map"},
    "remat": {"parallel": "shard_map", "model.remat": True},
    "fsdp and remat": {"parallel": "fsdp", "model.remat": True},
}


def main() -> None:
    """Accounts for every way and prints or writes the results as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WAYS)}")
    parser.add_argument("--device", required=True, help="several chips, such as v5e:4x4")
    parser.add_argument("--output", type=command.output_file, help="a JSON file for the results")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in WAYS]:
        parser.error(f"NAME must be one of {', '.join(WAYS)}; got {unknown[0]}")
    accounts.find_compiler(parser, arguments.device)
    accounts.report(
        arguments.names or [*WAYS],
        functools.partial(_account, arguments.device),
        device=arguments.device,
        output=arguments.output,
    )


def _account(device: str, way: str) -> dict[str, Any]:
    config = compiled_steps.configuration("images", _CHANGES | WAYS[way])
    return compiled_steps.plan(config, find_target(device))


def tables(results: dict[str, Any]) -> str:
    """The memory as Markdown: a row for each way."""
    programs: accounts.Accounts = results["programs"]
    lines = [[name, *_gigabytes(programs[name])] for name in WAYS if name in programs]
    return "\n\n".join(
        [
            f"{results['device']}, {markdown.machine(results['machine'])}; computed, not measured. "
            "GB of a chip:",
            markdown.table(["way", "needed", "parameters and optimizer", "temporary"], lines),
        ]
    )


def _gigabytes(account: dict[str, Any]) -> list[str]:
    if "failed" in account:
        return [str(account["failed"]), "", ""]
    kept = account["parts"]["params"] + account["parts"]["opt_state"]
    return [f"{size / 1e9:.2f}" for size in (account["needed"], kept, account["temporary"])]


if __name__ == "__main__":
    main()
